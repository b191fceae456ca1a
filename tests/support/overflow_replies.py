"""How upstreams say that a request was too much: status, headers and body, one of each kind that is known.

The sentences are those the servers really use (with other figures), because programs recognise them by their words.
They stand in `overflow_replies.jsonl`, one reply a line. `kind` says what would help: `input` a shorter history,
`output` a lower max_tokens, `tpm` a request that fits the minute's budget at all, `rate` only time, `bytes` fewer or
smaller images; `silent` ones look like success.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.support.upstream_replies import JSON, Reply, answer

Kind = Literal["input", "output", "tpm", "rate", "bytes", "silent"]


@dataclass(frozen=True, slots=True)
class Overflow:
    kind: Kind
    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...]


def _read(row: dict[str, Any]) -> Overflow:
    headers = tuple((name, value) for name, value in row.get("headers", ()))
    if "body" in row:
        return Overflow(row["kind"], row["status"], json.dumps(row["body"]).encode(), (JSON, *headers))
    return Overflow(row["kind"], row["status"], row["text"].encode(), headers)


_LINES = Path(__file__).with_suffix(".jsonl").read_text(encoding="utf-8").splitlines()
_ROWS = [json.loads(line) for line in _LINES]
OVERFLOWS: dict[str, Overflow] = {row["name"]: _read(row) for row in _ROWS}
FIGURES = {row["name"]: tuple(row["figures"]) for row in _ROWS if "figures" in row}
"""What can be read in them: the limit, the size of the prompt, what the limit covers, the room for an answer."""


def overflow(name: str) -> Reply:
    reply = OVERFLOWS[name]
    return answer(reply.body, reply.status, reply.headers)
