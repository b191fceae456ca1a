"""What runs for a request: `python -m tests.support.trace` prints it, function by function, of three requests.

They go through a real socket: one is left alone, one makes a block, one has that block applied.
"""

import asyncio
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import ROOT
from tests.support.agent import reading
from tests.support.gateway_in_process import GatewayInProcess, Listening
from tests.support.messages import body, user
from tests.support.proxy_client import ask
from tests.support.scripted_upstream import Upstream, text_turn

PACKAGE = f"{ROOT}/proxy/"
Calls = list[tuple[str, str]]
"""File within the package and qualified name of each function, in the order in which they were called."""


@contextmanager
def trace_calls() -> Iterator[Calls]:
    """Of this thread, and of all that start meanwhile."""
    calls: Calls = []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls.append((frame.f_code.co_filename.removeprefix(PACKAGE), frame.f_code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def trace_requests(state: Path) -> dict[str, Calls]:
    """The calls for a request that is left alone, one that makes a block, and one under that block."""
    traced = {}
    async with (
        Upstream(text_turn("Hi").using(prompt=100)) as up,
        GatewayInProcess(up, state) as served,
        Listening(served).listening() as proxy,
    ):
        await served.services.tokenizers.load()  # else a thread that still loads it would be traced, too
        await ask_as_agent(proxy, user("Hello?"))  # policies are compiled and names looked up once
        await asyncio.sleep(0.05)  # this request has asked for the tokenizer as well: that ends here
        for name, messages in {
            "untouched": user("Hello?"),
            "created": reading(60, size=2_000),
            "applied": reading(61, size=2_000),
        }.items():
            with trace_calls() as calls:
                await ask_as_agent(proxy, messages)
                await served.notes.wait_idle()
            traced[name] = calls
    return traced


async def ask_as_agent(proxy: Listening, messages: list) -> str | None:
    """What was done to the history."""
    answer = await ask(proxy, body(messages, stream=True), headers={"authorization": "Bearer sk-a"})
    assert answer.status == 200
    return answer.head.first("x-compaction")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        traced = asyncio.run(trace_requests(Path(folder)))
    for name, calls in traced.items():
        files = {path for path, _ in calls}
        sys.stdout.write(f"\n{name}: {len(calls)} calls of {len(set(calls))} functions in {len(files)} files\n")
        for path, function in dict.fromkeys(calls):
            sys.stdout.write(f"  {path:32} {function}\n")


if __name__ == "__main__":
    main()
