"""The supervisor of several workers on one port, each with a socket of its own: the kernel distributes connections.

It starts, restarts and stops workers, and serves nothing itself. With one worker there is no supervisor: the process is
the worker.
"""

import asyncio
import multiprocessing
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess  # noqa: TC003 (it is what _fork makes)

from proxy.access.records import RegistryUnreadable
from proxy.access.registry import Registry
from proxy.assembly import open_records
from proxy.config import Config, InvalidConfig
from proxy.lifetime import INTERRUPTED_STATUS
from proxy.server.worker import ConfigSource, LastValid, Slot, Worker
from proxy.telemetry.metrics import SnapshotArea, WorkerSnapshots

_fork = multiprocessing.get_context("fork")
_RESTART_SECONDS = 1.0
_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


def serve(source: ConfigSource, config: Config, registry: Registry, sock: socket.socket) -> int:
    """Serve until stopped by a signal. With several workers the bound socket only reserves the port for them."""
    _raise_open_files_limit()
    if config.listen.workers == 1:
        return _serve_until_stopped(lambda: Worker(source, config, None, LastValid(config, registry)), sock)
    return Supervisor(source, config, registry, sock).run()


def _raise_open_files_limit() -> None:
    """Raise the soft limit of open files, often 1,024, to the hard one: each connection of a client takes a file."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):  # macOS names an unlimited one that it does not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def reserve_port(config: Config) -> socket.socket:
    """A socket bound to the configured address. OSError: it is in use."""
    if config.listen.workers > 1:
        # Workers share their port, and so could those of another proxy, with other keys: that must not go unnoticed.
        _bind_socket(config.listen.host, config.listen.port, is_shared=False).close()
    return _bind_socket(config.listen.host, config.listen.port, is_shared=config.listen.workers > 1)


def _bind_socket(host: str, port: int, *, is_shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


class Supervisor:
    """The parent process of several workers."""

    def __init__(self, source: ConfigSource, config: Config, registry: Registry, sock: socket.socket) -> None:
        self._source = source
        self._config = config
        self._last_valid = config
        """The newest configuration that was valid, for workers that are started when the file is not."""
        self._records = open_records(config, registry)
        self._stamp = source.stamp_read
        self._port: int = sock.getsockname()[1]
        self._areas = [SnapshotArea() for _ in range(config.listen.workers)]
        self._workers: dict[int, ForkProcess] = {}
        self._is_stopping = False
        self._stopped_by: int = signal.SIGTERM

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._reload)
        for slot in range(self._config.listen.workers):
            self._start(slot)
        while not self._is_stopping:
            wait([worker.sentinel for worker in self._workers.values()], timeout=_RESTART_SECONDS)
            self._follow_file()
            self._follow_registry()
            for slot in [slot for slot, worker in self._workers.items() if not worker.is_alive()]:
                self._restart(slot)
        for worker in self._workers.values():
            worker.join()
        status = _exit_status(self._stopped_by)
        return status if all(worker.exitcode in (0, status) for worker in self._workers.values()) else 1

    def _follow_file(self) -> None:
        """Read a changed file as the workers do: one that is started later must not fall back to the start."""
        if (stamp := self._source.read_stamp()) != self._stamp:
            self._stamp = stamp
            self._last_valid = _read_current_config(self._source, self._config, self._last_valid)

    def _follow_registry(self) -> None:
        """Read changed keys and switches: a worker that starts with none would forget what was revoked or switched."""
        with suppress(RegistryUnreadable, OSError):  # the workers report it
            self._records.look()

    def _start(self, slot: int) -> None:
        last_valid = LastValid(self._last_valid, self._records.current)
        place = Slot(WorkerSnapshots(self._areas, slot), os.getpid())
        arguments = (self._source, self._config, last_valid, self._port, place)
        worker = _fork.Process(target=_run_worker, args=arguments, name=f"worker-{slot}")
        # Blocked until the child is listed: a signal now would run the supervisor's handlers in the child, or miss it.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        worker.start()
        self._workers[slot] = worker
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def _restart(self, slot: int) -> None:
        del self._workers[slot]  # how it ended does not count once the others are to stop
        time.sleep(_RESTART_SECONDS)  # a worker that ends at once must not be restarted in a busy loop
        if not self._is_stopping:
            self._start(slot)

    def _stop(self, number: int, _: object) -> None:
        self._is_stopping = True
        self._stopped_by = number
        self._signal_workers(signal.SIGTERM)

    def _reload(self, *_: object) -> None:
        self._signal_workers(signal.SIGHUP)

    def _signal_workers(self, number: signal.Signals) -> None:
        for worker in self._workers.values():
            if worker.pid is not None and worker.is_alive():
                os.kill(worker.pid, number)


def _run_worker(source: ConfigSource, started: Config, last_valid: LastValid, port: int, slot: Slot) -> None:
    """The main function of a worker's process. Until its event loop handles signals, SIGTERM just ends it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    sock = _bind_socket(started.listen.host, port, is_shared=True)
    current = replace(last_valid, config=_read_current_config(source, started, last_valid.config))
    raise SystemExit(_serve_until_stopped(lambda: Worker(source, started, slot, current), sock))


def _read_current_config(source: ConfigSource, started: Config, last_valid: Config) -> Config:
    """The configuration that the other workers have by now. They have refused an invalid file, so this one does."""
    try:
        return source.read().config.with_start_settings_of(started)[0]
    except InvalidConfig:
        return last_valid


def _serve_until_stopped(make_worker: Callable[[], Worker], sock: socket.socket) -> int:
    async def run() -> signal.Signals:
        return await make_worker().run(sock)  # made within the loop that it runs in

    return _exit_status(asyncio.run(run()))


def _exit_status(stopped_by: int) -> int:
    """0 after SIGTERM, the way service managers stop it; after Ctrl-C what a shell expects."""
    return INTERRUPTED_STATUS if stopped_by == signal.SIGINT else 0
