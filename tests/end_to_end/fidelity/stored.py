"""Requests and answers as lines of files: JSON that a person can read, base64 only where a body is not text."""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.overflow_replies import OVERFLOWS, overflow
from tests.support.upstream_replies import Reply, pause

FOLDER = Path(__file__).parent
REQUESTS = ("recorded.jsonl", "written.jsonl")
"""Recorded of clients; and what none of them was recorded with: parts, roles, spellings, framings, headers, paths."""
ANSWERS = "answers.jsonl"
"""What upstreams answer, as plain and as odd as it comes. What becomes of broken ones is no question of fidelity."""
CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class RequestCase:
    """One request as a client sends it. Host and length are the connection's, and are added on the way."""

    name: str
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""
    source: str = "written"
    chunk: int | None = None  # send it chunked, in pieces of this size


@dataclass(frozen=True, slots=True)
class AnswerCase:
    """An answer, and to what kind of request it is given."""

    name: str
    reply: Reply
    method: str = "POST"
    target: str = CHAT


def load_requests() -> list[RequestCase]:
    return [_request(stored) for name in REQUESTS for stored in _read_lines(name)]


def load_answers() -> list[AnswerCase]:
    overflows = (
        AnswerCase(f"overflow: {name}", overflow(name))
        for name in OVERFLOWS
        if name != "lm-studio-empty-stream"  # no whole answer: a stream that ends before it has finished
    )
    return [*map(_answer, _read_lines(ANSWERS)), *overflows]


def _read_lines(name: str) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").split("\n") if line)


def _request(stored: dict[str, Any]) -> RequestCase:
    headers, encoded = _pairs(stored), stored.pop("base64", None)
    body = base64.b64decode(encoded) if encoded is not None else stored.pop("body").encode()
    return RequestCase(**stored, headers=headers, body=body)


def _answer(stored: dict[str, Any]) -> AnswerCase:
    """Each of the `parts` is a write of its own, or a pause. A byte that is not UTF-8 has a surrogate of its own."""
    parts = (
        part.encode("utf-8", "surrogateescape") if isinstance(part, str) else pause(part)
        for part in stored.pop("parts")
    )
    reply = Reply(stored.pop("status", 200), _pairs(stored), tuple(parts), stored.pop("framing", "length"))
    if "pieces" in stored:
        reply = reply.in_pieces(stored.pop("pieces"))
    if "compression" in stored:
        reply = reply.with_compression(stored.pop("compression"))
    return AnswerCase(reply=reply, **stored)


def _pairs(stored: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in stored.pop("headers"))
