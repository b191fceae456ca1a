"""anthropic-python's tool runner with its default settings: a job on a line, its outcome on a line.

A job names the base URL, how the history is kept (`runner`: `tool_runner()`; `thread`: `thread().tool_runner()`) and
whether it streams. The outcome is the last text, the tools that ran, and the exception that a user would have seen.
"""
# ruff: noqa: T201 - its standard output is its answer

import json
import sys

from anthropic import Anthropic, beta_tool

RAN = []


@beta_tool
def read_file(path: str) -> str:
    """Read a file.

    Args:
        path: Where it is.
    """
    RAN.append(path)
    return "\n".join(f"def {path.replace('/', '_')}_{line}(value): return value + {line}" for line in range(60))


def main() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        RAN.clear()
        client = Anthropic(base_url=job["base_url"], api_key="sk-made-up", max_retries=0, timeout=20)
        seen = {"text": "", "raised": None}
        try:
            for message in start(client, job):
                whole = message.get_final_message() if job["stream"] else message
                seen["text"] = "".join(block.text for block in whole.content if block.type == "text")
        except Exception as fault:  # noqa: BLE001 - whatever reaches a user of the library is the outcome
            seen["raised"] = f"{type(fault).__name__}: {fault}"
        print(json.dumps({**seen, "ran": RAN}), flush=True)


def start(client, job):
    asked = {"model": "claude-opus-4-8", "max_tokens": 1_000, "system": "You are a coding agent.", "tools": [read_file]}
    task = {"role": "user", "content": "Read all parts."}
    if job["kind"] == "thread":
        thread = client.beta.messages.thread(**asked)
        thread.append(task)
        return thread.tool_runner(stream=job["stream"])
    return client.beta.messages.tool_runner(**asked, messages=[task], stream=job["stream"])


if __name__ == "__main__":
    main()
