"""Refusals of an upstream, classified: prompt too long, answer too long, rate limit, body too large, bad signature.

Also servers that do not know `stream_options`, by which a stream is asked for its usage.

Every server words its errors differently, so no whole sentence is looked up here. Three readings of a refusal are
weighed instead: its figures, each by the words around it (`ROLES`); words that speak of a full context window (`IDEA`);
and words of other errors that sound similar (`RATE`, `BYTES`, `SIGNATURE`). A refusal that is not clearly an overflow
counts as none: a missed overflow costs an error that the client can read, a false alarm costs history.

Cases that look like another kind: a rate limit that speaks of too many tokens; a 429 that waiting cannot help, because
the request alone is over the minute's budget; vLLM, which stops counting one past its limit; servers that count
characters or bytes, quote the request back, wrap another server's error in their own, or send an empty body.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from proxy.path.recovery import LEAST_ANSWER_TOKENS, Refusal
from proxy.shorten.window import Covers
from proxy.wire import http
from proxy.wire.http import Headers, find_encoding

# Time or the client must help the others.
RECOVERABLE_KINDS = frozenset({"input", "output", "tpm-hard", "signature", "usage-option"})
BODY_MAX_BYTES = 64 * 1024  # a longer body is no error message
TEXT_MAX_CHARACTERS = 4_096
FIGURE_MIN = 256  # smaller numbers count messages, images, status codes
LIMIT_MIN_TOKENS = 2_048  # no model reads less; servers put their own error codes where others put a limit
OK, TOO_LARGE, TOO_MANY = 200, 413, 429
SPEAKING = frozenset({OK, 400, TOO_LARGE, 422, TOO_MANY, 500, 502})  # 200 and 502: routers that wrap what they heard
USAGE_OPTION = re.compile(rb"stream_options|include_usage")


def classify(status: int, headers: Headers, body: bytes) -> Refusal | None:
    """The kind of refusal; None: no refusal, or one that a changed request cannot help."""
    if status not in SPEAKING or len(body) > BODY_MAX_BYTES:
        return None
    if not body:
        return Refusal("input") if status in (400, TOO_LARGE) else None  # Cerebras says it without a word
    text = _extract_text(status, headers, body)
    if text is None:
        return None
    return _classify_text(status, text, find_figures(text)) or _classify_option(status, headers, body)


def _classify_option(status: int, headers: Headers, body: bytes) -> Refusal | None:
    """The refusal of an option of the request. Validators name it outside of the message, so the body is searched."""
    decoded = http.decode(body, find_encoding(headers), BODY_MAX_BYTES)
    is_option = status not in (OK, TOO_LARGE, TOO_MANY) and USAGE_OPTION.search(decoded)
    return Refusal("usage-option") if is_option else None


def _classify_text(status: int, text: str, figures: "Figures") -> Refusal | None:
    if all(idea.search(text) for idea in SIGNATURE):
        return Refusal("signature")
    if status == TOO_MANY or RATE.search(text):
        hard = figures.over and "token" in text
        return Refusal("tpm-hard", figures.limit, figures.whole) if hard else Refusal("rate")
    if rate_likeness(text, figures) >= OVERFLOW_MIN_WEIGHT:
        return _overflow(text, figures)
    return Refusal("bytes") if status == TOO_LARGE or BYTES.search(text) else None


def _overflow(text: str, figures: "Figures") -> Refusal:
    """The overflow, by what helps: a shorter history (`input`) or a shorter answer (`output`)."""
    limit, prompt, room, covers = figures.limit, figures.prompt, figures.room, _covers(text)
    if figures.stopped:
        return Refusal("input", limit, covers=covers)
    if figures.longest_answer:
        return Refusal("output", answer_room=figures.longest_answer)
    if limit and figures.answer and (room is None or room >= LEAST_ANSWER_TOKENS):
        return Refusal("output", limit, prompt, covers, room)
    if figures.size is None and room is not None and room >= LEAST_ANSWER_TOKENS:
        return Refusal("output", limit, prompt, covers, room)  # the prompt alone would have fitted
    if prompt is None and ANSWER_TOO_LONG.search(text):
        return Refusal("output", limit, covers=covers)
    return Refusal("input", limit, prompt or figures.size, covers)


def _covers(text: str) -> Covers:
    alone = any(PROMPT_ALONE.search(line) and not SHARED.search(line) for line in text.splitlines())
    return "input" if alone else "total"


PROMPT_ALONE = re.compile(
    r"\b(?:input|prompt)`?s?`? (?:token|length|must)|max(?:imum)? (?:input|prompt)|prompt is too long:"
)
SHARED = re.compile(r"context|\bwindow\b|total|completion|output|sequence|generat|max_\w*tokens")
MAX_TOKENS = r"\bmax_(?:new_|completion_|output_)?tokens\b"
ANSWER_TOO_LONG = re.compile(
    rf"{MAX_TOKENS}[^.]{{0,60}}(?:too (?:large|high|big)|greater|larger|exceed|at most|<=)"
    rf"|(?:reduce|decrease|lower)[^.]{{0,12}}{MAX_TOKENS}"
)


# --- the idea -------------------------------------------------------------------------------------

OVERFLOW_MIN_WEIGHT = 5
FIGURES_WEIGHT = 2
_TALK = r"prompt|input|message|conversation|history|thread"
_TOO_MUCH = (
    r"exceed|overflow|too (?:long|large|many)|(?:long|larg|great|bigg)er than|more than|over the\b|beyond|at most"
    r"|(?:not|n't) fit|not enough|no room|must (?:be|have) (?:<=|less|fewer|at most)|超|过长"
)
IDEA: tuple[tuple[int, re.Pattern[str]], ...] = tuple(
    (weight, re.compile(words))
    for weight, words in (
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


def rate_likeness(text: str, figures: "Figures") -> int:
    """The weight of words and figures that speak of a full context window."""
    words = sum(weight for weight, pattern in IDEA if pattern.search(text))
    return words + (FIGURES_WEIGHT if figures.over else 0)


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


# --- the figures ----------------------------------------------------------------------------------

Role = Literal["limit", "size", "prompt", "answer", "longest answer", "other"]

NUMBER = re.compile(r"(?<![a-z0-9.])(?:\d{1,3}(?:[,_]\d{3}){1,3}|\d{1,10})(?![a-z0-9]|\.\d)")
_LIMIT = (
    r"(?:\b(?:limit|max\w*|most|only|exceed\w*|than|over\b|beyond|window|capacity|allowance|n_ctx)"
    r"|<=|>|上限|最大|超过|超出)[^,;.\n]{0,40}$"
)
_ANSWER = r"(?:(?:in|for) the (?:completion|output)|(?:completion|output) tokens|`?max_new_tokens)"
_PROMPT = r"(?:(?:in|from) the (?:messages|functions|input)|of (?:text|tool) input|`?inputs?`? tokens|\+)"
ROLES: tuple[tuple[Role, str, str], ...] = (  # the text right before a figure, and right after it
    ("other", r"", r"^ ?(?:characters|bytes|seconds|ms\b|s\b|[km]i?b\b)"),
    ("other", r"\b(?:by|used:?) (?:\w+ )?$", r""),
    ("longest answer", _LIMIT, r"^ (?:completion|output) tokens"),
    ("answer", rf"{MAX_TOKENS}`?(?: is too \w+| of| \()?[=: ]*$|\+ ?$", r""),
    ("answer", r"", rf"^ (?:tokens )?{_ANSWER}"),
    ("prompt", r"", rf"^ (?:tokens )?{_PROMPT}"),
    ("limit", r"", r"^ (?:tokens )?(?:maximum|max\b|allowed|available)"),
    ("limit", rf"{_LIMIT}|\[\d+, ?$", r""),
    ("prompt", r"(?:prompt|input)(?: tokens)? \($|n_prompt_tokens=$", r""),
    ("prompt", r"", r"^ prompt tokens"),
    ("size", r"", r""),
)
_ROLES = tuple((role, re.compile(before), re.compile(after)) for role, before, after in ROLES)


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers of a refusal, by what they count."""

    limits: tuple[int, ...] = ()
    size: int | None = None
    stated_prompt: int | None = None
    answer: int | None = None
    longest_answer: int | None = None

    @property
    def limit(self) -> int | None:
        """The largest limit: some servers name the prompt's share of the window beside the window itself."""
        return max((limit for limit in self.limits if limit >= LIMIT_MIN_TOKENS), default=None)

    @property
    def stopped(self) -> bool:
        """The size is limit + 1: the server stopped counting there, so the number says nothing."""
        return any(limit + 1 in (self.stated_prompt, self.size) for limit in self.limits)

    @property
    def prompt(self) -> int | None:
        if self.stated_prompt is None and self.size and self.answer:
            return self.size - self.answer
        return self.stated_prompt

    @property
    def room(self) -> int | None:
        return self.limit - self.prompt if self.limit and self.prompt else None

    @property
    def whole(self) -> int:
        return max(self.size or 0, (self.stated_prompt or 0) + (self.answer or 0))

    @property
    def over(self) -> bool:
        """True where the figures alone show a size above its limit."""
        allowed = self.limit or self.longest_answer
        return allowed is not None and self.whole > allowed


def find_figures(text: str) -> Figures:
    found: dict[Role, list[int]] = {}
    for role, number in _read(text):
        found.setdefault(role, []).append(number)
    found.pop("other", None)
    if len(found) == 1:
        found = _split_by_size(*found.popitem())
    return Figures(
        limits=tuple(found.get("limit", ())),
        size=max(found.get("size", ()), default=None),
        stated_prompt=sum(found["prompt"]) if "prompt" in found else None,
        answer=max(found.get("answer", ()), default=None),
        longest_answer=min(found.get("longest answer", ()), default=None),
    )


def _split_by_size(role: Role, numbers: list[int]) -> dict[Role, list[int]]:
    """Tell two numbers of one role apart: the smaller one is the limit, the larger one the size."""
    low, high = min(numbers), max(numbers)
    return {"limit": [low], "size": [high]} if low < high else {role: numbers}


def _read(text: str) -> Iterator[tuple[Role, int]]:
    found = [match for match in NUMBER.finditer(text) if _value(match) >= FIGURE_MIN]
    ends = [0, *(match.end() for match in found)]
    starts = [*(match.start() for match in found[1:]), len(text)]
    for match, earlier, later in zip(found, ends, starts, strict=False):
        before, after = text[earlier : match.start()][-60:], text[match.end() : later][:60]
        yield next(role for role, lead, trail in _ROLES if lead.search(before) and trail.search(after)), _value(match)


def _value(match: re.Match[str]) -> int:
    return int(match[0].replace(",", "").replace("_", ""))


# --- the words ------------------------------------------------------------------------------------

SENTENCES = frozenset({"message", "msg", "detail", "error", "reason", "description", "title", "raw", "error_msg"})
NAMES = frozenset({"code", "type", "error_type", "status"})
NESTING_MAX_LEVELS = 8


def _extract_text(status: int, headers: Headers, body: bytes) -> str | None:
    """The error's own words in lower case; a quoted request is left out. None: not readable, or no error."""
    try:
        text = http.decode(body, find_encoding(headers), BODY_MAX_BYTES).decode(errors="replace")
    except (KeyError, ValueError):
        return None
    if status == OK and not begins_as_error(text.encode()):
        return None
    return "\n".join(_words(_parse_json(text))).lower()[:TEXT_MAX_CHARACTERS]


_ERROR_BEGINS_WITHIN_BYTES = 256
_ERROR = re.compile(rb'[\[\s]*\{\s*"(?:error"|object"\s*:\s*"error")')


def begins_as_error(body: bytes | bytearray) -> bool:
    """True where an answer of status 200 begins as an error object."""
    return _ERROR.match(body) is not None


def may_begin_as_error(body: bytes | bytearray) -> bool:
    """True where it does, or where it was cut so early that it still may. White space passes: it keeps clients alive.

    Where an object begins, its first name is awaited, and of `object` the value.
    """
    start = bytes(body[:_ERROR_BEGINS_WITHIN_BYTES]).translate(None, b" \t\r\n[")
    is_cut = bool(start) and any(error.startswith(start) for error in (b'{"error"', b'{"object":"error"'))
    return is_cut or begins_as_error(body)


def _words(value: Any, name: str = "message", depth: int = 0) -> Iterator[str]:  # noqa: ANN401 - any JSON
    match value:
        case str() if name in NAMES:
            yield value.replace("_", " ")
        case str() if name in SENTENCES:
            inner = _parse_json(value)
            yield from [value] if isinstance(inner, str) else _words(inner, name, depth + 1)
        case int() if "token" in name or "ctx" in name:
            yield f"{name}={value}"
        case list() if depth < NESTING_MAX_LEVELS:
            for each in value:
                yield from _words(each, name, depth + 1)
        case dict() if depth < NESTING_MAX_LEVELS:
            for key, each in value.items():
                yield from _words(each, key, depth + 1)


def _parse_json(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Read JSON within a text, as routers wrap another server's error; other text is returned as it is."""
    try:
        return json.loads(text) if text.lstrip().startswith(("{", "[")) else text
    except (ValueError, RecursionError):
        return text
