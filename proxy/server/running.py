"""Which proxies use a state folder: each holds a file there locked for as long as one of its processes lives.

    state/running-k3f9.json    {"url": "http://127.0.0.1:8800", "since": 1795921380.0}

A proxy that was killed leaves its file, but the system releases the lock: commands pass over such a file, and the next
start removes it.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp

import msgspec
from msgspec import Struct

_PATTERN = "running-*.json"


class RunningProxy(Struct, frozen=True):
    url: str
    since: float
    pid: int = 0
    is_of_command: bool = False
    """The command `run` has started it, and it ends with that command."""


@contextmanager
def announce(folder: Path, url: str, *, is_of_command: bool = False) -> Iterator[None]:
    """Let commands see, until the block ends, that a proxy uses the folder. Raise OSError if it cannot be written."""
    for path in folder.glob(_PATTERN):
        if _read_if_locked(path) is None:
            path.unlink(missing_ok=True)
    descriptor, name = mkstemp(prefix="running-", suffix=".new", dir=folder)
    path = Path(name)
    with os.fdopen(descriptor, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(msgspec.json.encode(RunningProxy(url, time.time(), os.getpid(), is_of_command)))
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
