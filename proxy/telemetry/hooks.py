"""Hooks: a command that is run, or a URL that is called, when something happens.

Each hook has a thread and a bounded queue, so that one that hangs holds up no other and no request. An event that comes
while the queue is full is dropped, and nothing is tried twice. A command gets no environment but a PATH, because the
proxy's holds keys, and is killed with all that it has started when its time is up. Redirects of a URL are not followed:
they could lead to an inner address. Warnings name its host only, because of many services the path is the secret.
"""

import http.client
import os
import queue
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Protocol
from urllib.parse import urlsplit

from proxy import events
from proxy.lifetime import WorkerThread
from proxy.telemetry.output import encode_json, list_steps, pick_fields

QUEUED_EVENTS_MAX = 1_000
WARNING_INTERVAL_SECONDS = 60.0
"""Of one hook that goes on failing there is one warning in this time."""
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

_FAULTS = (OSError, subprocess.SubprocessError, ValueError, http.client.HTTPException)

Payload = dict[str, Any]


class Hook(Protocol):
    """One hook of the configuration."""

    @property
    def events(self) -> Sequence[str]: ...
    @property
    def command(self) -> Sequence[str]: ...
    @property
    def address(self) -> str: ...
    @property
    def seconds(self) -> float: ...


class Hooks:
    """A listener that passes events to hooks. `warn` is called from threads, with a sentence for the operator."""

    def __init__(self, hooks: Sequence[Hook], warn: Callable[[str], None]) -> None:
        self._runners = [HookRunner(hook, warn) for hook in hooks]

    def __call__(self, event: events.Event) -> None:
        payload = payload_of(event) if self._runners else None
        if payload is None:
            return
        if interested := [runner for runner in self._runners if payload["event"] in runner.hook.events]:
            body = encode_json(payload)
            for runner in interested:
                runner.add(body)

    def close(self) -> None:
        """End the commands that still run: no process would be left to kill them in time."""
        for runner in self._runners:
            runner.close()


# --- what a hook gets (docs/operations.md) ---------------------------------------------------------------------------


_COMPACTION_FIELDS = ("conversation", "policy", "reason", "tokens_before", "tokens_after", "rehearsed", "turns")
_SUMMARY_FIELDS = (
    "conversation", "policy", "upstream", "model", "outcome", "tries", "tokens_read", "tokens_cached", "tokens_written",
)  # fmt: skip


def payload_of(event: events.Event) -> Payload | None:
    """The JSON object of an event; None for what no hook can ask for.

    A schema of its own: programs of other people read it, and a change of a log line must not reach them.
    """
    match event:
        case events.CompactionStarted():
            names = ("conversation", "policy", "reason", "tokens_before", "originals")
            return _payload("compaction-started", event, *names)
        case events.CompactionEnded(rehearsed=False):
            return _payload("compaction-ended", event, *_COMPACTION_FIELDS) | list_steps(event)
        case events.SummaryEnded():
            return {**_payload("summary-ended", event, *_SUMMARY_FIELDS), "seconds": round(event.seconds, 3)}
        case events.BreakerOpened():
            return _payload("breaker-opened", event, "conversation", "policy")
        case events.SizeRefused():
            return _payload("refused-for-size", event, "request_id", "upstream", "kind", "limit", "helped")
        case _:
            return None


def _payload(name: str, event: events.Event, *fields: str) -> Payload:
    return {"event": name, **pick_fields(event, *fields)}


# --- in the thread of a hook -----------------------------------------------------------------------------------------


class HookRunner:
    """A thread that passes events to one hook, one after the other."""

    def __init__(self, hook: Hook, warn: Callable[[str], None]) -> None:
        self.hook = hook
        self._warn = warn
        self._queue: queue.Queue[bytes] = queue.Queue(QUEUED_EVENTS_MAX)
        self._next_warning_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        self._thread = WorkerThread("hook", self._work)

    def add(self, body: bytes) -> None:
        try:
            self._queue.put_nowait(body)
        except queue.Full:
            self._complain(f"is slow: {QUEUED_EVENTS_MAX} events are waiting, further ones are dropped")

    def close(self) -> None:
        self._is_closed = True
        if self._process is not None and self._process.poll() is None:
            _kill_group(self._process)

    def _work(self) -> None:
        while not self._is_closed:
            body = self._queue.get()
            try:
                if self.hook.command:
                    self._run(self.hook.command, body)
                else:
                    _post(self.hook, body)
            except _FAULTS as fault:
                self._complain(_describe(fault))

    def _run(self, command: Sequence[str], body: bytes) -> None:
        null = subprocess.DEVNULL
        with subprocess.Popen(  # noqa: S603 (a command that the operator has configured)
            command, stdin=subprocess.PIPE, stdout=null, stderr=null, env=ENVIRONMENT, start_new_session=True
        ) as self._process:
            try:
                self._process.communicate(body, self.hook.seconds)
            except subprocess.TimeoutExpired:
                _kill_group(self._process)
                raise
        if self._process.returncode:
            raise subprocess.CalledProcessError(self._process.returncode, command[0])

    def _complain(self, why: str) -> None:
        now = time.monotonic()
        if now >= self._next_warning_at and not self._is_closed:
            self._next_warning_at = now + WARNING_INTERVAL_SECONDS
            self._warn(f"hook {_name_of(self.hook)} {why}")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a command and everything it has started: it leads a session of its own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _post(hook: Hook, body: bytes) -> None:
    request = urllib.request.Request(hook.address, body, {"content-type": "application/json"})  # noqa: S310 (http or https)
    with _opener().open(request, timeout=hook.seconds):
        pass


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Return None: the redirect is not followed."""


@cache
def _opener() -> urllib.request.OpenerDirector:
    # Made at the first use: it reads the certificates of this machine.
    return urllib.request.build_opener(_NoRedirects)


def _name_of(hook: Hook) -> str:
    return hook.command[0] if hook.command else urlsplit(hook.address).hostname or "url"


def _describe(fault: Exception) -> str:
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
