"""One worker process from start to drain: open the door, watch the configuration, leave politely."""

import asyncio
import contextlib
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from aiohttp import web

from proxy import __version__, events
from proxy.compaction.compactor import Compactor
from proxy.compaction.keeping import Keeper
from proxy.config import Config, InvalidConfig, Loaded
from proxy.gateway import Gateway
from proxy.server.app import App
from proxy.server.protocol import Door
from proxy.store.memory import MemoryStore
from proxy.store.originals import Keeping, Originals, Retention
from proxy.store.promises import MEBIBYTE, Bounds, Store
from proxy.store.sqlite import SqliteStore
from proxy.telemetry import hooks, log, metrics
from proxy.wire.redaction import Redaction, redaction

_LOOK_SECONDS = 0.5
_LAG_SECONDS = 0.1
_BOARD_SECONDS = 1.0
# A thread that works on a large history lets the loop have its turn after so long; by default it is 0.005.
_SWITCH_SECONDS = 0.002
# For those who are still inside when the drain is over; the library would give them a minute more.
_LAST_SECONDS = 0.1
_HEAD_LIMIT = 64 * 1024
_READ_BUFFER = 256 * 1024


@dataclass(frozen=True, slots=True)
class Source:
    """How to read the configuration, now and again later."""

    read: Callable[[], Loaded]
    file: Path | None


class Worker:
    """Owns the event loop's life: everything that runs beside requests."""

    def __init__(self, source: Source, config: Config, slot: int | None) -> None:
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._metrics = metrics.Metrics()
        told = log.listener(config.log.level, config.log.format), hooks.Hooks(config.hooks, self._warn)
        self._emit = events.to_all(self._metrics, *told)
        self._board = metrics.Board(board_folder(config), slot) if slot is not None else None
        if self._board is not None:
            self._board.take_up(self._metrics)
        keeper = _keeper(config, slot, self._warn)
        self._compactor = Compactor(_store(config, self._warn), keeper, self._emit, _redaction(config))
        self._app = App(Gateway(config, self._compactor, self._emit), self._emit, self._metrics, self._board)
        self._leaving = asyncio.Event()
        self._reread = asyncio.Event()

    async def run(self, sock: socket.socket) -> None:
        sys.setswitchinterval(_SWITCH_SECONDS)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._unhandled)
        threading.excepthook = self._died
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._leaving.set)
        loop.add_signal_handler(signal.SIGHUP, self._reread.set)
        runner = web.ServerRunner(self._door(), shutdown_timeout=_LAST_SECONDS)
        await runner.setup()
        await web.SockSite(runner, sock, ssl_context=_tls(self._app.gateway.config), backlog=1024).start()
        self._emit(_listening(self._app.gateway.config, sock))
        beside = [loop.create_task(work()) for work in (self._watch_config, self._measure_lag, self._leave_snapshots)]
        await self._leaving.wait()
        await self._drain(runner)
        for task in beside:
            task.cancel()
        for client in self._app.gateway.clients.values():
            await client.retire()
        await self._compactor.close()
        self._emit(events.Lifecycle("stopped", (("unfinished", self._app.in_flight),)))

    def _door(self) -> Door:
        return Door(
            self._app,
            self._emit,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=75,
            max_line_size=_HEAD_LIMIT,
            max_field_size=_HEAD_LIMIT,
            read_bufsize=_READ_BUFFER,
        )

    async def _drain(self, runner: web.ServerRunner) -> None:
        """Not ready at once; the door stays open until what is inside has left, or its time is up."""
        self._app.draining = True
        seconds = self._app.gateway.config.listen.drain_seconds
        self._emit(events.Lifecycle("draining", (("in_flight", self._app.in_flight), ("seconds", seconds))))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._app.empty()
        await runner.cleanup()

    # --- beside the requests -------------------------------------------------------------------------------------

    async def _watch_config(self) -> None:
        seen = _stamp(self._source.file)
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._reread.wait(), _LOOK_SECONDS)
            stamp = _stamp(self._source.file)
            if stamp != seen or self._reread.is_set():
                seen = stamp
                self._reread.clear()
                await self._reload()

    async def _reload(self) -> None:
        try:
            config = self._source.read().config
        except InvalidConfig as invalid:
            self._emit(events.ConfigReloaded(str(invalid)))
            return
        before = self._app.gateway
        if config == before.config:
            return
        self._app.gateway = Gateway(config, self._compactor, self._emit, before.clients)
        for name, client in before.clients.items():
            if self._app.gateway.clients.get(name) is not client:
                await client.retire()
        self._emit(events.ConfigReloaded())

    async def _measure_lag(self) -> None:
        while True:
            due = perf_counter() + _LAG_SECONDS
            await asyncio.sleep(_LAG_SECONDS)
            self._emit(events.LoopLagged(max(0.0, perf_counter() - due)))

    async def _leave_snapshots(self) -> None:
        while self._board is not None:
            self._board.leave(self._metrics)
            await asyncio.sleep(_BOARD_SECONDS)

    def _warn(self, why: str) -> None:
        """The store and the disk warn from threads of their own."""
        self._loop.call_soon_threadsafe(self._emit, events.StoreFailed(why))

    def _died(self, thread: threading.ExceptHookArgs) -> None:
        """What Python would print of a thread that fails is told by kind and place only, too."""
        if thread.exc_value is not None:
            fault = events.OurFault("none", *events.kind_and_place(thread.exc_value))
            self._loop.call_soon_threadsafe(self._emit, fault)

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
        """What asyncio would print with all its values is told by kind and place only."""
        exc = context.get("exception")
        if isinstance(exc, BaseException):
            self._emit(events.OurFault("none", *events.kind_and_place(exc)))


def board_folder(config: Config) -> Path:
    return Path(config.state.dir) / "workers"


def _store(config: Config, warn: Callable[[str], None]) -> Store:
    bounds = Bounds(promises=config.state.mib * MEBIBYTE, seconds=config.state.days * 24 * 3600)
    if config.state.store == "memory":
        return MemoryStore(bounds)
    return SqliteStore(Path(config.state.dir) / "promises.sqlite", bounds, warn)


def _redaction(config: Config) -> Redaction:
    told = config.transcripts
    return redaction(told.patterns) if told.redact else Redaction()


def _keeper(config: Config, slot: int | None, warn: Callable[[str], None]) -> Keeper:
    """Each process writes files of its own: two that share one would tear each other's lines. One sees to their age."""
    told = config.transcripts
    if told.keep == "off":
        return Keeper()
    keeping = Keeping(
        rotate=int(told.rotate_mib * MEBIBYTE),
        sync=told.fsync,
        redaction=_redaction(config),
        retention=Retention(told.days, told.mib * MEBIBYTE) if not slot else None,
    )
    originals = Originals(config.originals, f"w{slot or 0}", keeping, warn)
    return Keeper(originals, everything=told.keep == "all", required=told.required)


def _tls(config: Config) -> ssl.SSLContext | None:
    if config.listen.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(config.listen.tls_cert, config.listen.tls_key)
    return context


def _stamp(file: Path | None) -> tuple[int, int] | None:
    try:
        stat = file.stat() if file else None
    except OSError:
        return None
    return (stat.st_mtime_ns, stat.st_size) if stat else None


def _listening(config: Config, sock: socket.socket) -> events.Lifecycle:
    upstreams = ", ".join(upstream.base_url for upstream in config.upstreams)
    return events.Lifecycle(
        "listening", (("version", __version__), ("url", url_of(config, sock)), ("upstream", upstreams))
    )


def url_of(config: Config, sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    scheme = "https" if config.listen.tls_cert else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
