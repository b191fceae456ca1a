"""Processor time of a request that makes a block, if all but its last turn was sent before.

PYTHONPATH=. .venv/bin/python bench/rewrites.py
"""

import asyncio
import sys
import tempfile
from multiprocessing import Pipe, Process
from pathlib import Path
from statistics import median
from time import process_time
from types import SimpleNamespace

from bodies import growing
from in_turn import serve

from proxy.events import TurnEnded
from proxy.upstream.client import Call
from tests.support.gateway_in_process import GatewayInProcess

SIZE, CONVERSATIONS, WINDOW_TOKENS = 90_000, 60, 52_000


async def measure(url: str) -> list[float]:
    """Return the CPU milliseconds of each rewrite. The window is such that each conversation soon outgrows it."""
    rewrites = []
    with tempfile.TemporaryDirectory() as place:
        async with GatewayInProcess(SimpleNamespace(url=url), Path(place), window=WINDOW_TOKENS) as served:  # type: ignore[no-untyped-call]
            await served.services.tokenizers.load()
            for seed in range(CONVERSATIONS):
                headers = (("authorization", f"Bearer sk-{seed}"), ("content-type", "application/json"))
                for turn, body in enumerate(growing(SIZE, 60, seed)):
                    began, served.events[:] = process_time(), []
                    await served.relay(Call("POST", "/chat/completions", "", headers, body))
                    await served.notes.wait_idle()
                    spent = process_time() - began
                    turns = [event for event in served.events if isinstance(event, TurnEnded)]
                    if turns and turns[-1].action == "created" and turns[-1].reason != "opening":
                        rewrites += [1_000 * spent] * (turn > 0)
                        break
    return rewrites


if __name__ == "__main__":
    ours, theirs = Pipe()
    upstream = Process(target=serve, args=(theirs,), daemon=True)
    upstream.start()
    rewrites = asyncio.run(measure(ours.recv()))
    sys.stdout.write(f"{len(rewrites)} rewrites: median {median(rewrites):.1f} ms, least {min(rewrites):.1f} ms\n")
    upstream.terminate()
