"""Hooks: URLs that are called when something happens.

Each hook has its own queue and task, so one that hangs delays no other. Nothing is tried twice. Redirects are not
followed, because they could lead to an inner address. Warnings name the host only: many paths are secrets.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from msgspec import Struct, field

from proxy import events
from proxy.store.contract import RareReports
from proxy.telemetry.log import encode_json, make_line, pick_fields


class Receiver:
    def __init__(
        self, kind: str, url: str, timeout_seconds: float, warn: Callable[[str], None], proxy: str | None
    ) -> None:
        self._url = url
        self._proxy = proxy
        self._name = f"{kind} {urlsplit(url).hostname or 'url'}"
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._reports = RareReports(warn)

    async def post(self, body: bytes, headers: Mapping[str, str]) -> str:
        """Return the reason of a failure, or an empty string."""
        try:
            async with (
                aiohttp.ClientSession(timeout=self._timeout) as session,  # one for each post, because posts are rare
                session.post(
                    self._url, data=body, headers=headers, allow_redirects=False, proxy=self._proxy
                ) as response,
            ):
                if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                    return f"answered {response.status}"
                return ""
        except aiohttp.ClientConnectorError as fault:
            return f"failed: {type(fault.os_error).__name__}"
        except (aiohttp.ClientError, OSError, ValueError) as fault:  # a TimeoutError is an OSError
            return f"failed: {type(fault).__name__}"

    def complain(self, problem: str) -> None:
        """Warn the operator, at most once a minute."""
        self._reports.add(f"{self._name} {problem}", 60.0)


class Hook(Struct, eq=False):
    """Posts the events of some names to one URL, one after the other."""

    event_names: Sequence[str]
    receiver: Receiver
    _bodies: deque[bytes] = field(default_factory=deque)
    _task: asyncio.Task[None] | None = None
    _is_closed: bool = False

    def __call__(self, event: events.Event) -> None:
        payload = make_payload(event)
        if payload is None or payload["event"] not in self.event_names or self._is_closed:
            return
        max_queued_events = 1_000
        if len(self._bodies) >= max_queued_events:
            self.receiver.complain(f"is slow: {max_queued_events} events are waiting, further ones are dropped")
            return
        self._bodies.append(encode_json(payload))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._post_all())

    def close(self) -> None:
        """Stop sending. Any thread may call this."""
        self._is_closed = True
        if self._task is not None and not self._task.done():
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    async def _post_all(self) -> None:
        while self._bodies:
            problem = await self.receiver.post(self._bodies.popleft(), {"content-type": "application/json"})
            if problem:
                self.receiver.complain(problem)


def make_payload(event: events.Event) -> dict[str, Any] | None:
    """Return the fields of the log line for programs (docs/operations.md), without advice to operators."""
    line = make_line(event)
    if line is None:
        return None
    _, name, fields = line
    if isinstance(event, events.OriginalKept):
        return {"event": name, **pick_fields(event, "request_id", "conversation"), "originals": event.path}
    payload = {"event": name, **fields}
    payload.pop("effect", None)
    if isinstance(event, events.CompactionEnded):
        payload["turns"] = event.turns
    return payload
