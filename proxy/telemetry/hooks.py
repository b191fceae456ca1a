"""Tells others what happened: runs their command, calls their URL. In threads of their own, so that nobody waits.

Best effort, as befits a listener: each hook has a thread and a queue, so that one that hangs holds up no other; what
comes while its queue is full is left out; nothing is tried twice. A command is killed with all that it has started
when its time is up, and gets no environment but a PATH: ours holds keys. A URL is called as it stands: whoever answers
there must not send us on to somebody else. The log is told its host only: of many services the path is the secret.
"""

import http.client
import os
import queue
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Protocol
from urllib.parse import urlsplit

from proxy import events
from proxy.telemetry.log import encode_fields, line_of

WAITING = 1_000
QUIET_SECONDS = 60.0
"""A hook that goes on failing is not told of more often than that."""
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

_FAULTS = (OSError, subprocess.SubprocessError, ValueError, http.client.HTTPException)


class Hook(Protocol):
    """Whom to tell, and of what."""

    @property
    def events(self) -> Sequence[str]: ...
    @property
    def command(self) -> Sequence[str]: ...
    @property
    def address(self) -> str: ...
    @property
    def seconds(self) -> float: ...


class Hooks:
    """A listener. `warn` is called from threads, with a sentence for the operator."""

    def __init__(self, hooks: Sequence[Hook], warn: Callable[[str], None]) -> None:
        self._messengers = [Messenger(hook, warn) for hook in hooks]

    def __call__(self, event: events.Event) -> None:
        line = line_of(event) if self._messengers else None
        if line is None:
            return
        _, name, fields = line
        if wanting := [messenger for messenger in self._messengers if name in messenger.hook.events]:
            told = encode_fields({"event": name, **fields})
            for messenger in wanting:
                messenger.take(told)

    def close(self) -> None:
        """What is still running would outlive whoever could stop it."""
        for messenger in self._messengers:
            messenger.stop()


class Messenger:
    """Carries to one hook what it wants to hear, one event after the other."""

    def __init__(self, hook: Hook, warn: Callable[[str], None]) -> None:
        self.hook = hook
        self._warn = warn
        self._waiting: queue.Queue[bytes] = queue.Queue(WAITING)
        self._quiet_until = 0.0
        self._running: subprocess.Popen[bytes] | None = None
        self._over = False
        self._thread = self._start_thread()

    def _start_thread(self) -> threading.Thread:
        thread = threading.Thread(target=self.work, name="hook", daemon=True)
        thread.start()
        return thread

    def take(self, told: bytes) -> None:
        if not self._thread.is_alive() and not self._over:
            # An unforeseen fault has ended it (the process reports that): the next event must still be delivered.
            self._thread = self._start_thread()
        try:
            self._waiting.put_nowait(told)
        except queue.Full:
            self._complain(f"is slow: {WAITING} events are waiting, further ones are left out")

    def work(self) -> None:
        while not self._over:
            told = self._waiting.get()
            try:
                self._bring(told)
            except _FAULTS as fault:
                self._complain(_why(fault))

    def stop(self) -> None:
        self._over = True
        if self._running is not None and self._running.poll() is None:
            _kill(self._running)

    def _bring(self, told: bytes) -> None:
        if self.hook.command:
            self._run(self.hook.command, told)
        else:
            _post(self.hook, told)

    def _run(self, command: Sequence[str], told: bytes) -> None:
        quiet = subprocess.DEVNULL
        with subprocess.Popen(  # noqa: S603 (the operator's own)
            command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, env=ENVIRONMENT, start_new_session=True
        ) as self._running:
            try:
                self._running.communicate(told, self.hook.seconds)
            except subprocess.TimeoutExpired:
                _kill(self._running)
                raise
        if self._running.returncode:
            raise subprocess.CalledProcessError(self._running.returncode, command[0])

    def _complain(self, why: str) -> None:
        now = time.monotonic()
        if now >= self._quiet_until and not self._over:
            self._quiet_until = now + QUIET_SECONDS
            self._warn(f"hook {_name(self.hook)} {why}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _post(hook: Hook, told: bytes) -> None:
    request = urllib.request.Request(hook.address, told, {"content-type": "application/json"})  # noqa: S310 (http or https)
    with _opener().open(request, timeout=hook.seconds):
        pass


class _AsItStands(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """None: not followed."""


@cache
def _opener() -> urllib.request.OpenerDirector:
    """Made when it is needed: it reads the certificates of this machine."""
    return urllib.request.build_opener(_AsItStands)


def _name(hook: Hook) -> str:
    return hook.command[0] if hook.command else urlsplit(hook.address).hostname or "url"


def _why(fault: Exception) -> str:
    match fault:
        case subprocess.TimeoutExpired():
            return "was killed: its time was up"
        case subprocess.CalledProcessError():
            return f"ended with {fault.returncode}"
        case urllib.error.HTTPError():
            return f"answered {fault.code}"
        case urllib.error.URLError(reason=Exception() as reason):
            return f"failed: {type(reason).__name__}"
        case _:
            return f"failed: {type(fault).__name__}"
