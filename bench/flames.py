"""Flame graphs of the proxy at work, one SVG for each kind of work, for build/flames.

    pip install py-spy                    # once; it need not be installed for anything else
    make -C bench flames                           # about a minute

What is sampled is Python code that holds the interpreter: counting tokens, hashing and the kernel are not in it.
"""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from pathlib import Path

import load
from bodies import chat, growing
from contestants import CHAT, OURS, Contestant, start_contestant
from fake_upstream import FakeUpstream, Pace
from longwork import Work
from process import CLIENTS

SECONDS = 8
SAMPLES_A_SECOND = 400
FIRST_SIGHT_BYTES = 1_000_000


def _again(body: bytes) -> Iterator[bytes]:
    while True:
        yield body


def _first_sights() -> Iterator[bytes]:
    """Histories that were never sent before."""
    return (Work(seed, 6_000).up_to(FIRST_SIGHT_BYTES).body() for seed in count(1_000))


WORK: dict[str, Callable[[], Iterator[bytes]]] = {
    "1-kb": lambda: _again(chat(1_000)),
    "growing-10-kb": lambda: (body for seed in count() for body in growing(10_000, 40, seed)),
    "growing-100-kb": lambda: growing(100_000, 1_000_000, 1),
    "growing-1-mb": lambda: growing(1_000_000, 1_000_000, 2),
    "first-sight-of-1-mb": _first_sights,
    "stream": lambda: _again(chat(1_000, stream=True)),
}
"""The requests of each picture, as many as are asked for."""


def _take_until(sampling: "asyncio.Task[None]", requests: Iterable[bytes]) -> Iterator[bytes]:
    for request in requests:
        if sampling.done():
            return
        yield request


async def record(command: str, folder: Path, place: Path) -> None:
    async with FakeUpstream(Pace(200, 0.0005)) as upstream:
        contestant = await asyncio.to_thread(start_contestant, OURS, upstream.url, place)
        try:
            for name, bodies in WORK.items():
                requests = bodies()
                url = contestant.origin + CHAT
                await load.ask_in_turn(url, islice(requests, 3))
                await asyncio.sleep(1)  # what a first sight leaves to be written
                sampling = asyncio.create_task(asyncio.to_thread(_sample, command, contestant, folder / f"{name}.svg"))
                await load.ask_in_turn(url, _take_until(sampling, requests))
                await sampling
        finally:
            contestant.stop()


def _sample(command: str, contestant: Contestant, file: Path) -> None:
    assert contestant.server is not None
    worker = contestant.server.tree()[-1]  # the process that was started only watches it
    options = ["--pid", str(worker), "--duration", str(SECONDS), "--rate", str(SAMPLES_A_SECOND), "--gil"]
    subprocess.run(
        ["py-spy", "record", *options, "--format", "flamegraph", "--output", str(file)],
        executable=command,  # its arguments become the title of the picture
        check=True,
        capture_output=True,
    )
    print(f"{file}: {file.stat().st_size // 1024} kB")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--folder", metavar="DIR", type=Path, default=Path("build/flames"), help="where they are written"
    )
    args = parser.parse_args()
    beside = Path(sys.executable).with_name("py-spy")
    command = str(beside) if beside.exists() else shutil.which("py-spy")
    if command is None:
        raise SystemExit("no command `py-spy`: pip install py-spy")
    args.folder.mkdir(parents=True, exist_ok=True)
    os.sched_setaffinity(0, {CLIENTS})
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(record(command, args.folder, Path(place)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
