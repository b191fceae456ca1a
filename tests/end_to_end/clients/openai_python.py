"""openai-python, driven from outside: a job on each line of stdin, its outcome on a line of stdout.

Runs under both of its pinned versions. A job names the base URL and what to create; the outcome is what a user of
the library would have seen: the text, the calls, the finish, or the exception that was raised and what came before it.
"""
# ruff: noqa: T201 - its standard output is its answer

import json
import sys

import openai


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        client = openai.OpenAI(base_url=job["base_url"], api_key="sk-made-up", max_retries=0, timeout=20)
        print(json.dumps(outcome(client, job)), flush=True)


def outcome(client, job):
    seen = {"text": "", "calls": {}, "finish": None, "usage": None, "raised": None}
    try:
        if "call" in job:
            seen["value"] = call_method(client, job)
        elif job["args"].get("stream"):
            read_stream(client.chat.completions.create(**job["args"]), seen)
        else:
            read_completion(client.chat.completions.create(**job["args"]), seen)
    except Exception as fault:  # noqa: BLE001 - whatever reaches a user of the library is the outcome
        seen["raised"] = describe_error(fault)
    return {**seen, "calls": [[name, text] for name, text in seen["calls"].values()]}


def call_method(client, job):
    """Any other call of the library, by its dotted name."""
    target = client
    for name in job["call"].split("."):
        target = getattr(target, name)
    args = {key: as_file(value) for key, value in job["args"].items()}
    result = target(**args)
    return result.model_dump() if hasattr(result, "model_dump") else str(result)


def as_file(value):
    return (value["file"], value["content"].encode()) if isinstance(value, dict) and "file" in value else value


def read_completion(completion, seen):
    if not completion.choices:
        return
    choice = completion.choices[0]
    seen["text"] = choice.message.content or ""
    for at, call in enumerate(choice.message.tool_calls or []):
        seen["calls"][at] = [call.function.name, call.function.arguments]
    seen["finish"] = choice.finish_reason
    seen["usage"] = completion.usage and completion.usage.total_tokens


def read_stream(stream, seen):
    for chunk in stream:
        seen["usage"] = chunk.usage.total_tokens if chunk.usage else seen["usage"]
        for choice in chunk.choices:
            seen["text"] += choice.delta.content or ""
            seen["finish"] = choice.finish_reason or seen["finish"]
            for part in choice.delta.tool_calls or []:
                call = seen["calls"].setdefault(part.index, ["", ""])
                call[0] += part.function.name or ""
                call[1] += part.function.arguments or ""


def describe_error(fault):
    response = getattr(fault, "response", None)
    return {
        "type": type(fault).__name__,
        "status": getattr(fault, "status_code", None),
        "code": getattr(fault, "code", None),
        "message": str(fault),
        "retry_after": response.headers.get("retry-after") if response is not None else None,
        "request_id": getattr(fault, "request_id", None),
    }


if __name__ == "__main__":
    main()
