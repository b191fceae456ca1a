"""One worker process: it is built, serves on a socket, runs periodic jobs, and drains on SIGTERM.

It owns everything that outlives a request. Parts end in the order in which one needs the other, each in a bounded time.
"""

import asyncio
import ctypes
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from aiohttp import web
from msgspec import Struct

from proxy import __version__, assembly, events
from proxy.access.registry import Records, Registry, RegistryUnreadable, synchronize
from proxy.admin.dispatch import Admin
from proxy.admin.routes import AdminContext
from proxy.config.loading import Changes, find_changes
from proxy.config.settings import Config
from proxy.config.warnings import find_warnings
from proxy.foundation.lifetime import CONTROL, BackgroundTasks
from proxy.models.windows import is_known_model
from proxy.serve.compactor import Compactor
from proxy.serve.gateway import Gateway
from proxy.serve.services import Services
from proxy.server import config_watch
from proxy.server.connection import HEADERS_MAX, App, HttpServer
from proxy.server.erasure import obey_deletions
from proxy.server.listeners import Listeners, LoopFaults
from proxy.store.contract import StoreUnavailable
from proxy.store.deletions import Eraser
from proxy.store.fleet import Fleet
from proxy.telemetry.metrics import WorkerSnapshots

Job = Callable[[], Coroutine[Any, Any, None]]


class Jobs(Struct, eq=False):
    """Runs jobs in the background. One that fails is reported, and started again after a second."""

    emit: events.Listener
    _tasks: set[asyncio.Task[None]] = set()

    def repeat(self, pause_seconds: float, act: Callable[[], object]) -> None:
        """Call *act*, and await what it returns if it is async, again and again. It may leave faults to this."""
        self.start(partial(self._repeat, pause_seconds, act))

    def start(self, job: Job) -> None:
        task = asyncio.get_running_loop().create_task(job())
        self._tasks.add(task)
        task.add_done_callback(partial(self._restart_if_failed, job))

    def cancel(self) -> None:
        for task in tuple(self._tasks):  # a task that ends leaves the set
            task.cancel()

    async def _repeat(self, pause_seconds: float, act: Callable[[], object]) -> None:
        while True:
            try:
                result = act()
                if isinstance(result, Awaitable):
                    await result
            except (StoreUnavailable, RegistryUnreadable, OSError) as fault:
                if not isinstance(fault, StoreUnavailable):  # an outage is reported when it delays a request
                    self.emit(events.StoreFailed(str(fault)))
                await asyncio.sleep(1.0)
            await asyncio.sleep(pause_seconds)

    def _restart_if_failed(self, job: Job, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        fault = task.exception()
        if fault is not None:
            self.emit(events.InternalFault("none", *events.locate_fault(fault)))
            asyncio.get_running_loop().call_later(1.0, self.start, job)


async def measure_lag(emit: events.Listener) -> None:
    due = perf_counter() + 0.25
    await asyncio.sleep(0.25)
    emit(events.LoopLagged(max(0.0, perf_counter() - due)))


async def return_memory() -> None:
    """Return freed memory to the system: glibc keeps a third of a worker after many requests of 1 MB."""
    # https://man7.org/linux/man-pages/man3/malloc_trim.3.html
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # None if the C library is not glibc
    if trim is not None:
        await CONTROL.run(trim, 0)


async def watch_supervisor(pid: int, emit: events.Listener, stop: Callable[[], None]) -> None:
    """End this worker if its supervisor was killed: a successor could not bind the port."""
    while os.getppid() == pid:  # noqa: ASYNC110 (another process ends)
        await asyncio.sleep(0.5)
    emit(events.Lifecycle("supervisor-lost", (("effect", "this worker finishes its requests and ends"),)))
    stop()


class Worker:
    def __init__(
        self,
        source: config_watch.ConfigSource,
        start_config: Config,
        config: Config,
        registry: Registry,
        *,
        snapshots: WorkerSnapshots | None = None,
        supervisor_pid: int = 0,
    ) -> None:
        """Build a worker within the event loop that it is to run in.

        All workers have the files and stores of `start_config`. `config` and `registry` are the newest valid ones,
        which differ if the worker is started later. `snapshots` is None for a single worker.
        """
        self._supervisor_pid = supervisor_pid
        self._snapshots = snapshots
        slot = None if snapshots is None else snapshots.slot
        self._listeners = listeners = Listeners(start_config, self._get_config_in_force, snapshots)
        self._emit = listeners.emit
        report_recovery = listeners.make_reporter(events.StoreRecovered)
        self._store = assembly.open_store(start_config, listeners.warn, report_recovery)
        keeper = assembly.build_keeper(start_config, slot, listeners.warn, report_recovery)
        memory = assembly.open_memory(start_config, self._store)
        redaction = assembly.build_redaction(start_config)
        self._services = Services(self._store, keeper, self._emit, redaction, memory)
        self._compactor = Compactor(self._services)
        self._replicas_store = self._store if start_config.state.url else None
        self._records = Records(Path(start_config.state.dir), registry)
        try:
            self._records.look()
        except (RegistryUnreadable, OSError) as fault:  # the other workers keep the one that they have read, too
            listeners.warn(str(fault))
        self._notes = BackgroundTasks(1_000)  # more means that the store or an upstream does not keep up
        admin_context = AdminContext(
            config=self._get_config_in_force,
            read=source.read,
            file=source.file,
            records=self._records,
            store=self._store,
            replicas_store=self._replicas_store,
            archive=assembly.open_archive(start_config),
            activity_log=listeners.activity_log,
            audit=listeners.audit,
            emit=self._emit,
        )
        self._app = App(
            Gateway(config, self._compactor, self._records, self._emit, self._notes),
            self._emit,
            listeners.metrics,
            snapshots,
            Admin(admin_context),
            can_keep_originals=lambda: keeper.is_writable,
            can_write_state=partial(assembly.can_write_state, Path(start_config.state.dir), self._store),
        )
        listeners.metrics.track(listeners.metrics.in_flight, lambda: self._app.in_flight)
        self._fleet = None
        if self._replicas_store is not None and start_config.admin.enabled:
            name = f"{socket.gethostname()}:{start_config.listen.port}"
            self._fleet = Fleet(listeners.activity_log, self._replicas_store, name)
        self._is_first = slot in (None, 0)
        self._start_config = start_config
        self._eraser = None
        if self._is_first:
            self._eraser = Eraser((self._store, memory), admin_context.archive, listeners.activity_log)
        self._source = source
        self._stop_requested = asyncio.Event()
        self._stopped_by = signal.SIGTERM
        self._jobs = Jobs(self._emit)
        self._reload_requested = asyncio.Event()

    def _get_config_in_force(self) -> Config:
        return self._app.gateway.config

    async def run(self, sock: socket.socket) -> signal.Signals:
        """Serve until SIGTERM or SIGINT, then drain. Return which of the two it was."""
        try:
            await self._serve(sock)
        finally:
            await self._listeners.close()
        return self._stopped_by

    async def _serve(self, sock: socket.socket) -> None:
        self._set_up_process()
        server = HttpServer(
            self._app,
            self._emit,
            handler_cancellation=True,  # else a client that leaves is noticed at the next write, which may never come
            access_log=None,
            auto_decompress=False,  # `ClientRequest.read_body` does it, under a limit
            keepalive_timeout=75,
            max_line_size=64 * 1024,
            max_field_size=64 * 1024,
            max_headers=HEADERS_MAX,
            read_bufsize=256 * 1024,
        )
        cancel_seconds = 0.1
        runner = web.ServerRunner(server, shutdown_timeout=cancel_seconds)
        await runner.setup()
        config = self._app.gateway.config
        tls_context = config_watch.make_tls_context(config.listen)
        await web.SockSite(runner, sock, ssl_context=tls_context, backlog=1024).start()
        if tls_context is not None:
            self._jobs.start(partial(config_watch.watch_certificate, config.listen, tls_context, self._emit))
        upstreams = ", ".join(upstream.base_url for upstream in config.upstreams)
        url = make_url(config, sock)
        pages = f"{url}/admin/" if config.admin.enabled else "off"
        details = (("version", __version__), ("url", url), ("pages", pages), ("upstream", upstreams))
        self._emit(events.Lifecycle("listening", details))
        self._warn_of_settings(config)
        self._start_jobs()
        await self._stop_requested.wait()
        await self._drain(runner)
        self._jobs.cancel()
        await self._notes.close(5.0)
        if self._fleet is not None:
            with suppress(StoreUnavailable):  # published at the next start
                await self._fleet.publish()
        await self._services.close()
        self._app.gateway.retire()
        clients = self._app.gateway.clients.values()
        with suppress(TimeoutError):  # a lease that is not returned must not keep the process alive
            async with asyncio.timeout(cancel_seconds):
                await asyncio.gather(*(client.wait_closed() for client in clients))
        self._emit(events.Lifecycle("stopped", (("unfinished", self._app.in_flight),)))

    def _set_up_process(self) -> None:
        # Time for which a thread with a large history may keep the event loop waiting; Python's default is 0.005.
        sys.setswitchinterval(0.002)
        # By its default of 700, the collector took 10 % of a small request, which leaves no cycle.
        gc.set_threshold(10_000, 20, 50)
        gc.freeze()  # modules and configuration stay: https://docs.python.org/3/library/gc.html#gc.freeze
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(LoopFaults(self._emit))
        threading.excepthook = self._listeners.report_thread_error
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._request_stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload_requested.set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # blocked since the start of the program

    def _request_stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._stopped_by = number
        self._stop_requested.set()

    def _start_jobs(self) -> None:
        start, repeat, records = self._jobs.start, self._jobs.repeat, self._records
        apply, requested = self._apply_config, self._reload_requested
        start(partial(config_watch.watch_file, self._source, self._start_config, apply, requested, self._emit))
        folder = Path(self._start_config.state.dir)
        start(partial(obey_deletions, records, self._services, self._eraser, folder, self._emit))
        repeat(0.2, records.look)
        repeat(5.0, lambda: records.uses.write(self._store, records.current.keys))
        repeat(0.0, partial(measure_lag, self._emit))
        repeat(15.0, return_memory)
        if self._is_first:
            repeat(0.2, partial(config_watch.report_switches, records, {}, self._emit))
        if self._replicas_store is not None and self._is_first:
            repeat(0.25, partial(synchronize, records, self._replicas_store))
        if self._fleet is not None and self._is_first:
            repeat(5.0, self._fleet.exchange)
        if self._snapshots is not None:
            repeat(1.0, partial(self._write_snapshot, self._snapshots))
            start(partial(watch_supervisor, self._supervisor_pid, self._emit, self._request_stop))

    def _write_snapshot(self, snapshots: WorkerSnapshots) -> None:
        snapshots.write(self._listeners.metrics.to_snapshot())

    async def _drain(self, runner: web.ServerRunner) -> None:
        """Wait for requests to end. Connections are accepted until then: load balancers notice late."""
        self._app.draining = True
        seconds = self._app.gateway.config.listen.drain_seconds
        self._emit(events.Lifecycle("draining", (("in_flight", self._app.in_flight), ("seconds", seconds))))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._app.wait_idle()
        self._app.cut_requests()
        await runner.cleanup()

    async def _apply_config(self, config: Config) -> Changes | None:
        """Use a configuration and return how it differs. Requests and notes finish on the gateway they began with."""
        replaced_gateway = self._app.gateway
        if config == replaced_gateway.config:
            return None
        self._app.gateway = Gateway(
            config, self._compactor, self._records, self._emit, self._notes, kept_clients=replaced_gateway.clients
        )
        replaced_gateway.retire()
        self._warn_of_settings(config)
        changes = find_changes(replaced_gateway.config, config)
        if self._is_first:
            details = ("changed", ", ".join(changes.settings)), ("policies", ", ".join(changes.policies))
            file = str(self._source.file or "")
            self._emit(events.AdminActed("whoever wrote the file", "", "reload", file, "done", details))
        return changes

    def _warn_of_settings(self, config: Config) -> None:
        if self._is_first:
            for setting, why in (*self._source.warnings, *find_warnings(config, is_known_model)):
                self._emit(events.ConfigDoubted(setting, why))


def make_url(config: Config, sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    scheme = "https" if config.listen.tls_cert else "http"
    if ":" in host:
        host = f"[{host}]"
    return f"{scheme}://{host}:{port}"
