"""Periodic jobs of a worker, which run beside its requests until the drain is over."""

import asyncio
import ctypes
import os
from collections.abc import Callable, Coroutine
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from proxy import events
from proxy.telemetry.metrics import Metrics, WorkerSnapshots

if TYPE_CHECKING:
    from proxy.telemetry.otel import Exporter

Job = Callable[[], Coroutine[Any, Any, None]]
_RESTART_SECONDS = 1.0
_LAG_SECONDS = 0.25
_SNAPSHOT_SECONDS = 1.0
_SUPERVISOR_SECONDS = 0.5
_TRIM_SECONDS = 15.0
"""How often free memory goes back to the system. It takes 1-2 ms, and each page is cleared again when it is used."""


class Jobs:
    """The jobs that run now. If one fails, that is reported, and it is started again after a rest."""

    def __init__(self, emit: events.Listener) -> None:
        self._emit = emit
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, job: Job) -> None:
        task = asyncio.get_running_loop().create_task(job())
        self._tasks.add(task)
        task.add_done_callback(partial(self._restart_if_failed, job))

    def cancel(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()

    def _restart_if_failed(self, job: Job, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        fault = task.exception()
        if fault is not None:
            self._emit(events.InternalFault("none", *events.locate_fault(fault)))
            asyncio.get_running_loop().call_later(_RESTART_SECONDS, self.start, job)


async def measure_lag(emit: events.Listener) -> None:
    """Report how late the event loop is."""
    while True:
        due = perf_counter() + _LAG_SECONDS
        await asyncio.sleep(_LAG_SECONDS)
        emit(events.LoopLagged(max(0.0, perf_counter() - due)))


async def return_memory() -> None:
    """Give free memory back to the system, if the C library can.

    glibc keeps most of the memory of large requests: a third of a worker after many of 1 MB.
    https://man7.org/linux/man-pages/man3/malloc_trim.3.html
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(_TRIM_SECONDS)
        await asyncio.to_thread(trim, 0)


async def write_snapshots(metrics: Metrics, snapshots: WorkerSnapshots) -> None:
    """Share this worker's counters, for the page of metrics of any worker."""
    while True:
        snapshots.write(metrics.to_snapshot())
        await asyncio.sleep(_SNAPSHOT_SECONDS)


async def export_metrics(metrics: Metrics, exporter: "Exporter", seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        exporter.put_metrics(metrics.read_own_counts())


async def watch_supervisor(pid: int, emit: events.Listener, stop: Callable[[], None]) -> None:
    """Stop if the supervisor was killed: its successor could not bind the port, and nothing restarts workers."""
    while os.getppid() == pid:  # noqa: ASYNC110 (another process ends)
        await asyncio.sleep(_SUPERVISOR_SECONDS)
    emit(events.Lifecycle("supervisor-lost", (("effect", "this worker finishes its requests and ends"),)))
    stop()
