"""A real Redis (or Valkey) of a test's own, to be stopped, paused, emptied and started again.

    with running(folder) as server:
        RedisStore(server.url)
        server.pause()

None is at hand: the test is skipped. CI has one.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.support.parent_death import die_with_parent
from tests.support.running_proxy import free_port

PROGRAM = next(filter(None, map(shutil.which, ("redis-server", "valkey-server"))), None)
needs_redis = pytest.mark.skipif(PROGRAM is None, reason="no redis-server and no valkey-server is installed")
PATIENCE = 60.0
RIGHTS = "+eval +evalsha +get +set +del +exists +setrange +pexpire +time +ping +select +scan"
"""Of a user with which the store can do everything, as docs/shared-state.md lists them."""


@dataclass(slots=True)
class RedisServer:
    folder: Path
    options: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    process: subprocess.Popen | None = None
    config: Path | None = None
    """Given to a Sentinel: it writes what it finds out there."""

    @property
    def url(self) -> str:
        return self.database(0)

    def database(self, number: int) -> str:
        return f"redis://127.0.0.1:{self.port}/{number}"

    def start(self, *options: str) -> None:
        """Without persistence, unless the options say otherwise."""
        config = () if self.config is None else (self.config,)
        plain = ("--databases", "512", "--save", "", "--appendonly", "no") if self.config is None else ("--sentinel",)
        with (self.folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM, *config, "--port", str(self.port), "--dir", self.folder, *plain, *self.options, *options],
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509 (it makes one system call)
            )
        within = time.monotonic() + PATIENCE
        while not self._listens():
            assert self.process.poll() is None, (self.folder / "redis.log").read_text()
            assert time.monotonic() < within, "redis-server does not listen"
            time.sleep(0.01)

    def stop(self) -> None:
        """With whatever persistence it has; a paused one is killed."""
        if self.process is not None:
            self.resume()
            self.process.terminate()
            self.process.wait(PATIENCE)
            self.process = None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        self.process = None

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def let_in(self, user: str, password: str, rights: str = RIGHTS, keys: str = "~cp/*") -> None:
        assert self.run("ACL", "SETUSER", user, "on", f">{password}", keys, *rights.split()) == "+OK"

    @contextmanager
    def open_connection(self) -> Iterator[None]:
        """Another client holds a connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as line:
            line.sendall(b"PING\r\n")
            line.recv(7)
            yield

    def run(self, *words: str) -> str:
        """What it answers, as one line."""
        with self._send_command(*words) as reply:
            return reply.readline().decode().strip()

    def get(self, key: str) -> bytes:
        return self._read_string("GET", key)

    def _read_string(self, *words: str) -> bytes:
        with self._send_command(*words) as reply:
            return reply.read(int(reply.readline()[1:]))

    def set(self, key: str, value: bytes) -> None:
        with self._send_command("SET", key, value) as reply:
            assert reply.readline() == b"+OK\r\n"

    def keys(self, pattern: str) -> list[str]:
        with self._send_command("KEYS", pattern) as reply:
            return [
                reply.read(int(reply.readline()[1:]) + 2).decode().strip() for _ in range(int(reply.readline()[1:]))
            ]

    def info(self, section: str) -> dict[str, str]:
        found = self._read_string("INFO", section).decode()
        return dict(pair.split(":", 1) for pair in found.splitlines() if ":" in pair)

    def wait_for_replica(self) -> None:
        """Returns once its replica has all that was written; `WAIT` knows only what its own connection has written."""
        written, began = int(self.info("replication")["master_repl_offset"]), time.monotonic()
        while self._replica_offset < written:
            assert time.monotonic() - began < PATIENCE, "the replica does not catch up"
            time.sleep(0.01)

    @property
    def _replica_offset(self) -> int:
        replica = dict(pair.split("=", 1) for pair in self.info("replication").get("slave0", "").split(",") if pair)
        return int(replica.get("offset", -1))

    def flush(self) -> None:
        assert self.run("FLUSHALL") == "+OK"

    @contextmanager
    def _send_command(self, *words: str | bytes) -> Iterator[BinaryIO]:
        found = [word if isinstance(word, bytes) else word.encode() for word in words]
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as line:
            line.sendall(b"*%d\r\n" % len(found) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in found))
            with line.makefile("rb") as reply:
                yield reply

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


@contextmanager
def running(folder: Path, *options: str) -> Iterator[RedisServer]:
    server = RedisServer(folder, options)
    server.start()
    try:
        yield server
    finally:
        server.stop()
