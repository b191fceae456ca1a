"""Named lanes: threads of their own for each kind of work that would hold up the event loop.

    CONTROL     readiness, a reload, keys, shutdown             a full lane of requests holds up none of these
    FILES       data for admin pages
    COUNTING    tokens of up to 256 KiB of new messages
    LARGE       large histories and bodies of known callers
    HUGE        huge ones, so that one of them holds up no large one
    UNKNOWN     large ones of callers that no upstream has accepted yet

A call of `Lane.run` works on account of the request that waits for it (`work.py`). A store has a lane for itself.
asyncio's default threads are left to look up the addresses of upstreams.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import TypeVar, TypeVarTuple

from proxy.foundation.errors import Overloaded
from proxy.foundation.work import WORK, Work

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class Lane:
    """A few threads and a bounded queue."""

    def __init__(self, name: str, threads: int, most_waiting: int = 256) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most_unfinished = threads + most_waiting
        self._unfinished = 0
        self._lock = Lock()

    async def run(self, act: Callable[[*Arguments], Result], *args: *Arguments) -> Result:
        """Call *act* in a thread, on account of the current request. Raise Overloaded if too much waits already."""
        work = WORK.get()
        if work is None:
            return await self.submit(act, *args)
        try:
            return await self.submit(_carry, work, partial(act, *args))
        except asyncio.CancelledError:
            work.has_left = True
            raise

    def submit(self, act: Callable[[*Arguments], Result], *args: *Arguments) -> asyncio.Future[Result]:
        if self._unfinished >= self._most_unfinished:
            raise Overloaded("the proxy is busy with large requests", headers=(("retry-after", "1"),))
        with self._lock:
            self._unfinished += 1
        future = self._threads.submit(act, *args)
        # The act runs to its end even if its caller was cancelled, so its own end is counted.
        future.add_done_callback(self._note_end)
        return asyncio.wrap_future(future)

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    def _note_end(self, _: object) -> None:
        with self._lock:
            self._unfinished -= 1


def _carry(work: Work, act: Callable[[], Result]) -> Result:
    token = WORK.set(work)
    try:
        return work.measure(act)
    finally:
        WORK.reset(token)


CONTROL = Lane("control", threads=4)
FILES = Lane("files", threads=4)
COUNTING = Lane("counting", threads=2)
LARGE = Lane("large-histories", threads=2)
HUGE = Lane("huge-histories", threads=1)
UNKNOWN = Lane("unknown-callers", threads=1)

LARGE_WORK_BYTES = 256 * 1024
"""More is done in a thread: 250 kB of text, or a thousand short messages."""
HUGE_WORK_BYTES = 8 * 1024 * 1024
"""More has a lane to itself."""
UNMEASURED_BYTES = 16 * 1024
"""Less is not counted against a budget: most requests of a conversation bring less that is new."""


def estimate_work(source: bytes) -> int:
    """Return the bytes of plain text that are as much work. Commas separate messages, parts, calls and members."""
    return len(source) + 100 * source.count(b",")


def needs_thread(size: int) -> bool:
    return size > LARGE_WORK_BYTES


def is_of_stranger() -> bool:
    """Whether the current request is of a caller that no upstream has accepted yet."""
    work = WORK.get()
    return work is not None and not work.is_accepted and not work.is_known()


def choose_lane(size: int) -> Lane:
    if is_of_stranger():
        return UNKNOWN
    return LARGE if size <= HUGE_WORK_BYTES else HUGE


async def run_apart(size: int, act: Callable[[], Result]) -> Result:
    """Do small work at once, and large work in a lane."""
    if size <= UNMEASURED_BYTES:
        return act()
    if needs_thread(size):
        return await choose_lane(size).run(act)
    work = WORK.get()
    if work is None:
        return act()
    return work.measure(act)
