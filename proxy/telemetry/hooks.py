"""Hooks: URLs that are called when something happens.

Each hook has a thread and a bounded queue, so that one that hangs holds up no other and no request. An event that comes
while the queue is full is dropped, and nothing is tried twice.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from proxy import events
from proxy.lifetime import BackgroundWriter
from proxy.telemetry.output import encode_json, list_steps, pick_fields
from proxy.telemetry.posting import Receiver

QUEUED_EVENTS_MAX = 1_000

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
        payload = make_payload(event) if self._callers else None
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
    "turns",
)
_SUMMARY_FIELDS = (
    "request_id", "conversation", "policy", "upstream", "model", "outcome", "tries", "tokens_read", "tokens_cached",
    "tokens_written",
)  # fmt: skip


_PLAIN: dict[type[events.Event], tuple[str, tuple[str, ...]]] = {
    events.CompactionStarted: (
        "compaction-started",
        ("request_id", "conversation", "policy", "reason", "tokens_before", "originals"),
    ),
    events.BreakerOpened: ("breaker-opened", ("conversation", "policy")),
    events.SizeRefused: ("refused-for-size", ("request_id", "upstream", "kind", "limit", "helped")),
}
"""Events of which a hook gets some fields as they are."""


def make_payload(event: events.Event) -> Payload | None:
    """The JSON object of an event; None for what no hook can ask for.

    A schema of its own: programs of other people read it, and a change of a log line must not reach them.
    """
    match event:
        case events.OriginalKept():
            return {**_payload("original-saved", event, "request_id", "conversation"), "originals": event.path}
        case events.CompactionEnded(is_observed=False):
            return _payload("compaction-ended", event, *_COMPACTION_FIELDS) | list_steps(event)
        case events.SummaryEnded():
            return {**_payload("summary-ended", event, *_SUMMARY_FIELDS), "seconds": round(event.seconds, 3)}
        case _ if type(event) in _PLAIN:
            name, fields = _PLAIN[type(event)]
            return _payload(name, event, *fields)
        case _:
            return None


def _payload(name: str, event: events.Event, *fields: str) -> Payload:
    return {"event": name, **pick_fields(event, *fields)}


# --- in the thread of a hook -----------------------------------------------------------------------------------------


class HookCaller:
    """A thread that posts events to one URL, one after the other."""

    def __init__(self, hook: Hook, warn: Callable[[str], None]) -> None:
        self.hook = hook
        self._receiver = Receiver("hook", hook.address, hook.seconds, warn)
        self._writer = BackgroundWriter[bytes]("hook", self._post_all, QUEUED_EVENTS_MAX, gather_seconds=0)

    def add(self, body: bytes) -> None:
        dropped = self._writer.dropped
        self._writer.put(body, 1)
        if self._writer.dropped > dropped:
            self._receiver.complain(f"is slow: {QUEUED_EVENTS_MAX} events are waiting, further ones are dropped")

    def close(self) -> None:
        self._writer.close(0)

    def _post_all(self, bodies: Sequence[bytes]) -> int:
        for body in bodies:
            if why := self._receiver.post(body, {"content-type": "application/json"}):
                self._receiver.complain(why)
        return 0
