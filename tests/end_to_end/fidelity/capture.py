"""Records what real clients send: `python -m tests.end_to_end.fidelity.capture` writes recorded.jsonl again.

Every conversation is sent by every client; the recorder keeps the requests as they came over the wire. Run again
when a client is pinned to a new version. What belongs to the connection alone is left out, and keys are made up.
"""
# ruff: noqa: T201 - a command says what it does

import asyncio
import functools
from collections.abc import Iterator
from typing import Any

from tests.end_to_end.clients.client import PROGRAMS, Client, missing
from tests.end_to_end.fidelity.conversations import CHATS, OPENAI_CHATS, OTHER_CALLS, PYTHON_CALLS
from tests.end_to_end.fidelity.stored import RequestCase, save
from tests.support.scripted_upstream import Request, Upstream, by_path, echo, text_turn

OF_THE_CONNECTION = {"host", "content-length", "connection", "transfer-encoding", "accept-encoding"}
Job = tuple[str, dict[str, Any]]


def jobs(client: str) -> Iterator[Job]:
    """What a client is asked to do, each with its name."""
    for name, args in CHATS.items():
        yield name, {"model": "scripted-1", **args}
    if client.startswith("openai"):
        for name, args in OPENAI_CHATS.items():
            yield name, {"model": "scripted-1", **(_node_extras(args) if client == "openai-node" else args)}
        for call, args in OTHER_CALLS:
            yield call, {"call": call, **args}
    if client == "openai-3":
        for call, args in PYTHON_CALLS:
            yield call, {"call": call, **args}


def _node_extras(args: dict[str, Any]) -> dict[str, Any]:
    """openai-node takes unknown keys as they are."""
    plain = {key: value for key, value in args.items() if key not in ("extra_body", "extra_headers")}
    return plain | args.get("extra_body", {})


def record_request(request: Request, name: str, source: str) -> RequestCase:
    headers = tuple((key.decode(), value.decode()) for key, value in request.headers)
    end_to_end = tuple(pair for pair in headers if pair[0].lower() not in OF_THE_CONNECTION)
    return RequestCase(name, request.method, request.target, end_to_end, request.body, source)


async def record(up: Upstream, client: str) -> list[RequestCase]:
    text = []
    with Client(client) as running:
        for name, job in jobs(client):
            up.forget()
            outcome = await asyncio.to_thread(functools.partial(running.ask, up.url, **job))
            if not up.requests:
                print(f"{client}: {name}: nothing was sent: {outcome.raised}")
            text += [record_request(request, name, client) for request in up.requests]
    return text


async def main() -> None:
    script = by_path({"/v1/chat/completions": text_turn("All right.")}, otherwise=echo)
    async with Upstream(script) as up:
        recorded = [sent for client in PROGRAMS if not missing(client) for sent in await record(up, client)]
    save(recorded)
    print(f"{len(recorded)} requests")


if __name__ == "__main__":
    asyncio.run(main())
