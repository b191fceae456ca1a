"""The supervisor of several workers on one port."""

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
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess  # noqa: TC003 (the type of forked processes)
from pathlib import Path
from typing import NoReturn

from proxy.access.registry import Records, Registry, RegistryUnreadable
from proxy.config.faults import InvalidConfig
from proxy.config.settings import Config
from proxy.foundation.lifetime import INTERRUPTED_STATUS
from proxy.server.config_watch import ConfigSource
from proxy.server.worker import Worker
from proxy.telemetry.metrics import SnapshotArea, WorkerSnapshots

_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


def serve(source: ConfigSource, config: Config, registry: Registry, sock: socket.socket) -> int:
    """Serve with one or several workers. With several, the bound socket only reserves the port for them."""
    # Each client's connection takes an open file, of which the limit is often 1,024 by default.
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS says "unlimited" and does not grant it
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    if config.listen.workers == 1:
        return _serve_until_stopped(partial(Worker, source, config, config, registry), sock)
    return Supervisor(source, config, registry, sock).run()


def reserve_port(config: Config) -> socket.socket:
    listen = config.listen
    is_shared = listen.workers > 1
    if is_shared:
        # Another proxy could share the port as well: find out by a socket that does not.
        _bind_socket(listen.host, listen.port, is_shared=False).close()
    return _bind_socket(listen.host, listen.port, is_shared=is_shared)


def _bind_socket(host: str, port: int, *, is_shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        # Each worker binds its own socket, and the kernel distributes connections among them:
        # https://man7.org/linux/man-pages/man7/socket.7.html
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


class Supervisor:
    """Starts the workers, replaces those that end by themselves, and passes signals on to all."""

    def __init__(self, source: ConfigSource, config: Config, registry: Registry, sock: socket.socket) -> None:
        self._source = source
        self._config = config
        self._last_valid = config
        self._records = Records(Path(config.state.dir), registry)
        self._port: int = sock.getsockname()[1]
        self._areas = [SnapshotArea() for _ in range(config.listen.workers)]
        self._workers: dict[int, ForkProcess] = {}
        self._is_stopping = False
        self._stopped_by: int = signal.SIGTERM

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, lambda *_: self._signal_workers(signal.SIGHUP))
        for slot in range(self._config.listen.workers):
            self._start(slot)
        restart_seconds = 1.0
        while not self._is_stopping:
            wait([worker.sentinel for worker in self._workers.values()], timeout=restart_seconds)
            if self._source.read_stamp() != self._source.stamp_read:
                self._read_config()
            with suppress(RegistryUnreadable, OSError):  # the workers report it
                self._records.look()
            for slot, worker in tuple(self._workers.items()):
                if not worker.is_alive():
                    del self._workers[slot]  # its exit code does not count when the others stop
                    time.sleep(restart_seconds)  # a worker that ends at once must not be restarted in a busy loop
                    if not self._is_stopping:
                        self._read_config()  # a reload may have found new values although no file has changed
                        self._start(slot)
        for worker in self._workers.values():
            worker.join()
        status = _exit_status(self._stopped_by)
        if any(worker.exitcode not in (0, status) for worker in self._workers.values()):
            return 1
        return status

    def _read_config(self) -> None:
        """Read the configuration for workers that start later. The other workers report an invalid file."""
        with suppress(InvalidConfig):
            self._last_valid = self._source.read().config.with_start_settings_of(self._config)[0]

    def _start(self, slot: int) -> None:
        # Forked workers have the modules loaded, and share the memory of `SnapshotArea`.
        fork = multiprocessing.get_context("fork")
        worker = fork.Process(target=self._run_worker, args=(slot, os.getpid()), name=f"worker-{slot}")
        # A signal would run the supervisor's handlers in the child, or miss it, until it is listed.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        worker.start()
        self._workers[slot] = worker
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def _run_worker(self, slot: int, supervisor_pid: int) -> NoReturn:
        """Run one worker in this process. Until its event loop handles signals, SIGTERM just ends it."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # its default would end a worker that cannot reload yet
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: sys.exit(0))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        sock = _bind_socket(self._config.listen.host, self._port, is_shared=True)
        make_worker = partial(
            Worker,
            self._source,
            self._config,
            self._last_valid,
            self._records.current,
            snapshots=WorkerSnapshots(self._areas, slot),
            supervisor_pid=supervisor_pid,
        )
        raise SystemExit(_serve_until_stopped(make_worker, sock))

    def _stop(self, number: int, _: object) -> None:
        self._is_stopping = True
        self._stopped_by = number
        self._signal_workers(signal.SIGTERM)

    def _signal_workers(self, number: signal.Signals) -> None:
        for worker in self._workers.values():
            if worker.pid is not None and worker.is_alive():
                os.kill(worker.pid, number)


def _serve_until_stopped(make_worker: Callable[[], Worker], sock: socket.socket) -> int:
    async def run() -> signal.Signals:
        return await make_worker().run(sock)  # a worker is built within the loop that it runs in

    return _exit_status(asyncio.run(run()))


def _exit_status(stopped_by: int) -> int:
    """Return 0 after SIGTERM, by which service managers stop a program."""
    return INTERRUPTED_STATUS if stopped_by == signal.SIGINT else 0
