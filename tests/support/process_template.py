"""A process that has imported the proxy once and forks for each one that a test starts.

Importing, and reading the tokenizer, is nine tenths of what a start costs.
What is forked is the real program with its own arguments, environment, folder, files and signals; only the seed of the
hashes is the template's, so tests of "the same bytes, whichever process serves" start the program afresh.

    process = template().start(["serve", "--port", "8800"], place, {}, stdout, stderr)
    assert await process.wait() == 0
"""

import asyncio
import atexit
import gc
import json
import os
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import BinaryIO, NoReturn

from proxy.cli import COMMANDS, main
from proxy.config.loading import load
from proxy.config.policies import shipped_policies
from proxy.config.warnings import find_warnings
from proxy.models.tokenizer import Tokenizers
from tests import ROOT
from tests.support.messages import call, chat, user
from tests.support.parent_death import die_with_parent
from tests.support.patient_proxy import wait_patiently

IS_SUPPORTED = hasattr(os, "pidfd_open")
# By this coverage.py measures the processes that are started; without it they have an empty environment.
MEASURING = {name: value for name, value in os.environ.items() if name == "COVERAGE_PROCESS_CONFIG"}  # noqa: TID251
_LONGEST_MESSAGE = 1 << 16


class ForkedProcess:
    """What `asyncio.subprocess.Process` offers, for a process that is the child of the template."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self._status = status
        self._returncode: int | None = None

    @property
    def returncode(self) -> int | None:
        if self._returncode is None:
            try:
                self._returncode = int(os.read(self._status, 16))
            except BlockingIOError:
                return None
            os.close(self._status)
        return self._returncode

    async def wait(self) -> int:
        while self.returncode is None:  # noqa: ASYNC110 (the loop that waits may be another one each time)
            await asyncio.sleep(0.005)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(15)

    def kill(self) -> None:
        self.send_signal(9)


class Template:
    """The template as the tests see it. It ends when its socket is closed, and its children with it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=ROOT,
                env=MEASURING,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                preexec_fn=die_with_parent,  # noqa: PLW1509 (it makes one system call)
            )

    def start(
        self, arguments: Sequence[str], place: Path, environment: Mapping[str, str], stdout: BinaryIO, stderr: BinaryIO
    ) -> ForkedProcess:
        wanted = {"arguments": arguments, "place": str(place), "environment": dict(environment)}
        status, theirs = os.pipe()
        os.set_blocking(status, False)
        try:
            files = [stdout.fileno(), stderr.fileno(), theirs]
            socket.send_fds(self._socket, [json.dumps(wanted).encode()], files)
        finally:
            os.close(theirs)
        return ForkedProcess(int(self._socket.recv(16)), status)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def template() -> Template:
    """The template of this process of tests."""
    return Template()


def close_template() -> None:
    if template.cache_info().currsize:
        template().close()


def _fork_as_asked(control: socket.socket) -> list[str]:
    """Fork for each message. Returns in the children only: what the one that was just forked is to run."""
    running: dict[int, tuple[int, int]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not control:
                    pid, status = running.pop(key.fd)
                    os.write(status, b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                    selector.unregister(key.fd)
                    os.close(status)
                    os.close(key.fd)
                    continue
                message, files, _, _ = socket.recv_fds(control, _LONGEST_MESSAGE, 3)
                if not message:
                    raise SystemExit(0)
                stdout, stderr, status = files
                if pid := os.fork():
                    child = os.pidfd_open(pid)
                    selector.register(child, selectors.EVENT_READ)
                    running[child] = pid, status
                    control.send(b"%d" % pid)
                    os.close(stdout)
                    os.close(stderr)
                    continue
                os.dup2(stdout, 1)
                os.dup2(stderr, 2)
                for number in (
                    control.detach(),
                    status,
                    stdout,
                    stderr,
                    *running,
                    *(end for _, end in running.values()),
                ):
                    os.close(number)
                return _enter(json.loads(message))


def _enter(wanted: dict) -> list[str]:
    die_with_parent()
    os.chdir(wanted["place"])
    os.environ.clear()  # noqa: TID251 (it is that of the process to be)
    os.environ.update(wanted["environment"])  # noqa: TID251
    sys.argv[:] = ["compaction-proxy", *wanted["arguments"]]  # a command may print how it was invoked
    return wanted["arguments"]


def _end(status: int) -> NoReturn:
    """End as the interpreter does, but take nothing apart: that is half of the work and copies its pages."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


if __name__ == "__main__":
    for module in COMMANDS.values():
        import_module(module)
    wait_patiently()
    # These are read, and validators built, once by each process that needs them.
    shipped_policies()
    list(find_warnings(load(None, {}).config, lambda _: True))
    Tokenizers().of("").count(b"one word")
    # So are expressions and tables that the first history to be shortened needs.
    READS = [call("Read", path=f"{number}.py", out=f"{number} = 1\n" * 400) for number in range(12)]
    with NamedTemporaryFile() as file:
        Path(file.name).write_bytes(chat(user("Go."), *READS, user("Go on.")))
        main(["compact", file.name])
    # The collector leaves alone what is here now: a process that ends would first copy it page by page.
    gc.freeze()
    words = _fork_as_asked(socket.socket(fileno=int(sys.argv[1])))
    try:
        status = main(words)
    except SystemExit as ended:  # of argparse
        status = ended.code
    _end(status)
