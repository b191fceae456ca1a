"""Threads for large histories: all requests share the event loop, and each thread.

Parsing, hashing and rendering take two milliseconds per megabyte of text, but ten microseconds for each message, part
or call, however short; deciding takes fifty milliseconds if a block is made. So the work is estimated from both,
small work is done at once, large work in a few threads, and huge work in a thread of its own, where it holds up
nothing but other huge work. A caller of whom no upstream has accepted anything yet may be a stranger whose request will
be refused: the large work of all these has one thread, where it holds up nothing of callers that are known.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

from proxy.errors import Overloaded

BYTES_PER_ELEMENT = 100
"""What one more element of JSON costs, in bytes of plain text that cost as much."""
LARGE_WORK_BYTES = 256 * 1024
"""More than this, in bytes of plain text, is done in a thread: 250 kB of text, or a thousand short messages."""
HUGE_WORK_BYTES = 8 * 1024 * 1024
"""More than this is done in the thread for huge histories: 3 MB of ordinary messages, or 40,000 empty ones."""
WAITING_MAX = 256
"""Pieces of work that may wait for a thread; each request has one at a time."""

Result = TypeVar("Result")


def estimate_work(source: bytes) -> int:
    """The work that a request with this body is, in bytes of plain text that are as much work.

    Commas are counted, which separate messages, parts, calls and members alike. Those within texts are counted as well:
    the worst that comes of it is that a smaller history is worked on in a thread.
    """
    return len(source) + BYTES_PER_ELEMENT * source.count(b",")


class Lane:
    """Threads with one queue, bounded."""

    def __init__(self, name: str, threads: int, most_waiting: int = WAITING_MAX) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most_unfinished = threads + most_waiting
        self._unfinished = 0
        self._lock = Lock()

    async def run(self, act: Callable[[], Result]) -> Result:
        """Overloaded: too much waits already."""
        if self._unfinished >= self._most_unfinished:
            raise Overloaded("the proxy is busy with large requests", headers=(("retry-after", "1"),))
        self._count(1)
        work = self._threads.submit(act)
        # Until the thread is done, even if the client has left: the work goes on.
        work.add_done_callback(lambda _: self._count(-1))
        return await asyncio.wrap_future(work)

    def _count(self, change: int) -> None:
        with self._lock:
            self._unfinished += change


_LARGE = Lane("large-histories", threads=2)
_HUGE = Lane("huge-histories", threads=1)
_UNKNOWN = Lane("unknown-callers", threads=1)


def needs_thread(work: int) -> bool:
    """Return True if this much work would delay other requests."""
    return work > LARGE_WORK_BYTES


async def run_apart(work: int, act: Callable[[], Result], *, is_known: bool = True) -> Result:
    """Do this much work (`estimate_work`) of a caller, known or not, so that it delays no other request."""
    if not needs_thread(work):
        return act()
    if not is_known:
        return await _UNKNOWN.run(act)
    return await (_LARGE if work <= HUGE_WORK_BYTES else _HUGE).run(act)
