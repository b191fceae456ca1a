"""Leases on shared resources, work that outlives its request, and the block that ends faults.

Releasing never awaits: no cancellation can come before it.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any, Generic, Self, TypeVar

from msgspec import Struct

T = TypeVar("T")
INTERRUPTED_STATUS = 130
"""The exit status of a command that SIGINT ended, as shells have it."""


class Lease(Struct, eq=False):
    """One use of a shared resource. Releasing it twice counts once."""

    _leases: "Leases | None"

    def release(self) -> None:
        leases, self._leases = self._leases, None
        if leases is not None:
            leases.give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Leases:
    """The leases on a resource, which is closed after the last one is released."""

    __slots__ = ("_close", "_count", "is_closed")

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close
        self._count = 0
        self.is_closed = False

    def take(self) -> Lease:
        """Return another lease. Only the holder of one may ask: a closed resource stays closed."""
        if self.is_closed:
            raise RuntimeError("this resource is closed: take a lease before the last one is released")
        self._count += 1
        return Lease(self)

    def give_back(self) -> None:
        self._count -= 1
        if not self._count:
            self.is_closed = True
            self._close()


class Containment(Struct, frozen=True):
    """The only broad `except` of this package: exceptions are reported and not raised, but for those in `passes`.

    Two may use it (docs/decisions.md, 0012): the gateway and the dispatcher of events.
    """

    report: Callable[[Exception], None]
    passes: type[Exception] | tuple[()] = ()

    def __enter__(self) -> None:
        """Begin a block. One value may serve many blocks."""

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: object) -> bool:
        # A cancellation is no Exception and is raised.
        if not isinstance(fault, Exception) or isinstance(fault, self.passes):
            return False
        self.report(fault)
        return True


class BackgroundTasks:
    """A bounded number of tasks, each with a lease on the resource that it uses."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Callable[[], Coroutine[Any, Any, T]], lease: Lease) -> asyncio.Task[T] | None:
        """Start a task, or return None and release the lease if there are too many or no more are started."""
        if self._is_closed or len(self._tasks) >= self._limit:
            lease.release()
            return None
        # An empty context holds no `WORK` of the request: the task outlives that, and is not stopped with it.
        task = asyncio.get_running_loop().create_task(work(), context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A `finally` within `work` would not do: a task may be cancelled before its first step.
        task.add_done_callback(lambda _: lease.release())
        return task

    async def wait_idle(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self, seconds: float) -> int:
        """Wait this long, also for tasks that they start. Return the number of cancelled ones."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.wait_idle()
        self._is_closed = True
        unfinished_tasks = tuple(self._tasks)
        for task in unfinished_tasks:
            task.cancel()
        await asyncio.gather(*unfinished_tasks, return_exceptions=True)
        return len(unfinished_tasks)


class WorkerThread:
    """A thread that calls its function again after an exception, which `threading.excepthook` reports.

    It ends when the function returns. It is a daemon: a thread that is stuck in a write keeps no process alive.
    """

    def __init__(self, name: str, work: Callable[[], None], on_fault: Callable[[], None] | None = None) -> None:
        self._name = name
        self._work = work
        self._on_fault = on_fault
        self._returned = threading.Event()
        self._start()

    def join(self, seconds: float) -> bool:
        return self._returned.wait(seconds)

    def _start(self) -> None:
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._work()
            self._returned.set()
        finally:
            if not self._returned.is_set():
                if self._on_fault is not None:
                    self._on_fault()
                self._start()


class BackgroundWriter(Generic[T]):
    """A bounded queue, and a thread for a slow sink, which returns the number of items that it could not write.

    `put` never blocks or raises. If the queue is full, items are dropped and counted.
    """

    def __init__(
        self,
        name: str,
        sink: Callable[[Sequence[T]], int],
        limit: int = 8 * 1024 * 1024,
        gather_seconds: float = 0.1,  # with batches, a request of 100 kB costs a third less
    ) -> None:
        self.dropped = 0
        self._sink = sink
        self._limit = limit
        self._gather_seconds = gather_seconds
        self._items: list[T] = []
        self._waiting_size = 0
        self._unwritten = 0  # in the queue or in the hands of the sink
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread = WorkerThread(name, self._write_items, self._count_lost_items)

    def put(self, item: T, size: int) -> None:
        with self._changed:
            if self._closing.is_set() or self._waiting_size + size > self._limit:
                self.dropped += 1
                return
            self._items.append(item)
            self._waiting_size += size
            self._unwritten += 1
            if len(self._items) == 1:
                self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._unwritten, seconds)

    def close(self, seconds: float) -> None:
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(seconds)

    def _count_lost_items(self) -> None:
        with self._changed:
            self.dropped += self._unwritten - len(self._items)
            self._unwritten = len(self._items)
            self._changed.notify_all()

    def _write_items(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._closing.is_set())
            # Wait for more items: each write and wake-up takes the interpreter away from the event loop.
            self._closing.wait(self._gather_seconds)
            with self._changed:
                items, self._items, self._waiting_size = self._items, [], 0
            if not items:
                return
            unwritable = self._sink(items)
            with self._changed:
                self.dropped += unwritable
                self._unwritten -= len(items)
                self._changed.notify_all()
