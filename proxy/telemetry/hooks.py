"""Hooks: URLs that are called when something happens.

Each hook has a thread and a bounded queue, so that one that hangs holds up no other and no request. An event that comes
while the queue is full is dropped, and nothing is tried twice. Redirects are not followed: they could lead to an inner
address. Warnings name the host only, because of many services the path is the secret.
"""

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol
from urllib.parse import urlsplit

from proxy import events
from proxy.lifetime import BackgroundWriter
from proxy.telemetry.output import encode_json, list_steps, pick_fields

QUEUED_EVENTS_MAX = 1_000
WARNING_INTERVAL_SECONDS = 60.0
"""Of one hook that goes on failing there is one warning in this time."""

Payload = dict[str, Any]


class Hook(Protocol):
    """One hook of the configuration."""

    @property
    def events(self) -> Sequence[str]: ...
    @property
    def address(self) -> str: ...
    @property
    def seconds(self) -> float: ...


class Hooks:
    """A listener that passes events to hooks. `warn` is called from threads, with a sentence for the operator."""

    def __init__(self, hooks: Sequence[Hook], warn: Callable[[str], None]) -> None:
        self._callers = [HookCaller(hook, warn) for hook in hooks]

    def __call__(self, event: events.Event) -> None:
        payload = payload_of(event) if self._callers else None
        if payload is None:
            return
        for caller in self._callers:
            if payload["event"] in caller.hook.events:
                caller.add(encode_json(payload))

    def close(self) -> None:
        """Take no more events. Those that wait are given up with the process."""
        for caller in self._callers:
            caller.close()


# --- what a hook gets (docs/operations.md) ---------------------------------------------------------------------------


_COMPACTION_FIELDS = (
    "request_id",
    "conversation",
    "policy",
    "reason",
    "tokens_before",
    "tokens_after",
    "rehearsed",
    "turns",
)
_SUMMARY_FIELDS = (
    "request_id", "conversation", "policy", "upstream", "model", "outcome", "tries", "tokens_read", "tokens_cached",
    "tokens_written",
)  # fmt: skip


def payload_of(event: events.Event) -> Payload | None:
    """The JSON object of an event; None for what no hook can ask for.

    A schema of its own: programs of other people read it, and a change of a log line must not reach them.
    """
    match event:
        case events.CompactionStarted():
            names = ("request_id", "conversation", "policy", "reason", "tokens_before", "originals")
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


class HookCaller:
    """A thread that posts events to one URL, one after the other."""

    def __init__(self, hook: Hook, warn: Callable[[str], None]) -> None:
        self.hook = hook
        self._warn = warn
        self._next_warning_at = 0.0
        self._writer = BackgroundWriter[bytes]("hook", self._post_all, QUEUED_EVENTS_MAX, gather_seconds=0)

    def add(self, body: bytes) -> None:
        dropped = self._writer.dropped
        self._writer.put(body, 1)
        if self._writer.dropped > dropped:
            self._complain(f"is slow: {QUEUED_EVENTS_MAX} events are waiting, further ones are dropped")

    def close(self) -> None:
        self._writer.close(0)

    def _post_all(self, bodies: Sequence[bytes]) -> int:
        for body in bodies:
            try:
                _post(self.hook, body)
            except (OSError, ValueError, http.client.HTTPException) as fault:
                self._complain(_describe(fault))
        return 0

    def _complain(self, why: str) -> None:
        now = time.monotonic()
        if now >= self._next_warning_at:
            self._next_warning_at = now + WARNING_INTERVAL_SECONDS
            self._warn(f"hook {urlsplit(self.hook.address).hostname or 'url'} {why}")


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


def _describe(fault: Exception) -> str:
    match fault:
        case urllib.error.HTTPError():
            return f"answered {fault.code}"
        case urllib.error.URLError(reason=Exception() as reason):
            return f"failed: {type(reason).__name__}"
        case _:
            return f"failed: {type(fault).__name__}"
