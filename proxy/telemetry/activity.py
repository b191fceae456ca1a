"""Listeners that write for operators: the activity log of the admin pages, and the audit log.

A row of the activity log is a request, a turn or an incident, which is the event's log line. Of requests that are
refused and of no team, only sixty a minute are kept: wrong keys could fill the log.

The audit log has acts of operators, by the admin pages or by a command, one line of JSON each. A large file is renamed
and never removed, because an operator must not be able to push out an act by many others. Of refused attempts only
sixty a minute are written, so that a caller without a key cannot fill the disk.
"""

import errno
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from proxy import events
from proxy.foundation.lifetime import BackgroundWriter
from proxy.store.activity_log import ActivityLog, Incident, Record
from proxy.store.usage_sums import DAY_SECONDS, UsageDelta, UsageNames
from proxy.telemetry.log import make_line

FILE = "audit.jsonl"
FILE_LIMIT_BYTES = 16 * 1024 * 1024
REFUSALS_PER_MINUTE = 60
FLUSH_SECONDS = 2.0
"""Readers and the end of the process wait at most this long for queued lines to be written."""


class MinuteLimit(Struct):
    limit: int
    _minute: int = 0
    _count: int = 0

    def allows(self) -> bool:
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._count = minute, 0
        self._count += 1
        return self._count <= self.limit


class DailyNames(Struct):
    """The teams and models that sums have today. A gateway or a client may make up any number of names."""

    teams_max: int = 500
    models_max: int = 50
    _day: int = 0
    _models: dict[str, set[str]] = {}

    def limit(self, groups: UsageNames) -> UsageNames:
        """Replace a team beyond the first 500 of a day, and a model beyond the first 50 of a team, by `(others)`."""
        others = "(others)"
        day = int(time.time() // DAY_SECONDS)
        if day != self._day:
            self._day = day
            self._models.clear()
        if groups.team not in self._models and len(self._models) >= self.teams_max:
            groups = groups._replace(team=others)
        models = self._models.setdefault(groups.team, set())
        if groups.model not in models and len(models) >= self.models_max:
            return groups._replace(model=others)
        models.add(groups.model)
        return groups


class ActivityListener:
    def __init__(self, activity_log: ActivityLog) -> None:
        self._activity_log = activity_log
        self._refusals = MinuteLimit(REFUSALS_PER_MINUTE)
        self._names = DailyNames()

    def __call__(self, event: events.Event) -> None:
        records: list[Record] = []
        if isinstance(event, events.RequestFinished):
            # Refusals without a team would push out all other rows.
            if event.outcome != "refused" or event.team or self._refusals.allows():
                records.append(event)
        elif isinstance(event, events.TurnEnded):
            records.append(event)
        if (count := _COUNTS.get(type(event))) is not None:
            # Only turns are asked for by model: other events would make rows for whatever model a client names.
            groups = UsageNames(getattr(event, "team", ""))
            if isinstance(event, events.TurnEnded | events.SummaryEnded):
                groups = UsageNames(event.team, event.policy, event.model, event.key, event.upstream)
            records.append(UsageDelta(count(event), self._names.limit(groups)))
        if (incident := find_incident(event)) is not None:
            records.append(incident)
        if records:
            self._activity_log.record(*records)


def find_incident(event: events.Event) -> Incident | None:
    if isinstance(event, events.RequestFinished | events.OriginalKept) or (
        isinstance(event, events.AdminActed) and event.outcome != "done"
    ):
        return None
    line = make_line(event)
    if line is None or line[0] == "debug":
        return None
    severity, name, fields = line
    conversation = fields.pop("conversation", "")
    dollars = event.dollars if isinstance(event, events.SummaryEnded) else 0.0
    return Incident(severity, name, conversation, fields, dollars)


def _count_request(event: events.RequestFinished) -> dict[str, float]:
    counts: dict[str, float] = {"requests": 1}
    names = {"refused": "refused", "failed": "failed", "client-left": "left", "upstream-broke": "broke"}
    if event.outcome in names:
        counts[names[event.outcome]] = 1
    elif event.status >= HTTPStatus.BAD_REQUEST:
        counts["upstream_errors"] = 1
    return counts


def _count_turn(turn: events.TurnEnded) -> dict[str, float]:
    counts: dict[str, float] = {
        "turns": 1,
        "conversations": int(turn.is_first),
        "tokens_raw": turn.tokens_before,
        "tokens_unshortened": turn.tokens_unshortened,
        "tokens_forwarded": turn.tokens_after,
        "tokens_would_be": turn.tokens_would_be,
        "tokens_written": turn.output_tokens,
        "refetches": turn.refetches,
        "blocks": int(turn.action == "created"),
    }
    if turn.cached_tokens is None:
        return counts
    counts |= {"tokens_read": turn.prompt_tokens, "tokens_cached": turn.cached_tokens}
    if turn.placed:
        counts |= {"tokens_read_placed": turn.prompt_tokens, "tokens_cached_placed": turn.cached_tokens}
    if turn.paid_dollars is None or turn.plain_dollars is None:
        return counts | {"unpriced": 1}
    counts |= {"priced": 1, "paid": turn.paid_dollars, "plain": turn.plain_dollars}
    if turn.would_be_dollars is not None:
        counts["would_save"] = turn.paid_dollars - turn.would_be_dollars
    return counts


def _count_size_refusal(event: events.SizeRefused) -> dict[str, float]:
    if event.kind == "signature":  # of reasoning: the size was not refused
        return {}
    return {"overflows": 1, "overflows_helped": int(event.helped), "overflows_observed": int(event.is_observed)}


_COUNTS: dict[type, Callable[[Any], dict[str, float]]] = {
    events.RequestFinished: _count_request,
    events.TurnEnded: _count_turn,
    events.SummaryEnded: lambda event: {"summaries": 1, "spent": event.dollars},
    events.SizeRefused: _count_size_refusal,
    events.FailedOpen: lambda _: {"faults": 1},
    events.InternalFault: lambda event: {"faults": event.times},
    events.StoreFailed: lambda _: {"faults": 1},
}


def render(event: events.AdminActed) -> bytes:
    fields = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **asdict(event)}
    line = json.dumps({**fields, "details": dict(event.details)}, ensure_ascii=False) + "\n"
    return line.encode("utf-8", "backslashreplace")


class AuditFile(Struct):
    path: Path
    warn: Callable[[str], None]

    def write(self, lines: Sequence[bytes]) -> int:
        """Return how many lines could not be written."""
        unwritable = 0
        for line in lines:
            try:
                self._append(line)
            except OSError as fault:
                unwritable += 1
                self.warn(f"{self.path}: {fault.strerror}: audit log write failed; admin actions are not recorded")
        return unwritable

    def _append(self, line: bytes) -> None:
        # Two workers may do this at once: the second finds no file, or sets a short one aside.
        with suppress(FileNotFoundError):
            if self.path.stat().st_size > FILE_LIMIT_BYTES:
                self.path.replace(self.path.with_suffix(f".{time.time_ns()}.jsonl"))
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":  # a full disk has cut off the last line
                line = b"\n" + line
            if os.write(file, line) < len(line):  # one write, because lines of several workers must not mix
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            give_to_folder_owner(file, self.path.parent)
        finally:
            os.close(file)


class AuditLog:
    """The audit log. It writes from a separate thread, because a disk that stalls must not stop the event loop."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self.path = folder / FILE
        self._refusals = MinuteLimit(REFUSALS_PER_MINUTE)
        self._writer = BackgroundWriter("audit", AuditFile(self.path, warn).write)

    def __call__(self, event: events.Event) -> None:
        if not isinstance(event, events.AdminActed):
            return
        if event.outcome == "refused" and not self._refusals.allows():
            return
        line = render(event)
        self._writer.put(line, len(line))

    def flush(self) -> None:
        self._writer.flush(FLUSH_SECONDS)

    def close(self) -> None:
        self._writer.close(FLUSH_SECONDS)


def give_to_folder_owner(file: int, folder: Path) -> None:
    """Give a file to the owner of its folder: a command that root runs must leave one that the proxy can write."""
    if os.geteuid() == 0:
        owner = folder.stat()
        with suppress(PermissionError):  # a network disk may refuse
            os.fchown(file, owner.st_uid, owner.st_gid)


def read_newest(path: Path, limit: int) -> list[dict[str, Any]]:
    """Return the newest entries, the last one first; `at` is in seconds."""
    lines: list[bytes] = []
    for file in (*sorted(path.parent.glob(f"{path.stem}.*{path.suffix}"))[-1:], path):
        if file.exists():
            lines += file.read_bytes().splitlines()
    entries = []
    for line in reversed(lines[-limit:]):
        # Some may be torn by a full disk, or not written by the proxy.
        with suppress(ValueError, TypeError, KeyError):
            entry = json.loads(line)
            entries.append({**entry, "at": datetime.fromisoformat(entry["at"]).timestamp()})
    return entries
