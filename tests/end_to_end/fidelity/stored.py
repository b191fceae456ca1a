"""Requests as lines of a file: JSON that a person can read, base64 only where it is not text."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILES = tuple(Path(__file__).parent / name for name in ("recorded.jsonl", "written.jsonl"))
"""Recorded of clients; and what none of them was recorded with: parts, roles, spellings, framings, headers, paths."""


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


def load() -> list[RequestCase]:
    lines = (line for file in FILES for line in file.read_text(encoding="utf-8").split("\n") if line)
    return [_request(json.loads(line)) for line in lines]


def _request(stored: dict[str, Any]) -> RequestCase:
    encoded = stored.pop("base64", None)
    body = base64.b64decode(encoded) if encoded is not None else stored.pop("body").encode()
    headers = tuple((name, value) for name, value in stored.pop("headers"))
    return RequestCase(**stored, headers=headers, body=body)
