"""A server as a process tree, seen from outside: processor time, memory, open files, as the kernel counts them."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

PROC = Path("/proc")
PAGE = os.sysconf("SC_PAGE_SIZE")
CORES = sorted(os.sched_getaffinity(0))
# The server has one core for itself; its clients and its upstream share the other.
SERVERS, CLIENTS = CORES[0], CORES[-1]
PATIENCE = 60.0


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Processes started within it stay on that core, with all their threads."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Server:
    """A process that was started here and is stopped here."""

    def __init__(self, command: Sequence[str], log: Path, folder: Path | None = None) -> None:
        self.log = log
        self._began = time.perf_counter()
        with on_core(SERVERS), log.open("wb") as out:
            self._popen = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder)

    def ready(self, url: str) -> float:
        """Seconds from its start to its first answer."""
        while time.perf_counter() - self._began < PATIENCE:
            if self._popen.poll() is not None:
                raise RuntimeError(f"{self._popen.args!r} ended at once:\n{self.log.read_text()[-2000:]}")
            try:
                with urlopen(url, timeout=PATIENCE):
                    return time.perf_counter() - self._began
            except (URLError, ConnectionError):
                time.sleep(0.005)
        raise TimeoutError(f"{self._popen.args!r} did not answer {url} within {PATIENCE:g} s")

    def tree(self) -> list[int]:
        """Its process and all that descend from it."""
        found = [self._popen.pid]
        for pid in found:
            for task in (PROC / str(pid) / "task").glob("*/children"):
                found.extend(map(int, task.read_text().split()))
        return found

    @property
    def cpu(self) -> float:
        """Seconds of processor time, user and system, to the nanosecond (the ticks in /proc are 10 ms wide)."""
        return sum(time.clock_gettime(_cpu_clock(pid)) for pid in self.tree())

    @property
    def rss(self) -> float:
        """Resident memory in MB."""
        return sum(int((PROC / str(pid) / "statm").read_text().split()[1]) for pid in self.tree()) * PAGE / 1e6

    @property
    def files(self) -> int:
        """Open file descriptors."""
        return sum(1 for pid in self.tree() for _ in (PROC / str(pid) / "fd").iterdir())

    def stop(self, within: float = 15.0) -> int:
        """Asks it to end; answers its exit code."""
        self._popen.send_signal(signal.SIGTERM)
        try:
            return self._popen.wait(within)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
            return -signal.SIGKILL


@contextmanager
def alone(server: Server | None, servers: Iterable[Server]) -> Iterator[None]:
    """Within it all other servers are stopped, so that none of them works in its time."""
    resting = [pid for other in servers if other is not server for pid in other.tree()]
    send_signals(resting, signal.SIGSTOP)
    try:
        yield
    finally:
        send_signals(resting, signal.SIGCONT)


def send_signals(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


def _cpu_clock(pid: int) -> int:
    """The clock that clock_getcpuclockid(3) names for another process."""
    return (~pid << 3) | 2
