"""The listeners of a worker, the exceptions that asyncio itself has caught, and which proxies use a state folder.

Events of other threads are handed to the event loop first.

Each proxy holds a file in its state folder locked for as long as one of its processes lives:

    state/running-k3f9.json    {"url": "http://127.0.0.1:8800", "since": 1795921380.0}

A proxy that was killed leaves its file, but the system releases the lock: commands pass over such a file, and the next
start removes it.
"""

import asyncio
import fcntl
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp

import msgspec
from msgspec import Struct, field

from proxy import assembly, events
from proxy.config.settings import Config
from proxy.config.values import reveal
from proxy.foundation.lifetime import CONTROL
from proxy.models.windows import is_known_model
from proxy.store.activity_log import ActivityLog
from proxy.telemetry import activity, hooks, log, metrics
from proxy.upstream.client import find_proxy

Fault = tuple[str, str]
"""Kind and place of an exception. Its values may hold credentials and are left out."""


class LoopFaults(Struct, eq=False):
    """Reports exceptions that asyncio caught: those that are equal at most once a second, with their number."""

    emit: events.Listener
    seconds: float = 1.0
    _waiting: Counter[Fault] = field(default_factory=Counter)

    def __call__(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
        exc = context.get("exception")
        if not isinstance(exc, BaseException):
            return
        fault = events.locate_fault(exc)
        is_first = fault not in self._waiting
        self._waiting[fault] += 1
        if is_first:
            self._report(loop, fault)

    def _report(self, loop: asyncio.AbstractEventLoop, fault: Fault) -> None:
        times = self._waiting.pop(fault)
        if times:
            self.emit(events.InternalFault("none", *fault, times=times))
            self._waiting[fault] = 0
            loop.call_later(self.seconds, self._report, loop, fault)


class Listeners:
    """Builds all listeners of a worker. `emit` gives them an event."""

    def __init__(
        self, config: Config, get_config_in_force: Callable[[], Config], snapshots: metrics.WorkerSnapshots | None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._get_config_in_force = get_config_in_force
        self.metrics = metrics.Metrics(self._is_listed_team, self._is_known_model)
        self.warn = self.make_reporter(events.StoreFailed)
        state = Path(config.state.dir)
        self.activity_log = ActivityLog(state, warn=self.warn)
        self._log = log.Log(config.log.level, config.log.format, color=config.log.color)
        warn_of_hook = self.make_reporter(events.HookFailed)
        self._hooks = []
        for hook in config.hooks:
            url = reveal(hook.url)
            receiver = hooks.Receiver("hook", url, hook.seconds, warn_of_hook, find_proxy(url))
            self._hooks.append(hooks.Hook(hook.events, receiver))
        self.audit = activity.AuditLog(state, self.warn)
        self.exporter = assembly.open_exporter(config, self._list_base_urls, self.make_reporter(events.ExportFailed))
        listeners: dict[str, events.Listener] = {"metrics": self.metrics, "log": self._log, "audit": self.audit}
        listeners |= {f"hook {number}": hook for number, hook in enumerate(self._hooks)}
        exporter = self.exporter
        if exporter is not None:
            listeners["otel"] = exporter
            self.metrics.track(self.metrics.telemetry_dropped, lambda: exporter.writer.dropped)
        if config.admin.enabled:
            listeners["activity"] = activity.ActivityListener(self.activity_log)
        self.emit = events.Dispatcher(listeners, self.metrics.listener_errors.add)
        counts = None if snapshots is None else snapshots.read_own()
        if counts:
            self.metrics.add_snapshot(counts, gauges=False)
        self.metrics.track(self.metrics.log_lines_dropped, lambda: self._log.writer.dropped)
        self.metrics.track(self.metrics.activity_dropped, lambda: self.activity_log.writer.dropped)

    def make_reporter(self, kind: Callable[[str], events.Event]) -> Callable[[str], None]:
        """Return a function by which any thread may report such an event."""
        return lambda sentence: self.emit_from_thread(kind(sentence))

    def report_thread_error(self, thread: threading.ExceptHookArgs) -> None:
        """Report an exception of a thread by kind and place only: its values may hold credentials."""
        if thread.exc_value is not None:
            self.emit_from_thread(events.InternalFault("none", *events.locate_fault(thread.exc_value)))

    def emit_from_thread(self, event: events.Event) -> None:
        # RuntimeError: the loop has ended before the thread.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.emit, event)

    async def close(self) -> None:
        """Close all listeners. The log is last: the others may still have something to report."""
        for hook in self._hooks:
            hook.close()
        await CONTROL.run(self.audit.close)
        if self.exporter is not None:
            await CONTROL.run(self.exporter.close)
        await CONTROL.run(self.activity_log.close)
        await CONTROL.run(self._log.close)

    def _list_base_urls(self) -> dict[str, str]:
        return {upstream.name: upstream.base_url for upstream in self._get_config_in_force().upstreams}

    def _is_listed_team(self, name: str) -> bool:
        return name in self._get_config_in_force().teams

    def _is_known_model(self, name: str) -> bool:
        upstreams = self._get_config_in_force().upstreams
        return is_known_model(name) or any(name in upstream.models for upstream in upstreams)


_PATTERN = "running-*.json"


class RunningProxy(Struct, frozen=True):
    url: str
    since: float
    pid: int = 0
    is_of_command: bool = False
    """The command `run` has started it, and it ends with that command."""
    has_shipped_upstream: bool = False
    """Nobody has named an upstream: it forwards to OpenAI, keys and all."""


@contextmanager
def announce(
    folder: Path, url: str, *, is_of_command: bool = False, has_shipped_upstream: bool = False
) -> Iterator[None]:
    """Let commands see, until the block ends, that a proxy uses the folder. Raise OSError if it cannot be written."""
    proxy = RunningProxy(url, time.time(), os.getpid(), is_of_command, has_shipped_upstream)
    for path in folder.glob(_PATTERN):
        if _read_if_locked(path) is None:
            path.unlink(missing_ok=True)
    descriptor, name = mkstemp(prefix="running-", suffix=".new", dir=folder)
    path = Path(name)
    with os.fdopen(descriptor, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(msgspec.json.encode(proxy))
        file.flush()
        # Renamed last: under its final name the file is locked and whole.
        path = path.rename(path.with_suffix(".json"))
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def find_running(folder: Path) -> list[RunningProxy]:
    """Return the proxies that use the folder. Raise PermissionError if their files belong to another user."""
    contents = [_read_if_locked(path) for path in sorted(folder.glob(_PATTERN))]
    return [msgspec.json.decode(content, type=RunningProxy) for content in contents if content is not None]


def _read_if_locked(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read()
    except FileNotFoundError:  # the proxy has just ended
        pass
    return None
