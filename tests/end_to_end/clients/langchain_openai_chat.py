"""LangChain's ChatOpenAI, driven from outside: a job on each line of stdin, its outcome on a line of stdout."""
# ruff: noqa: T201 - its standard output is its answer

import json
import sys

from langchain_openai import ChatOpenAI
from openai_python import describe_error

# What LangChain takes in its constructor; the rest of a job's arguments is bound to the call.
CONSTRUCTED = ("model", "temperature", "seed", "top_p", "max_tokens", "stop", "n", "logprobs", "reasoning_effort")


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(outcome(job)), flush=True)


def outcome(job):
    args = dict(job["args"])
    messages, tools, streamed = args.pop("messages"), args.pop("tools", None), args.pop("stream", False)
    usage = bool(args.pop("stream_options", None))
    settings = {name: args.pop(name) for name in CONSTRUCTED if name in args}
    chat = ChatOpenAI(
        base_url=job["base_url"], api_key="sk-made-up", max_retries=0, timeout=20, stream_usage=usage, **settings
    )
    bound = chat.bind_tools(tools, **args) if tools else chat.bind(**args)
    seen = {"text": "", "calls": [], "finish": None, "usage": None, "raised": None}
    try:
        read(whole(bound.stream(messages), seen) if streamed else bound.invoke(messages), seen)
    except Exception as fault:  # noqa: BLE001 - whatever reaches a user of the library is the outcome
        seen["raised"] = describe_error(fault)
    return seen


def whole(stream, seen):
    gathered = None
    for chunk in stream:
        seen["text"] += chunk.text if isinstance(chunk.text, str) else chunk.text()
        gathered = chunk if gathered is None else gathered + chunk
    return gathered


def read(message, seen):
    seen["text"] = message.text if isinstance(message.text, str) else message.text()
    seen["calls"] = [[call["name"], json.dumps(call["args"])] for call in message.tool_calls]
    seen["finish"] = message.response_metadata.get("finish_reason")
    seen["usage"] = message.usage_metadata and message.usage_metadata["total_tokens"]


if __name__ == "__main__":
    main()
