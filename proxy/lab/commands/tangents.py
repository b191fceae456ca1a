"""`compact FILE --tangents`: a model says which turns are off the track; a person decides (`--drop 3,7-9`).

The question goes through the door that requests take, to the upstream that serves the model, without the secrets that
the conversation holds. The answer is shown beside the user's own words, for a person to judge; it changes nothing.
"""

import argparse
import asyncio
import json
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from proxy.assembly import redacting
from proxy.cli.complaint import complain
from proxy.cli.table import table
from proxy.compaction.errand import heard
from proxy.config import Config, Upstream
from proxy.core.messages import understood
from proxy.core.pipeline import Count
from proxy.errors import ProxyError
from proxy.lab.tangents import Tangent, Turns
from proxy.upstream import Call, Client
from proxy.wire.answers import Answer
from proxy.wire.headers import Headers

CLIPS = (2_000, 500, 100)
"""Characters of a result that the model sees: what a turn was about shows in little. The first that fits is sent."""
_ROOM = 0.9
"""Counts are estimates."""
_SPAN = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_JSON = ("content-type", "application/json")
_WIDTH = 100


class UnansweredError(Exception):
    """No list came of it; why, for a person to read."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Whom to ask, and in how many tokens."""

    config: Config
    model: str
    count: Count
    room: int | None


def numbers(text: str) -> frozenset[int]:
    """`3,7-9` as the turns it names."""
    spans = [_SPAN.fullmatch(part.strip()) for part in text.split(",")]
    ends = [(int(span[1]), int(span[2] or span[1])) for span in spans if span]
    if len(ends) < len(spans) or any(first > last for first, last in ends):
        raise argparse.ArgumentTypeError(f"{text!r} names no turns: write numbers and spans of them, such as 3,7-9")
    return frozenset(number for first, last in ends for number in range(first, last + 1))


def show(turns: Turns, asking: Asking, *, as_json: bool) -> int:
    """Asks, and prints what was understood of the answer; the rest goes to standard error."""
    try:
        found, ignored = turns.understood(_asked(turns, asking)) if turns.offered else ((), ())
    except UnansweredError as fault:
        return complain(str(fault))
    if as_json:
        told = {"turns": len(turns.listed), "offered": turns.offered, "tangents": [asdict(each) for each in found]}
        print(json.dumps(told | {"ignored": ignored}))  # noqa: T201
        return 0
    print(_told(turns, found, asking.count))  # noqa: T201
    for line in ignored:
        print(f"not understood, and ignored: {_short(line)}", file=sys.stderr)  # noqa: T201
    return 0


def _told(turns: Turns, found: Iterable[Tangent], count: Count) -> str:
    rows = []
    for each in found:
        messages = turns.messages(each.turn)
        tokens = sum(count(message.raw) for message in messages)
        rows.append((each.turn, len(messages), tokens, _short(each.why), _short(messages[0].text)))
    if not rows:
        return f"no tangents were named: of {len(turns.listed)} turns {len(turns.offered)} could go"
    named = ",".join(str(row[0]) for row in rows)
    listed = table(("turn", "messages", "tokens", "why it is off the track", "how it begins"), rows)
    return f"{listed}\n\nNothing was changed. To drop those that you agree with: --drop {named}"


def _asked(turns: Turns, asking: Asking) -> str:
    """The answer of the model."""
    settings = asking.config.upstream_for(asking.model)
    if settings is None:
        raise UnansweredError(f"no upstream serves {asking.model!r}: name another with --model, or see `upstreams`")
    asked = {"model": asking.model, "messages": [{"role": "user", "content": _question(turns, asking)}]}
    body = json.dumps(asked, ensure_ascii=False).encode("utf-8", "replace")
    try:
        answer, refused = asyncio.run(_answer(settings, asking.model, body))
    except ProxyError as fault:
        raise UnansweredError(fault.message) from None
    if why := _fault(answer, refused):
        raise UnansweredError(f'upstream "{settings.name}" {why}')
    return _text(answer)


def _question(turns: Turns, asking: Asking) -> str:
    clean = redacting(asking.config)
    for clip in CLIPS:
        text = turns.question(clip, lambda told: clean.of_text(told)[0])
        if asking.room is None or asking.count(text.encode("utf-8", "replace")) <= asking.room * _ROOM:
            return text
    raise UnansweredError(f"too long to be put to {asking.model!r} in one question: name a model with a larger window")


async def _answer(settings: Upstream, model: str, body: bytes) -> tuple[Answer, str]:
    async with Client(settings, lambda _: None) as client:
        return await heard(client, Call("POST", "/chat/completions", "", (*_credential(settings), _JSON), body), model)


def _credential(settings: Upstream) -> Headers:
    """The key of the caller, where the upstream has none of its own."""
    key = os.environ.get("OPENAI_API_KEY", "")  # noqa: TID251 (as every client reads it)
    return (("authorization", f"Bearer {key}"),) if key and not settings.key else ()


def _text(answer: Answer) -> str:
    said = answer.choices[0].message if answer.choices else b"{}"
    return understood({"role": "assistant", **json.loads(said)}, said).text


def _fault(answer: Answer, refused: str) -> str:
    """Why this is no list, or nothing. What an upstream says of a key may hold the key; of all else it is shown."""
    if refused == "auth":
        return "refuses the key: set its `key`, or OPENAI_API_KEY"
    if refused or answer.error is not None:
        told = answer.error.get("message") if isinstance(answer.error, dict) else None
        return f"does not answer: {_short(told) if isinstance(told, str) else refused or 'it says no more'}"
    if not answer.whole or any(choice.finish == "length" for choice in answer.choices):
        return "broke off its answer: ask again, or another model"
    return "" if _text(answer).strip() else "answers with no text: ask another model"


def _short(text: str) -> str:
    """One line of it, with nothing in it that a terminal would obey."""
    line = "".join(letter if letter.isprintable() else " " for letter in text[: 2 * _WIDTH]).strip()
    return line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…"
