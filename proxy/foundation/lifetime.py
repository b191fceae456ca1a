"""Leases on shared resources, work that outlives its request, the block that ends faults, and threads.

Releasing a lease never awaits: no cancellation can come before it.

The work for one request ends if the client has left, and a stranger's if it takes too long. That decides only whether
work continues, and never changes a result: a request that is stopped has none.

    gateway    WORK.set(Work(...))         before anything of the body is read
    lanes      work.measure(act)           carry it into their threads, and measure the CPU time of each act
    core       check_work()                in the loops over messages, pieces of text and pieces of a body

Lanes are threads of their own for each kind of work that would hold up the event loop:

    CONTROL     readiness, a reload, keys, shutdown             a full lane of requests holds up none of these
    FILES       data for admin pages
    COUNTING    tokens of messages, unless those are large and of an unknown caller
    LARGE       large histories and bodies of known callers
    HUGE        huge ones, so that one of them holds up no large one
    UNKNOWN     large ones of callers that no upstream has accepted yet

A call of `Lane.run` works on account of the request that waits for it. A store has a lane for itself. asyncio's default
threads are left to look up the addresses of upstreams.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from time import thread_time
from typing import Any, Generic, Self, TypeVar, TypeVarTuple

from msgspec import Struct

from proxy.foundation.errors import Overloaded, TooMuchWork

T = TypeVar("T")
INTERRUPTED_STATUS = 130
"""The exit status of a command that SIGINT ended, as shells have it."""


class Lease(Struct, eq=False):
    """One use of a shared resource. Releasing it twice counts once."""

    _leases: "Leases | None"

    def release(self, *_: object) -> None:
        leases, self._leases = self._leases, None
        if leases is not None:
            leases.give_back()

    def __enter__(self) -> Self:
        return self

    __exit__ = release


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


class BackgroundTasks(Struct, eq=False):
    """A bounded number of tasks, each with a lease on the resource that it uses."""

    limit: int
    _tasks: set[asyncio.Task[Any]] = set()
    _is_closed: bool = False

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Callable[[], Coroutine[Any, Any, T]], lease: Lease) -> asyncio.Task[T] | None:
        """Start a task, or return None and release the lease if there are too many or no more are started."""
        if self._is_closed or len(self._tasks) >= self.limit:
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


# A stranger that takes more is relayed unchanged: a new client with an unusual history must be able to become known
# (decision 0009).
BUDGET_SECONDS = 2.0
BUDGET_SECONDS_PER_MIB = 10.0
"""CPU time for each MiB of a body, besides `BUDGET_SECONDS`. Usual histories take less than a quarter of their sum."""


class ClientLeftError(Exception):
    """The client has left, so the result of this work is not needed."""


class Work(Struct):
    is_known: Callable[[], bool]
    """Tell whether an upstream has accepted this caller, or it belongs to a team."""
    body_bytes: int = 0
    """The more there are, the more CPU time there is for a caller that is not known."""
    has_left: bool = False
    is_accepted: bool = False
    """The upstream has taken the request: the work after that is done to its end, also if the client leaves."""
    _spent_seconds: float = 0.0
    _began_at: float | None = None
    """When the thread that works on it began, by its own CPU time; None for a caller that is known."""

    def measure(self, act: Callable[[], T]) -> T:
        """Call *act* on account of this request, in the thread that calls this."""
        if self.is_accepted or self.is_known():
            return act()
        self._began_at = thread_time()
        try:
            return act()
        finally:
            self._spent_seconds += thread_time() - self._began_at
            self._began_at = None

    def check(self) -> None:
        """Raise ClientLeftError or TooMuchWork if the work is to end here."""
        if self.is_accepted:
            return
        if self.has_left:
            raise ClientLeftError
        if self._began_at is None:
            return
        budget_seconds = BUDGET_SECONDS + BUDGET_SECONDS_PER_MIB * self.body_bytes / (1024 * 1024)
        if self._spent_seconds + thread_time() - self._began_at > budget_seconds:
            raise TooMuchWork(
                "this request takes more processor time than the proxy spends on a caller whose key no upstream has "
                "accepted yet: send a smaller one first"
            )


WORK: ContextVar[Work | None] = ContextVar("WORK", default=None)
"""That of the request that is worked on; None for all other work."""


def check_work() -> None:
    """Raise if the work for the current request is to end."""
    work = WORK.get()
    if work is not None:
        work.check()


Arguments = TypeVarTuple("Arguments")


class Lane:
    """A few threads and a bounded queue."""

    def __init__(self, name: str, threads: int, most_waiting: int = 256) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free_places = threading.Semaphore(threads + most_waiting)

    async def run(self, act: Callable[[*Arguments], T], *args: *Arguments) -> T:
        """Call *act* in a thread, on account of the current request.

        Raise Overloaded if too much waits already, unless the upstream has accepted the request, which is paid for.
        """
        work = WORK.get()
        if work is None:
            return await self.submit(act, *args)
        context = copy_context()  # so that `check_work` finds the work of the request in the thread
        try:
            return await self.submit(context.run, work.measure, partial(act, *args), is_paid_for=work.is_accepted)
        except asyncio.CancelledError:
            work.has_left = True
            raise

    def submit(self, act: Callable[[*Arguments], T], *args: *Arguments, is_paid_for: bool = False) -> asyncio.Future[T]:
        has_place = self._free_places.acquire(blocking=False)
        if not has_place and not is_paid_for:
            raise Overloaded("the proxy is busy with large requests: retry later", headers=(("retry-after", "1"),))
        future = self._threads.submit(act, *args)
        if has_place:
            # The act runs to its end even if its caller was cancelled, so its own end frees the place.
            future.add_done_callback(lambda _: self._free_places.release())
        return asyncio.wrap_future(future)

    def close(self) -> None:
        self._threads.shutdown(wait=False)


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


async def run_apart(size: int, act: Callable[[], T]) -> T:
    """Do small work at once, and large work in a lane."""
    if size <= UNMEASURED_BYTES:
        return act()
    if needs_thread(size):
        return await choose_lane(size).run(act)
    work = WORK.get()
    if work is None:
        return act()
    return work.measure(act)
