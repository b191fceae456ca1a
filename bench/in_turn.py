"""Processor time of a request if more and more conversations of one key take turns.

PYTHONPATH=. .venv/bin/python bench/in_turn.py
"""

import asyncio
import sys
import tempfile
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection
from pathlib import Path
from time import process_time
from types import SimpleNamespace

from bodies import MESSAGES, growing
from fake_upstream import FakeUpstream, Pace

from proxy.upstream.client import Call
from tests.support.gateway_in_process import GatewayInProcess

SIZE, ROUNDS = 400_000, 3


async def measure(conversations: int, url: str) -> float:
    """Return the CPU seconds of a request, after a round in which all are new."""
    bodies = [growing(SIZE + seed, ROUNDS + 1, seed, MESSAGES) for seed in range(conversations)]
    headers = (("authorization", "Bearer sk-one"), ("content-type", "application/json"))
    spent = 0.0
    with tempfile.TemporaryDirectory() as place:
        async with GatewayInProcess(SimpleNamespace(url=url), Path(place), window=200_000) as served:  # type: ignore[no-untyped-call]
            for turn in range(ROUNDS + 1):
                for body in map(next, bodies):
                    began = process_time()
                    await served.relay(Call("POST", "/messages", "", headers, body))
                    await served.notes.wait_idle()
                    spent += (process_time() - began) * (turn > 0)
    return spent / conversations / ROUNDS


def serve(pipe: Connection) -> None:
    async def run() -> None:
        async with FakeUpstream(Pace()) as upstream:
            pipe.send(upstream.url + "/v1")
            await asyncio.Event().wait()

    asyncio.run(run())


if __name__ == "__main__":
    ours, theirs = Pipe()
    upstream = Process(target=serve, args=(theirs,), daemon=True)
    upstream.start()
    url = ours.recv()
    for conversations in (20, 40, 60, 80, 120, 160):
        milliseconds = 1_000 * asyncio.run(measure(conversations, url))
        sys.stdout.write(f"{conversations}: {milliseconds:.1f} ms a request\n")
    upstream.terminate()
