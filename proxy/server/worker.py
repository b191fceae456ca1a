"""One worker process: it serves on a socket, runs periodic jobs beside that, and drains on SIGTERM.

The worker owns everything that outlives a request, and ends it in the order in which one needs the other, each with a
bounded time: requests, notes after answers, summary calls, connections, listeners.
"""

import asyncio
import gc
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from proxy import __version__, events
from proxy.access.records import Records
from proxy.config import Config, find_warnings
from proxy.lifetime import BackgroundTasks
from proxy.models.windows import is_known_model
from proxy.path.compactor import Compactor
from proxy.path.gateway import Gateway
from proxy.server import jobs
from proxy.server.application import App
from proxy.server.certificates import make_tls_context, watch_certificate
from proxy.server.config_watch import ConfigSource, ConfigWatch
from proxy.server.connection import HEADERS_MAX, HttpServer
from proxy.server.jobs import Jobs
from proxy.server.listeners import Listeners
from proxy.server.loop_faults import LoopFaults
from proxy.store.contract import Store
from proxy.telemetry.metrics import WorkerSnapshots

_THREAD_SWITCH_SECONDS = 0.002
"""How long a thread that works on a large history may keep the event loop waiting; Python's default is 0.005."""
_COLLECTION_THRESHOLDS = (10_000, 20, 50)
"""For `gc.set_threshold`. By its default of 700, which a few requests at once exceed all the time, the collector took
10 % of a small request, and 50 ms at a stretch. Requests leave no cycles: their objects are freed when they end."""
_CANCEL_SECONDS = 0.1
"""How long cancelled requests, and closing connections, get after the drain; aiohttp's default is a minute."""
_NOTES_SECONDS = 5.0
"""How long the notes after the last answers may take once the drain is over."""
_HEAD_LIMIT_BYTES = 64 * 1024
_READ_BUFFER_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one of several workers under their supervisor."""

    snapshots: WorkerSnapshots
    supervisor_pid: int

    @property
    def number(self) -> int:
        return self.snapshots.slot


class Worker:
    """Runs the parts that `building.build_worker` has built."""

    def __init__(
        self,
        source: ConfigSource,
        started: Config,
        slot: Slot | None,
        *,
        app: App,
        listeners: Listeners,
        store: Store,
        records: Records,
        compactor: Compactor,
        notes: BackgroundTasks,
    ) -> None:
        self._slot = slot
        self._app = app
        self._listeners = listeners
        self._emit = listeners.emit
        self._store = store
        self._records = records
        self._compactor = compactor
        self._notes = notes
        self._shares_state = bool(started.state.url)
        self._stop_requested = asyncio.Event()
        self._stopped_by = signal.SIGTERM
        self._jobs = Jobs(self._emit)
        self._watch = ConfigWatch(source, started, records, self._emit, self._apply_config)

    async def run(self, sock: socket.socket) -> signal.Signals:
        """Serve on this socket until SIGTERM or SIGINT, then drain. Return which of the two it was."""
        try:
            await self._serve(sock)
        finally:
            await self._listeners.close()
        return self._stopped_by

    async def _serve(self, sock: socket.socket) -> None:
        self._set_up_process()
        runner = web.ServerRunner(self._make_server(), shutdown_timeout=_CANCEL_SECONDS)
        await runner.setup()
        config = self._app.gateway.config
        tls_context = make_tls_context(config.listen)
        await web.SockSite(runner, sock, ssl_context=tls_context, backlog=1024).start()
        if tls_context is not None:
            self._jobs.start(partial(watch_certificate, config.listen, tls_context, self._emit))
        self._emit(_make_listening_event(config, sock))
        self._warn_of_settings(config)
        self._start_jobs()
        await self._stop_requested.wait()
        await self._drain(runner)
        self._jobs.cancel()
        # In this order: notes after the last answers may call an upstream, count tokens and begin a summary call.
        await self._notes.close(_NOTES_SECONDS)
        await self._compactor.close()
        await self._close_clients()
        self._emit(events.Lifecycle("stopped", (("unfinished", self._app.in_flight),)))

    def _set_up_process(self) -> None:
        sys.setswitchinterval(_THREAD_SWITCH_SECONDS)
        gc.set_threshold(*_COLLECTION_THRESHOLDS)
        gc.freeze()  # modules and configuration stay until the end
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(LoopFaults(self._emit))
        threading.excepthook = self._listeners.report_thread_error
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._request_stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._watch.reload_requested.set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # blocked since the start of the program

    def _request_stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._stopped_by = number
        self._stop_requested.set()

    def _make_server(self) -> HttpServer:
        return HttpServer(
            self._app,
            self._emit,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=75,
            max_line_size=_HEAD_LIMIT_BYTES,
            max_field_size=_HEAD_LIMIT_BYTES,
            max_headers=HEADERS_MAX,
            read_bufsize=_READ_BUFFER_BYTES,
        )

    def _start_jobs(self) -> None:
        start = self._jobs.start
        metrics = self._listeners.metrics
        start(self._watch.watch_file)
        start(self._watch.watch_records)
        start(partial(self._watch.write_key_uses, self._store))
        start(partial(jobs.measure_lag, self._emit))
        start(jobs.return_memory)
        is_first = self._slot is None or self._slot.number == 0
        if self._shares_state and is_first:
            start(partial(self._watch.sync_records, self._store))
        if self._slot is not None:
            start(partial(jobs.write_snapshots, metrics, self._slot.snapshots))
            start(partial(jobs.watch_supervisor, self._slot.supervisor_pid, self._emit, self._request_stop))
        exporter = self._listeners.exporter
        export_seconds = self._app.gateway.config.otel.metrics_seconds
        if exporter is not None and export_seconds:
            start(partial(jobs.export_metrics, metrics, exporter, export_seconds))

    async def _drain(self, runner: web.ServerRunner) -> None:
        """Wait for open requests, then cancel the rest.

        Connections are accepted until then: load balancers notice late.
        """
        self._app.draining = True
        seconds = self._app.gateway.config.listen.drain_seconds
        self._emit(events.Lifecycle("draining", (("in_flight", self._app.in_flight), ("seconds", seconds))))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._app.wait_idle()
        self._app.cut_requests()
        await runner.cleanup()

    async def _close_clients(self) -> None:
        gateway = self._app.gateway
        gateway.retire()
        with suppress(TimeoutError):  # a lease that is not returned must not keep the process alive
            async with asyncio.timeout(_CANCEL_SECONDS):
                await asyncio.gather(*(client.wait_closed() for client in gateway.clients.values()))

    async def _apply_config(self, config: Config) -> bool:
        """Put a configuration in force for new requests. Return whether it differs from the one before.

        The old gateway keeps its connections until the last request and note that began with it.
        """
        replaced = self._app.gateway
        if config == replaced.config:
            return False
        self._app.gateway = Gateway(
            config, self._compactor, self._records, self._emit, self._notes, kept=replaced.clients
        )
        replaced.retire()
        self._warn_of_settings(config)
        return True

    def _warn_of_settings(self, config: Config) -> None:
        """Report the warnings of `check`, in one of several workers."""
        if self._slot is None or self._slot.number == 0:
            for setting, why in find_warnings(config, is_known_model):
                self._emit(events.ConfigDoubted(setting, why))


def _make_listening_event(config: Config, sock: socket.socket) -> events.Lifecycle:
    upstreams = ", ".join(upstream.base_url for upstream in config.upstreams)
    return events.Lifecycle(
        "listening", (("version", __version__), ("url", make_url(config, sock)), ("upstream", upstreams))
    )


def make_url(config: Config, sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    scheme = "https" if config.listen.tls_cert else "http"
    if ":" in host:
        host = f"[{host}]"
    return f"{scheme}://{host}:{port}"
