"""A run of the tests that is killed leaves no process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import ROOT

PATIENCE_SECONDS = 60.0
HANGING_TEST = """
import asyncio
from pathlib import Path

from tests.support.running_proxy import serving
from tests.support.scripted_upstream import Upstream


async def test_it_hangs(tmp_path):
    for name in ("forked", "fresh", "workers"):
        (tmp_path / name).mkdir()
    async with (
        Upstream() as up,
        serving(up.url, place=tmp_path / "forked"),
        serving(up.url, place=tmp_path / "fresh", fresh=True),
        serving(up.url, "--workers", "2", place=tmp_path / "workers"),
    ):
        Path(READY).touch()
        await asyncio.sleep(600)
"""


def list_descendants(pid: int) -> set[int]:
    """Return all processes below this one."""
    descendants = set()
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            descendants |= {child} | list_descendants(child)
    return descendants


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until(is_true) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.seconds
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc of Linux")
def test_a_killed_run_leaves_no_process(tmp_path):
    ready = tmp_path / "ready"
    test = tmp_path / "test_hanging.py"
    test.write_text(HANGING_TEST.replace("READY", repr(str(ready))))
    # The conftest of these tests, for a test that lies elsewhere.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    command += ["-n", "1", "-o", "asyncio_mode=auto", "--rootdir", str(tmp_path), str(test)]
    with (tmp_path / "output").open("wb") as output:
        run = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
    try:
        wait_until(lambda: ready.exists() or run.poll() is not None)
        assert ready.exists(), (tmp_path / "output").read_text()
        processes = list_descendants(run.pid)
        assert len(processes) >= 6, "a worker, a template, three proxies, two workers of one of them"
    finally:
        run.kill()
        run.wait()
    try:
        wait_until(lambda: not any(map(is_alive, processes)))
    finally:
        for process in filter(is_alive, processes):
            os.kill(process, signal.SIGKILL)
