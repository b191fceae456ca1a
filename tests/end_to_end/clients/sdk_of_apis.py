"""anthropic-python or openai-python on the APIs Messages and Responses: a job on each line, its outcome on a line.

The first argument is the library. A job names the base URL, what is asked (`messages`, `responses`, or the tool runner
of anthropic-python with a history of its own or a thread) and whether it streams. The outcome is what a user would have
seen: the last text, or the exception that was raised and what came before it, and the tools that ran.
"""
# ruff: noqa: T201 - its standard output is its answer

import importlib
import json
import sys

LIBRARY = importlib.import_module(sys.argv[1])
RAN = []


def main() -> None:
    make = LIBRARY.Anthropic if sys.argv[1] == "anthropic" else LIBRARY.OpenAI
    for line in sys.stdin:
        job = json.loads(line)
        client = make(base_url=job["base_url"], api_key="sk-made-up", max_retries=0, timeout=20)
        RAN.clear()
        seen = {"text": "", "raised": None, "ran": RAN}
        try:
            ASK[job["kind"]](client, job, seen)
        except Exception as fault:  # noqa: BLE001 - whatever reaches a user of the library is the outcome
            seen["raised"] = f"{type(fault).__name__}: {fault}"
        print(json.dumps(seen), flush=True)


def ask_messages(client, job, seen):
    if not job["stream"]:
        seen["text"] = text_of(client.messages.create(**job["body"]))
        return
    with client.messages.stream(**job["body"]) as events:
        for text in events.text_stream:
            seen["text"] += text
        seen["text"] = events.get_final_text()


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def ask_responses(client, job, seen):
    if not job["stream"]:
        seen["text"] = client.responses.create(**job["body"]).output_text
        return
    final = None
    for event in client.responses.create(**job["body"], stream=True):
        if event.type == "response.output_text.delta":
            seen["text"] += event.delta
        if event.type == "response.completed":
            final = event.response
    if final is None:
        raise RuntimeError("the stream ended without response.completed")
    seen["text"] = final.output_text


def read_file(path: str) -> str:
    """Read a file.

    Args:
        path: Where it is.
    """
    RAN.append(path)
    return "\n".join(f"def {path.replace('/', '_')}_{line}(value): return value + {line}" for line in range(60))


def run_tools(client, job, seen):
    tools = [LIBRARY.beta_tool(read_file)]
    asked = {"model": "claude-opus-4-8", "max_tokens": 1_000, "system": "You are a coding agent.", "tools": tools}
    task = {"role": "user", "content": "Read all parts."}
    if job["kind"] == "thread":
        thread = client.beta.messages.thread(**asked)
        thread.append(task)
        runner = thread.tool_runner(stream=job["stream"])
    else:
        runner = client.beta.messages.tool_runner(**asked, messages=[task], stream=job["stream"])
    for message in runner:
        seen["text"] = text_of(message.get_final_message() if job["stream"] else message)


ASK = {"messages": ask_messages, "responses": ask_responses, "runner": run_tools, "thread": run_tools}
if __name__ == "__main__":
    main()
