"""Refusals of an upstream, classified: prompt too long, answer too long, rate limit, body too large, bad signature.

Also servers that do not know `stream_options`, which asks for the usage of a stream.

Every server words its errors differently, so no whole sentence is looked up here. Three readings of a refusal are
weighed: its figures, each by the words around it (`ROLES`); words about a full context window (`IDEA`); and words of
other errors that sound similar (`RATE`, `BYTES`, `SIGNATURE`). A refusal that is not clearly an overflow is none: a
missed overflow costs an error that the client can read, a false alarm costs history.

Cases that look like another kind: a rate limit of tokens; a 429 that waiting cannot help, because the request alone is
over the minute's budget; vLLM, which stops counting one past its limit; servers that count characters or bytes, quote
the request back, wrap another server's error in their own, or send an empty body. Real refusals of each are in
tests/support/overflow_replies.py.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from proxy.path.recovery import LEAST_ANSWER_TOKENS, Refusal
from proxy.shorten.economics import Covers
from proxy.wire.encodings import decode_body
from proxy.wire.headers import Headers, find_encoding
from proxy.wire.refusal_figures import MAX_TOKENS, Figures, find_figures

BODY_MAX_BYTES = 64 * 1024
"""A longer body is no error message."""
TEXT_MAX_CHARACTERS = 4_096
RECOVERABLE_KINDS = frozenset({"input", "output", "tpm-hard", "signature", "usage-option"})
"""Kinds that a changed request can help."""
OK, TOO_LARGE, TOO_MANY = 200, 413, 429
READ_STATUSES = frozenset({OK, 400, TOO_LARGE, 422, TOO_MANY, 500, 502})
"""200 and 502 are answers of routers that wrap another server's error."""
USAGE_OPTION = re.compile(rb"stream_options|include_usage")


def classify(status: int, headers: Headers, body: bytes) -> Refusal | None:
    """The kind of refusal; None if it is none, or a changed request cannot help."""
    if status not in READ_STATUSES or len(body) > BODY_MAX_BYTES:
        return None
    if not body:
        # Cerebras answers so to a prompt that is too long: tests/support/overflow_replies.py.
        return Refusal("input") if status in (400, TOO_LARGE) else None
    text = extract_text(status, headers, body)
    if text is None:
        return None
    refusal = _classify_text(status, text, find_figures(text))
    if refusal is not None or status in (OK, TOO_LARGE, TOO_MANY):
        return refusal
    # Validators name an option outside of the message, so the whole body is searched.
    if USAGE_OPTION.search(decode_body(body, find_encoding(headers), BODY_MAX_BYTES)) is None:
        return None
    return Refusal("usage-option")


def _classify_text(status: int, text: str, figures: Figures) -> Refusal | None:
    if all(words.search(text) for words in SIGNATURE):
        return Refusal("signature")
    if status == TOO_MANY or RATE.search(text):
        if figures.over and "token" in text:
            return Refusal("tpm-hard", figures.limit, figures.whole)
        return Refusal("rate")
    if weigh_overflow(text, figures) >= OVERFLOW_MIN_WEIGHT:
        return _read_overflow(text, figures)
    if status == TOO_LARGE or BYTES.search(text):
        return Refusal("bytes")
    return None


def _read_overflow(text: str, figures: Figures) -> Refusal:
    """The overflow by the remedy: a shorter history (`input`) or a shorter answer (`output`)."""
    limit, prompt, room, covers = figures.limit, figures.prompt, figures.room, _find_covers(text)
    if figures.stopped:
        return Refusal("input", limit, covers=covers)
    if figures.longest_answer:
        return Refusal("output", answer_room=figures.longest_answer)
    has_room = room is not None and room >= LEAST_ANSWER_TOKENS
    if limit and figures.answer and (room is None or has_room):
        return Refusal("output", limit, prompt, covers, room)
    if figures.size is None and has_room:
        return Refusal("output", limit, prompt, covers, room)  # the prompt alone would have fitted
    if prompt is None and ANSWER_TOO_LONG.search(text):
        return Refusal("output", limit, covers=covers)
    return Refusal("input", limit, prompt or figures.size, covers)


def _find_covers(text: str) -> Covers:
    """Whether the limit is for the prompt alone, or for prompt and answer."""
    for line in text.splitlines():
        if PROMPT_ALONE.search(line) and not SHARED.search(line):
            return "input"
    return "total"


PROMPT_ALONE = re.compile(
    r"\b(?:input|prompt)`?s?`? (?:token|length|must)|max(?:imum)? (?:input|prompt)|prompt is too long:"
)
SHARED = re.compile(r"context|\bwindow\b|total|completion|output|sequence|generat|max_\w*tokens")
ANSWER_TOO_LONG = re.compile(
    rf"{MAX_TOKENS}[^.]{{0,60}}(?:too (?:large|high|big)|greater|larger|exceed|at most|<=)"
    rf"|(?:reduce|decrease|lower)[^.]{{0,12}}{MAX_TOKENS}"
)

OVERFLOW_MIN_WEIGHT = 5
OVER_LIMIT_WEIGHT = 2
_TALK = r"prompt|input|message|conversation|history|thread"
_TOO_MUCH = (
    r"exceed|overflow|too (?:long|large|many)|(?:long|larg|great|bigg)er than|more than|over the\b|beyond|at most"
    r"|(?:not|n't) fit|not enough|no room|must (?:be|have) (?:<=|less|fewer|at most)|超|过长"
)
IDEA: tuple[tuple[int, re.Pattern[str]], ...] = tuple(
    (word_weight, re.compile(words))
    for word_weight, words in (
        (2, r"context|n_ctx|max_model_len|\bwindow|上下文"),
        (2, _TOO_MUCH),
        (1, r"token"),
        (1, rf"{_TALK}|\bchat\b|sequence|tokens in (?:the |your )?request|输入"),
        (1, r"length|\bsize|count\b|\blong\b|长度"),
        (1, r"max|limit|at most|\bonly\b|allowed|available|上限|最大"),
        (1, r"reduce|short|truncat|trim|fewer|smaller"),
        # turns of phrase that are hardly ever about anything else
        (3, rf"(?:{_TALK}|chat)s? (?:\w+ ){{0,3}}(?:is|are|was|were|become|grown) (?:too|longer|larger)"),
        (3, r"context (?:window |limit )?(?:is |was )?(?:full|exhausted|exceeded|used up)|out of context"),
        (3, rf"(?:reduce|shorten) (?:the (?:length|size) of )?(?:the|your) (?:{_TALK})"),
        (3, r"length should be \[\d"),
        # other things that can be too long, or too short
        (-4, r"\b(?:array|string|schema|stop sequences?|budget_tokens|metadata|json|deadline|caching|minimum)\b"),
    )
)


def weigh_overflow(text: str, figures: Figures) -> int:
    """The weight of words and figures that speak of a full context window."""
    weight = sum(word_weight for word_weight, words in IDEA if words.search(text))
    if figures.over:
        weight += OVER_LIMIT_WEIGHT
    return weight


RATE = re.compile(
    r"rate.?limit|\bper[ -](?:sec|min|hour|day|month)|(?:daily|monthly|this (?:day|month))|quota|throttl|\bwait\b"
    r"|too many requests|(?:try again|retry) (?:in|after|later)|concurren|credit|billing|balance|overloaded"
)
BYTES = re.compile(r"(?:request|payload|body|entity)(?: \w+)? too large|\d ?(?:bytes|[km]i?b)\b")
SIGNATURE = (
    re.compile(r"thinking|thought|reasoning|encrypted"),
    re.compile(r"signature|encrypted|blocks"),
    re.compile(r"invalid|not valid|corrupt|mismatch|tamper|(?:not|cannot) be (?:verified|decrypted|modified)"),
)


SENTENCES = frozenset({"message", "msg", "detail", "error", "reason", "description", "title", "raw", "error_msg"})
NAMES = frozenset({"code", "type", "error_type", "status"})
NESTING_MAX_LEVELS = 8


def extract_text(status: int, headers: Headers, body: bytes) -> str | None:
    """The error's own words in lower case; a quoted request is left out. None if it is not readable, or no error."""
    try:
        text = decode_body(body, find_encoding(headers), BODY_MAX_BYTES).decode(errors="replace")
    except (KeyError, ValueError):
        return None
    if status == OK and not begins_as_error(text.encode()):
        return None
    return "\n".join(_iterate_sentences(_parse_json(text))).lower()[:TEXT_MAX_CHARACTERS]


_ERROR_BEGINS_WITHIN_BYTES = 256
_ERROR = re.compile(rb'[\[\s]*\{\s*"(?:error"|object"\s*:\s*"error")')


def begins_as_error(body: bytes | bytearray) -> bool:
    """True if an answer of status 200 begins as an error object."""
    return _ERROR.match(body) is not None


def may_begin_as_error(body: bytes | bytearray) -> bool:
    """True if it does, or is still so short that it may. White space does not count: it keeps clients alive.

    The first name of the object decides, and of `object` the value.
    """
    start = bytes(body[:_ERROR_BEGINS_WITHIN_BYTES]).translate(None, b" \t\r\n[")
    is_cut = bool(start) and any(error.startswith(start) for error in (b'{"error"', b'{"object":"error"'))
    return is_cut or begins_as_error(body)


def _iterate_sentences(value: Any, name: str = "message", level: int = 0) -> Iterator[str]:  # noqa: ANN401 - any JSON
    """The texts in this value that are the server's own words; `name` is that of the member that holds it."""
    match value:
        case str() if name in NAMES:
            yield value.replace("_", " ")
        case str() if name in SENTENCES:
            inner = _parse_json(value)
            if isinstance(inner, str):
                yield value
            else:
                yield from _iterate_sentences(inner, name, level + 1)
        case int() if "token" in name or "ctx" in name:
            yield f"{name}={value}"
        case list() if level < NESTING_MAX_LEVELS:
            for element in value:
                yield from _iterate_sentences(element, name, level + 1)
        case dict() if level < NESTING_MAX_LEVELS:
            for key, member in value.items():
                yield from _iterate_sentences(member, key, level + 1)


def _parse_json(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Read JSON within a text, as routers wrap another server's error; other text is returned as it is."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
