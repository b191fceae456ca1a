"""One worker process: it builds what serves requests, runs periodic jobs beside them, and drains on SIGTERM.

The worker owns everything that outlives a request. Its end gives each of them a bounded time, in the order in which
they need one another: requests, notes after answers, summary calls, connections, listeners.

It watches what operators change without a restart: the configuration file, team keys and switches. Each request looks
up keys and switches, so reading them is enough. A changed file becomes a new configuration as a whole; an invalid one
is reported, and the old configuration stays in force. A file is read once it has not changed for a moment, because
editors do not replace it in one step.
"""

import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from aiohttp import web

from proxy import __version__, assembly, events
from proxy.access.records import Records, RegistryUnreadable, synchronize
from proxy.access.registry import Registry
from proxy.admin.app import Admin
from proxy.admin.context import AdminContext
from proxy.config import Config, Fault, InvalidConfig, Listen, Loaded, find_warnings
from proxy.lifetime import BackgroundTasks
from proxy.models.windows import is_known_model
from proxy.path.compactor import Compactor
from proxy.path.gateway import Gateway
from proxy.server.http import HEADERS_MAX, App, HttpServer
from proxy.server.loop_faults import LoopFaults
from proxy.store.activity_log import ActivityLog
from proxy.store.contract import ReportedUnavailable, Store, StoreUnavailable
from proxy.telemetry import audit, hooks, log, metrics
from proxy.telemetry.activity import ActivityListener

if TYPE_CHECKING:
    from proxy.telemetry.otel import Exporter

_FILE_SECONDS = 0.25
_SUPERVISOR_SECONDS = 0.5
# Short, so that a switch is in force within a second, on other replicas too.
_RECORDS_SECONDS = 0.2
_SHARE_SECONDS = 0.25
_KEY_USES_SECONDS = 5.0
_RETRY_SECONDS = 1.0  # after a failure, which is reported each time

FileStamp = tuple[int, int] | None
_LAG_SECONDS = 0.25
_SNAPSHOT_SECONDS = 1.0
_JOB_RESTART_SECONDS = 1.0  # after a job has failed
# How long a thread that works on a large history may keep the event loop waiting; Python's default is 0.005.
_THREAD_SWITCH_SECONDS = 0.002
# Net allocations before the garbage collector looks at new objects, and how many such looks come before the older ones.
# By Python's default of 700, which a few requests at once exceed all the time, it took a tenth of a small request, and
# 50 ms at a stretch. Requests leave no cycles: what they used is freed when they end.
_COLLECTION_THRESHOLDS = (10_000, 20, 50)
# How often memory that is free goes back to the system. glibc keeps most of what large requests have used: a third of
# a worker's memory after many of 1 MB. It takes a millisecond or two, and each page is cleared again when it is used.
_TRIM_SECONDS = 15.0
# How long cancelled requests, and closing connections, get after the drain; aiohttp's default is a minute.
_CANCEL_SECONDS = 0.1
# Notes after answers that may be under way at once. More means that the store or an upstream does not keep up.
_NOTES_MAX = 1_000
# How long the notes after the last answers may take once the drain is over.
_NOTES_SECONDS = 5.0
_HEAD_LIMIT_BYTES = 64 * 1024
_READ_BUFFER_BYTES = 256 * 1024


@dataclass(slots=True)
class ConfigSource:
    """The source of the configuration: the file, if there was one at start, and how to read it.

    It remembers what it has read, because some files are valid at start only: see `_check_reload`.
    """

    load: Callable[[str | None], Loaded]
    """Reads all sources; a text stands for what the file holds."""
    file: Path | None
    stamp_read: FileStamp = None
    """The stamp that the file had before it was read last: with another one it has changed since."""
    _had_file_settings: bool = False
    _had_teams: bool = False

    def read_stamp(self) -> FileStamp:
        """The time and size of the file; None where there is none."""
        return _file_stamp(self.file)

    def read(self) -> Loaded:
        """Read the configuration. InvalidConfig: it cannot be used, or not by a process that has read another."""
        self.stamp_read = self.read_stamp()
        loaded = self.load(None)
        self._check_reload(loaded)
        self._had_file_settings |= loaded.has_file_settings
        self._had_teams |= bool(loaded.config.teams)
        return loaded

    def check(self, text: str) -> None:
        """Check a text that the file may get. InvalidConfig: the proxy would refuse it."""
        self._check_reload(self.load(text))

    def _check_reload(self, loaded: Loaded) -> None:
        """Refuse what a failed write leaves (a full disk, an editor that was killed), and what lifts access control.

        On any address: a reverse proxy may lead from the network to a loopback one.
        """
        if self._had_file_settings and not loaded.has_file_settings:
            why = "the file has become empty: restore its settings, or restart the proxy to use the defaults"
            raise InvalidConfig([Fault("", str(self.file), why)])
        if self._had_teams and not loaded.config.teams:
            why = "the last team is gone, and without teams no client needs a key: restore one, or restart the proxy"
            raise InvalidConfig([Fault("teams", str(self.file or "configuration"), why)])


class ConfigWatch:
    """A watch on what operators change. `apply` gets each valid configuration, and returns whether it was a change."""

    def __init__(
        self,
        source: ConfigSource,
        started: Config,
        records: Records,
        emit: events.Listener,
        apply: Callable[[Config], Awaitable[bool]],
    ) -> None:
        self.reload_requested = asyncio.Event()
        """Set by SIGHUP: the configuration is read at once."""
        self._source = source
        self._stamp_in_force = source.stamp_read
        self._started = started
        self._records = records
        self._emit = emit
        self._apply = apply
        self._last_was_refused = False
        self._waiting: tuple[str, ...] = ()
        """Settings that differ from those at start, and are read there only."""

    async def watch_file(self) -> None:
        """Apply the configuration file whenever it has changed."""
        before = self._source.read_stamp()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_FILE_SECONDS):
                    await self.reload_requested.wait()
            stamp = self._source.read_stamp()
            if self.reload_requested.is_set() or stamp == before != self._stamp_in_force:
                self._stamp_in_force = stamp
                self.reload_requested.clear()
                await self._read()
            before = stamp

    async def _read(self) -> None:
        try:
            config = (await asyncio.to_thread(self._source.read)).config
        except InvalidConfig as invalid:
            self._last_was_refused = True
            self._emit(events.ConfigReloaded(str(invalid)))
            return
        config, waiting = config.with_start_settings_of(self._started)
        if await self._apply(config) or waiting != self._waiting or self._last_was_refused:
            self._last_was_refused, self._waiting = False, waiting
            self._emit(events.ConfigReloaded(waiting=waiting))

    async def watch_records(self) -> None:
        """Read keys and switches whenever they have changed."""
        while True:
            await asyncio.sleep(_RECORDS_SECONDS)
            try:
                self._records.look()
            except (RegistryUnreadable, OSError) as fault:
                self._emit(events.StoreFailed(str(fault)))
                await asyncio.sleep(_RETRY_SECONDS)

    async def write_key_uses(self, store: Store) -> None:
        """Write down which keys were used here, for the pages of all workers and replicas."""
        while True:
            await asyncio.sleep(_KEY_USES_SECONDS)
            with suppress(StoreUnavailable):  # which is reported where it delays a request
                await self._records.uses.write(store, self._records.current.keys)

    async def sync_records(self, store: Store) -> None:
        """Exchange keys and switches with the other replicas. One worker of each machine does this."""
        while True:
            try:
                await synchronize(self._records, store)
            except (StoreUnavailable, RegistryUnreadable, OSError) as fault:
                if not isinstance(fault, ReportedUnavailable):
                    self._emit(events.StoreFailed(str(fault)))
                await asyncio.sleep(_RETRY_SECONDS)
            await asyncio.sleep(_SHARE_SECONDS)


def _file_stamp(file: Path | None) -> FileStamp:
    try:
        stat = file.stat() if file else None
    except OSError:
        return None
    return (stat.st_mtime_ns, stat.st_size) if stat else None


Job = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one of several workers below their supervisor."""

    snapshots: metrics.WorkerSnapshots
    supervisor_pid: int

    @property
    def number(self) -> int:
        return self.snapshots.slot


@dataclass(frozen=True, slots=True)
class LastValid:
    """The last valid content of the files that operators change, for a worker that starts when one cannot be read."""

    config: Config
    registry: Registry


class Worker:
    """One worker: the owner of all that outlives a request."""

    def __init__(self, source: ConfigSource, config: Config, slot: Slot | None, last_valid: LastValid) -> None:
        """`config` is the one that all workers started with: what is opened once is the same in all of them.

        `last_valid` is what has become of it since, for a worker that is started later.
        """
        self._source = source
        self._slot = slot
        self._loop = asyncio.get_running_loop()
        self._metrics = metrics.Metrics(self._is_listed_team, self._is_known_model)
        warn = self._reporter(events.StoreFailed)
        self._activity_log = ActivityLog(Path(config.state.dir), warn=warn)
        self._log = log.Log(config.log.level, config.log.format, has_colours=config.log.color)
        self._hooks = hooks.Hooks(config.hooks, self._reporter(events.HookFailed))
        self._exporter = assembly.open_exporter(config, self._base_urls, self._reporter(events.ExportFailed))
        self._audit = audit.AuditListener(audit.AuditLog(Path(config.state.dir), warn))
        self._emit = events.Dispatcher(dict(self._listeners(config)), self._metrics.listener_errors.add)
        self._snapshots = None if slot is None else slot.snapshots
        if slot is not None and (before := slot.snapshots.read_own()):
            self._metrics.restore(before)
        report_back = self._reporter(events.StoreRecovered)
        self._store = assembly.open_store(config, warn, report_back)
        number = None if slot is None else slot.number
        keeper = assembly.build_keeper(config, number, warn, report_back)
        self._compactor = Compactor(self._store, keeper, self._emit, assembly.build_redaction(config))
        self._records = assembly.open_records(config, last_valid.registry)
        try:
            self._records.look()
        except (RegistryUnreadable, OSError) as fault:  # the other workers go on with what they have read, too
            warn(str(fault))
        self._shares = bool(config.state.url) and not number
        self._notes = BackgroundTasks(_NOTES_MAX)
        gateway = Gateway(last_valid.config, self._compactor, self._records, self._emit, self._notes)
        self._app = App(
            gateway,
            self._emit,
            self._metrics,
            self._snapshots,
            Admin(self._admin_context(config)),
            can_keep_originals=lambda: keeper.is_writable,
            can_write_state=partial(assembly.can_write_state, Path(config.state.dir), self._store),
        )
        self._metrics.track(self._metrics.in_flight, lambda: self._app.in_flight)
        self._metrics.track(self._metrics.log_lines_dropped, lambda: self._log.dropped_lines)
        self._metrics.track(self._metrics.activity_dropped, lambda: self._activity_log.dropped_records)
        if (exporter := self._exporter) is not None:
            self._metrics.track(self._metrics.telemetry_dropped, lambda: exporter.dropped)
        self._stop_requested = asyncio.Event()
        self._stopped_by = signal.SIGTERM
        self._jobs: set[asyncio.Task[None]] = set()
        self._watch = ConfigWatch(source, config, self._records, self._emit, self._apply_config)

    def _listeners(self, config: Config) -> Iterator[tuple[str, events.Listener]]:
        yield "metrics", self._metrics
        yield "log", self._log
        yield "hooks", self._hooks
        yield "audit", self._audit
        if self._exporter is not None:
            yield "otel", self._exporter
        if config.admin.enabled:
            yield "activity", ActivityListener(self._activity_log, self._is_listed_team)

    def _base_urls(self) -> dict[str, str]:
        return {upstream.name: upstream.base_url for upstream in self._app.gateway.config.upstreams}

    def _is_listed_team(self, name: str) -> bool:
        return name in self._app.gateway.config.teams

    def _is_known_model(self, name: str) -> bool:
        """True for models that the configuration names, and for those of the bundled table."""
        upstreams = self._app.gateway.config.upstreams
        return any(name in upstream.models for upstream in upstreams) or is_known_model(name)

    def _admin_context(self, config: Config) -> AdminContext:
        """The parts of this worker that the admin pages need."""
        return AdminContext(
            config=lambda: self._app.gateway.config,
            read=self._source.read,
            check=self._source.check,
            file=self._source.file,
            records=self._records,
            store=self._store,
            archive=assembly.open_archive(config),
            activity_log=self._activity_log,
            audit=self._audit,
            emit=self._emit,
        )

    async def run(self, sock: socket.socket) -> signal.Signals:
        """Serve on this socket until SIGTERM or SIGINT, then drain. Returns which of the two it was."""
        try:
            await self._serve(sock)
        finally:
            # Each has a bounded wait; the log is last, because the others may still have something to report.
            exporter = () if self._exporter is None else (self._exporter,)
            for listener in (self._hooks, self._audit, *exporter, self._activity_log, self._log):
                await asyncio.to_thread(listener.close)
        return self._stopped_by

    async def _serve(self, sock: socket.socket) -> None:
        sys.setswitchinterval(_THREAD_SWITCH_SECONDS)
        gc.set_threshold(*_COLLECTION_THRESHOLDS)
        gc.freeze()  # what is there now stays until the end: modules, configuration
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(LoopFaults(self._emit))
        threading.excepthook = self._report_thread_error
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._request_stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._watch.reload_requested.set)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # held since the start of the program
        runner = web.ServerRunner(self._http_server(), shutdown_timeout=_CANCEL_SECONDS)
        await runner.setup()
        listen = self._app.gateway.config.listen
        context = _tls_context(listen)
        await web.SockSite(runner, sock, ssl_context=context, backlog=1024).start()
        if context is not None:
            self._start_job(partial(self._watch_certificate, listen, context))
        self._emit(_listening(self._app.gateway.config, sock))
        self._warn_of_settings(self._app.gateway.config)
        for job in self._periodic_jobs():
            self._start_job(job)
        await self._stop_requested.wait()
        await self._drain(runner)
        for task in tuple(self._jobs):
            task.cancel()
        # In this order: notes after the last answers may call an upstream, count tokens and begin a summary call.
        await self._notes.close(_NOTES_SECONDS)
        await self._compactor.close()
        await self._close_clients()
        self._emit(events.Lifecycle("stopped", (("unfinished", self._app.in_flight),)))

    def _request_stop(self, number: signal.Signals) -> None:
        self._stopped_by = number
        self._stop_requested.set()

    def _http_server(self) -> HttpServer:
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

    async def _drain(self, runner: web.ServerRunner) -> None:
        """Wait for open requests, then cancel the rest. Until then connections are accepted: balancers notice late."""
        self._app.draining = True
        seconds = self._app.gateway.config.listen.drain_seconds
        self._emit(events.Lifecycle("draining", (("in_flight", self._app.in_flight), ("seconds", seconds))))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._app.wait_idle()
        self._app.cut_requests()
        await runner.cleanup()

    async def _close_clients(self) -> None:
        gateway = self._app.gateway
        gateway.retire()
        with contextlib.suppress(TimeoutError):  # a lease that is not returned must not keep the process alive
            async with asyncio.timeout(_CANCEL_SECONDS):
                await asyncio.gather(*(client.wait_closed() for client in gateway.clients.values()))

    def _periodic_jobs(self) -> Iterator[Job]:
        """The jobs that run beside requests until the drain is over."""
        yield from (self._watch.watch_file, self._watch.watch_records, self._measure_lag, self._return_memory)
        yield partial(self._watch.write_key_uses, self._store)
        if self._shares:
            yield partial(self._watch.sync_records, self._store)
        if self._snapshots is not None:
            yield partial(self._write_snapshots, self._snapshots)
        if self._slot is not None:
            yield partial(self._watch_supervisor, self._slot.supervisor_pid)
        if self._exporter is not None and (seconds := self._app.gateway.config.otel.metrics_seconds):
            yield partial(self._export_metrics, self._exporter, seconds)

    def _start_job(self, job: Job) -> None:
        task = self._loop.create_task(job())
        self._jobs.add(task)
        task.add_done_callback(partial(self._restart_if_failed, job))

    def _restart_if_failed(self, job: Job, task: asyncio.Task[None]) -> None:
        """Report a job that failed, and start it again after a rest."""
        self._jobs.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._emit(events.InternalFault("none", *events.locate_fault(fault)))
            self._loop.call_later(_JOB_RESTART_SECONDS, self._start_job, job)

    # --- periodic jobs -----------------------------------------------------------------------------------------------

    async def _apply_config(self, config: Config) -> bool:
        """Put a configuration in force for the requests from now on. Returns whether it differs from the one before.

        The old gateway keeps its connections until the last request and note that began with it.
        """
        before = self._app.gateway
        if config == before.config:
            return False
        self._app.gateway = Gateway(
            config, self._compactor, self._records, self._emit, self._notes, kept=before.clients
        )
        before.retire()
        self._warn_of_settings(config)
        return True

    def _warn_of_settings(self, config: Config) -> None:
        """Report what `check` warns of; of several workers one does."""
        if self._slot is None or self._slot.number == 0:
            for setting, why in find_warnings(config, is_known_model):
                self._emit(events.ConfigDoubted(setting, why))

    async def _watch_certificate(self, listen: Listen, context: ssl.SSLContext) -> None:
        """Serve a renewed certificate to new connections: ACME clients and cert-manager replace the files."""
        in_force = before = _certificate_stamps(listen)
        while True:
            await asyncio.sleep(_FILE_SECONDS)
            stamps = _certificate_stamps(listen)
            if stamps == before != in_force:
                in_force = stamps
                self._emit(events.CertificateReloaded(_load_certificate(listen, context)))
            before = stamps

    async def _watch_supervisor(self, pid: int) -> None:
        """Stop where the supervisor was killed: its next one could not bind the port, and nothing restarts workers."""
        while os.getppid() == pid:  # noqa: ASYNC110 (another process ends)
            await asyncio.sleep(_SUPERVISOR_SECONDS)
        self._emit(events.Lifecycle("supervisor-lost", (("effect", "this worker finishes its requests and ends"),)))
        self._request_stop(signal.SIGTERM)

    async def _measure_lag(self) -> None:
        while True:
            due = perf_counter() + _LAG_SECONDS
            await asyncio.sleep(_LAG_SECONDS)
            self._emit(events.LoopLagged(max(0.0, perf_counter() - due)))

    async def _return_memory(self) -> None:
        """Give free memory back to the system, where the C library can (glibc)."""
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        while trim is not None:
            await asyncio.sleep(_TRIM_SECONDS)
            await asyncio.to_thread(trim, 0)

    async def _write_snapshots(self, snapshots: metrics.WorkerSnapshots) -> None:
        while True:
            snapshots.write(self._metrics.to_snapshot())
            await asyncio.sleep(_SNAPSHOT_SECONDS)

    async def _export_metrics(self, exporter: "Exporter", seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            exporter.put_metrics(self._metrics.read_own_counts())

    def _reporter(self, kind: Callable[[str], events.Event]) -> Callable[[str], None]:
        """A function that any thread may call to report such an event, with a sentence for operators."""
        return lambda text: self._emit_from_thread(kind(text))

    def _report_thread_error(self, thread: threading.ExceptHookArgs) -> None:
        """Report a thread's uncaught exception by kind and place only: its values may hold credentials."""
        if thread.exc_value is not None:
            self._emit_from_thread(events.InternalFault("none", *events.locate_fault(thread.exc_value)))

    def _emit_from_thread(self, event: events.Event) -> None:
        # A thread that outlives the loop would get RuntimeError, and its own end would be reported by the same way.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._emit, event)


def _tls_context(listen: Listen) -> ssl.SSLContext | None:
    if listen.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(listen.tls_cert, listen.tls_key)
    if listen.client_ca is not None:
        context.load_verify_locations(listen.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load_certificate(listen: Listen, context: ssl.SSLContext) -> str | None:
    """Load the certificate into the context of the listener; why not, where it cannot be used."""
    try:
        _tls_context(listen)  # first elsewhere: a certificate without its key would break the context in use
    except OSError as fault:
        return f"{listen.tls_cert}, {listen.tls_key}: {fault.strerror or fault}"
    context.load_cert_chain(str(listen.tls_cert), listen.tls_key)
    return None


def _certificate_stamps(listen: Listen) -> tuple[FileStamp, ...]:
    return tuple(_file_stamp(Path(name)) for name in (listen.tls_cert, listen.tls_key) if name is not None)


def _listening(config: Config, sock: socket.socket) -> events.Lifecycle:
    upstreams = ", ".join(upstream.base_url for upstream in config.upstreams)
    return events.Lifecycle(
        "listening", (("version", __version__), ("url", make_url(config, sock)), ("upstream", upstreams))
    )


def make_url(config: Config, sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    scheme = "https" if config.listen.tls_cert else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
