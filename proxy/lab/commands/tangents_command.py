"""`compact FILE --tangents`: list turns that a model calls tangents; a person drops them with `--drop 3,7-9`.

The question is sent to the upstream that serves the model, with secrets redacted. The answer is printed beside the
user's own words, for a person to judge; it changes nothing.
"""

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from proxy.assembly import build_redaction
from proxy.cli.client_key import list_client_headers, name_key_variable
from proxy.cli.options import print_error
from proxy.cli.tables import format_table
from proxy.config import Config, Upstream
from proxy.errors import ProxyError
from proxy.history.messages import read_message
from proxy.history.request import Request
from proxy.lab.tangents import Tangent, Turns
from proxy.shorten.pipeline import Count
from proxy.shorten.summary import Verdict
from proxy.summary.call import SummaryCall, fetch_whole_answer
from proxy.summary.question import Question
from proxy.upstream.call import Call
from proxy.upstream.client import Client
from proxy.wire.answer_assembly import Answer

CLIPS_CHARACTERS = (2_000, 500, 100)
"""Lengths to which tool results are cut for the question; the first with which it fits the window is used."""
_ROOM_SHARE = 0.9
"""Of the window: token counts are estimates."""
_SPAN = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_JSON = ("content-type", "application/json")
_WIDTH_CHARACTERS = 100


class NoListError(Exception):
    """The model gave no list; the message says why."""


@dataclass(frozen=True, slots=True)
class ModelQuestion:
    """The model to ask, and how many tokens it takes."""

    config: Config
    model: str
    count: Count
    room: int | None


def parse_turn_numbers(text: str) -> frozenset[int]:
    """The turn numbers in a text such as `3,7-9`."""
    spans = [_SPAN.fullmatch(part.strip()) for part in text.split(",")]
    ends = [(int(span[1]), int(span[2] or span[1])) for span in spans if span]
    if len(ends) < len(spans) or any(first > last for first, last in ends):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of turns: write numbers and ranges, such as 3,7-9")
    return frozenset(number for first, last in ends for number in range(first, last + 1))


def list_tangents(turns: Turns, asking: ModelQuestion, *, as_json: bool) -> int:
    """Ask the model and print the tangents it names; other lines of its answer go to standard error."""
    try:
        found, ignored = turns.parse_answer(_ask_model(turns, asking)) if turns.offered else ((), ())
    except NoListError as fault:
        return print_error(str(fault))
    if as_json:
        report = {"turns": len(turns.listed), "offered": turns.offered, "tangents": [asdict(each) for each in found]}
        print(json.dumps(report | {"ignored": ignored}))  # noqa: T201
        return 0
    print(_format_tangents(turns, found, asking.count))  # noqa: T201
    for line in ignored:
        print(f"ignored line of the answer: {_shorten(line)}", file=sys.stderr)  # noqa: T201
    return 0


def _format_tangents(turns: Turns, found: Iterable[Tangent], count: Count) -> str:
    rows = []
    for each in found:
        messages = turns.messages(each.turn)
        tokens = sum(count(message.raw) for message in messages)
        rows.append((each.turn, len(messages), tokens, _shorten(each.why), _shorten(messages[0].text)))
    if not rows:
        return f"no tangents named: of {len(turns.listed)} turns {len(turns.offered)} could be dropped"
    named = ",".join(str(row[0]) for row in rows)
    listed = format_table(("turn", "messages", "tokens", "reason", "beginning"), rows)
    return f"{listed}\n\nNothing was changed. To drop them: --drop {named}"


def _ask_model(turns: Turns, asking: ModelQuestion) -> str:
    """The model's answer."""
    settings = asking.config.upstream_for(asking.model)
    if settings is None:
        raise NoListError(f"no upstream serves {asking.model!r}: name another with --model, or add it to `upstreams`")
    asked = {"model": asking.model, "messages": [{"role": "user", "content": _build_question(turns, asking)}]}
    body = json.dumps(asked, ensure_ascii=False).encode("utf-8", "replace")
    try:
        answer, refused = asyncio.run(_send_question(settings, asking.model, body))
    except ProxyError as fault:
        raise NoListError(fault.message) from None
    if why := _find_fault(answer, refused, settings):
        raise NoListError(f'upstream "{settings.name}" {why}')
    return _text_of(answer)


def _build_question(turns: Turns, asking: ModelQuestion) -> str:
    clean = build_redaction(asking.config)
    for clip in CLIPS_CHARACTERS:
        text = turns.build_question(clip, lambda text_of_turn: clean.of_text(text_of_turn)[0])
        if asking.room is None or asking.count(text.encode("utf-8", "replace")) <= asking.room * _ROOM_SHARE:
            return text
    raise NoListError(f"the conversation is too long for {asking.model!r}: name a model with a larger window")


async def ask_summary(request: Request, question: Question, asking: ModelQuestion) -> Verdict:
    """Ask the model for a summary, as the proxy does, with the key of the upstream that serves it."""
    settings = asking.config.upstream_for(asking.model)
    if settings is None:
        raise NoListError(f"no upstream serves {asking.model!r}: name another with --model, or add it to `upstreams`")
    async with Client(settings, lambda _: None) as client:
        call = SummaryCall(
            question=question,
            request=request,
            call=Call("POST", "/chat/completions", "", (*list_client_headers(settings), _JSON), b""),
            client=client,
            count=asking.count,
            redaction=build_redaction(asking.config),
            model=asking.model,
            room=asking.room,
        )
        return (await call.run()).verdict


async def _send_question(settings: Upstream, model: str, body: bytes) -> tuple[Answer, str]:
    async with Client(settings, lambda _: None) as client:
        whole = await fetch_whole_answer(
            client, Call("POST", "/chat/completions", "", (*list_client_headers(settings), _JSON), body), model
        )
    return whole.answer, whole.refused


def _text_of(answer: Answer) -> str:
    message = answer.choices[0].message if answer.choices else b"{}"
    return read_message({"role": "assistant", **json.loads(message)}, message).text


def _find_fault(answer: Answer, refused: str, settings: Upstream) -> str:
    """Why the answer is not a list; empty if it is. An upstream's message about a key is not shown: it may hold it."""
    if refused == "auth":
        return f"rejects the key: set its `key`, or {name_key_variable(settings)}"
    if refused or answer.error is not None:
        message = answer.error.get("message") if isinstance(answer.error, dict) else None
        return f"did not answer: {_shorten(message) if isinstance(message, str) else refused or 'no reason given'}"
    if not answer.whole or any(choice.finish == "length" for choice in answer.choices):
        return "cut off its answer: retry, or use another model"
    return "" if _text_of(answer).strip() else "answered without text: use another model"


def _shorten(text: str) -> str:
    """One printable line of a text: control characters could change the terminal."""
    line = "".join(letter if letter.isprintable() else " " for letter in text[: 2 * _WIDTH_CHARACTERS]).strip()
    return line if len(line) <= _WIDTH_CHARACTERS else f"{line[:_WIDTH_CHARACTERS]}…"
