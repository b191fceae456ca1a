"""anthropic-python or openai-python on the APIs Messages and Responses: a job on each line, its outcome on a line.

The first argument is the library. A job names the base URL, the request and whether it streams; the outcome is what a
user of the library would have seen: the text, or the exception that was raised and what came before it.
"""
# ruff: noqa: T201 - its standard output is its answer

import importlib
import json
import sys


def main() -> None:
    library = sys.argv[1]
    for line in sys.stdin:
        job = json.loads(line)
        make = getattr(importlib.import_module(library), {"anthropic": "Anthropic", "openai": "OpenAI"}[library])
        client = make(base_url=job["base_url"], api_key="sk-made-up", max_retries=0, timeout=20)
        seen = {"text": "", "raised": None, "status": None}
        try:
            ask = ask_messages if library == "anthropic" else ask_responses
            seen["text"] = ask(client, job["body"], seen, stream=job["stream"])
        except Exception as fault:  # noqa: BLE001 - whatever reaches a user of the library is the outcome
            seen |= {"raised": f"{type(fault).__name__}: {fault}", "status": getattr(fault, "status_code", None)}
        print(json.dumps(seen), flush=True)


def ask_messages(client, body, seen, *, stream):
    if not stream:
        return "".join(block.text for block in client.messages.create(**body).content if block.type == "text")
    with client.messages.stream(**body) as events:
        for text in events.text_stream:
            seen["text"] += text
        return events.get_final_text()


def ask_responses(client, body, seen, *, stream):
    if not stream:
        return client.responses.create(**body).output_text
    final = None
    for event in client.responses.create(**body, stream=True):
        if event.type == "response.output_text.delta":
            seen["text"] += event.delta
        if event.type == "response.completed":
            final = event.response
    if final is None:
        raise RuntimeError("the stream ended without response.completed")
    return final.output_text


if __name__ == "__main__":
    main()
