"""Refusals of an upstream, classified: prompt too long, answer too long, rate limit, body too large, bad signature.

Every server words its errors differently. Figures are read by the words around them (`ROLES`); words about a full
context window, and about other errors that sound similar, have weights (`IDEA`). If in doubt, it is no overflow: a
missed one costs an error that the client can read, a false alarm costs history.
Real refusals of each kind are in tests/support/overflow_replies.py.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeGuard, get_args

from msgspec import Struct

from proxy.shorten.economics import Covers
from proxy.wire.encodings import decode_body
from proxy.wire.http_head import Headers, find_encoding

AddedOption = Literal["usage-option", "cache-marks", "cache-key"]
"""What the proxy adds to a request: `stream_options`, `cache_control`, `prompt_cache_key`."""
RefusedOption = AddedOption | Literal["options"]
"""`options`: the upstream does not say which, or whether it was one of them at all."""
RefusalKind = Literal["input", "output", "tpm-hard", "rate", "bytes", "signature", "invalid", "other"] | RefusedOption
"""`invalid`: status 400 or 422, and nothing that is understood. `other`: no changed request can help."""


def is_option(kind: RefusalKind) -> TypeGuard[RefusedOption]:
    return kind == "options" or kind in get_args(AddedOption)


class Refusal(Struct, frozen=True):
    kind: RefusalKind
    limit: int | None = None
    size: int | None = None
    covers: Covers = "total"
    answer_room: int | None = None


LEAST_ANSWER_TOKENS = 1_024
"""If less is left for an answer, it is the history that is too long."""
MAX_TOKENS = r"\bmax_(?:new_|completion_|output_)?tokens\b"
Role = Literal["limit", "size", "prompt", "answer", "longest answer", "other"]

_LIMIT = (
    r"(?:\b(?:limit|max\w*|most|only|exceed\w*|than|over\b|beyond|window|capacity|allowance|n_ctx)"
    r"|<=|>|上限|最大|超过|超出)[^,;.\n]{0,40}"
)
_ROWS: tuple[tuple[Role, str], ...] = (  # N is the figure, perhaps in a new line; all other words are in lower case
    ("other", r"N ?(?:characters|bytes|seconds|ms\b|s\b|[km]i?b\b)|\b(?:by|used:?) (?:\w+ )?N"),
    ("longest answer", rf"{_LIMIT}N (?:completion|output) tokens"),
    ("answer", rf"(?:{MAX_TOKENS}`?(?: is too \w+| of| \()?[=: ]*|\+ ?)N"),
    (
        "answer",
        r"N (?:tokens )?(?:(?:in|for) the (?:completion|output)|(?:completion|output) tokens|`?max_new_tokens)",
    ),
    ("prompt", r"N (?:tokens )?(?:(?:in|from) the (?:messages|functions|input)|of (?:text|tool) input)"),
    ("prompt", r"N (?:tokens )?(?:`?inputs?`? tokens|\+)"),
    ("limit", rf"N (?:tokens )?(?:maximum|max\b|allowed|available)|(?:{_LIMIT}|\[\d+, ?)N"),
    ("prompt", r"(?:prompt|input)(?: tokens)? \(N|n_prompt_tokens=N|N prompt tokens"),
    ("size", r"N"),
)
ROLES = tuple([(role, re.compile(words.replace("N", r"\n?N"))) for role, words in _ROWS])


class Figures(Struct, frozen=True):
    limits: tuple[int, ...] = ()
    size: int | None = None
    stated_prompt: int | None = None
    answer: int | None = None
    longest_answer: int | None = None

    @property
    def limit(self) -> int | None:
        """The window: some servers name the prompt's share of it as well, some an error code of theirs."""
        largest = max(self.limits, default=0)
        return largest if largest >= 2_048 else None  # noqa: PLR2004

    @property
    def stopped(self) -> bool:
        """Whether the server stopped counting: the size is its limit + 1."""
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
    def total(self) -> int:
        return max(self.size or 0, (self.stated_prompt or 0) + (self.answer or 0))

    @property
    def over(self) -> bool:
        allowed_tokens = self.limit or self.longest_answer
        return allowed_tokens is not None and self.total > allowed_tokens


def find_figures(text: str) -> Figures:
    by_role: dict[Role, list[int]] = {}
    for role, number in _iterate_numbers(text):
        by_role.setdefault(role, []).append(number)
    by_role.pop("other", None)
    if len(by_role) == 1:
        [numbers] = by_role.values()
        if min(numbers) < max(numbers):  # the smaller of two numbers is the limit
            by_role = {"limit": [min(numbers)], "size": [max(numbers)]}
    prompt = sum(by_role["prompt"]) if "prompt" in by_role else None
    return Figures(
        limits=tuple(by_role.get("limit", ())),
        size=max(by_role.get("size", ()), default=None),
        stated_prompt=prompt,
        answer=max(by_role.get("answer", ()), default=None),
        longest_answer=min(by_role.get("longest answer", ()), default=None),
    )


def _iterate_numbers(text: str) -> Iterator[tuple[Role, int]]:
    figures = re.finditer(r"(?<![a-z0-9.])(?:\d{1,3}(?:[,_]\d{3}){1,3}|\d{1,10})(?![a-z0-9]|\.\d)", text)
    # Smaller numbers count messages, images, status codes.
    numbers = [figure for figure in figures if _read_number(figure) >= 256]  # noqa: PLR2004
    starts = [0, *[number.end() for number in numbers]]
    stops = [*[number.start() for number in numbers[1:]], len(text)]
    for number, start, stop in zip(numbers, starts, stops, strict=False):
        words = text[start : number.start()][-60:] + "N" + text[number.end() : stop][:60]
        for role, pattern in ROLES:
            if pattern.search(words):
                yield role, _read_number(number)
                break


def _read_number(number: re.Match[str]) -> int:
    return int(number[0].replace(",", "").replace("_", ""))


BODY_MAX_BYTES = 64 * 1024
"""A longer body is no error message."""
OPTION_NAMES: Mapping[AddedOption, Sequence[bytes]] = {
    "usage-option": (b"stream_options", b"include_usage"),
    "cache-marks": (b"cache_control",),
    "cache-key": (b"prompt_cache_key",),
}
"""Names in errors of servers that refuse what the proxy adds. Each has an example in `REFUSED_OPTIONS` of the tests."""
RECOVERABLE_KINDS = frozenset({"input", "output", "tpm-hard", "signature", *OPTION_NAMES})


def classify(status: int, headers: Headers, body: bytes) -> Refusal | None:
    """Return what an upstream refuses; None if it is no refusal, or no changed request can help."""
    # 200 and 502 are answers of routers that wrap another server's error.
    if status not in {200, 400, 413, 422, 429, 500, 502} or len(body) > BODY_MAX_BYTES:
        return None
    if not body:
        # Cerebras answers so to a prompt that is too long: tests/support/overflow_replies.py.
        return Refusal("input") if status in (400, 413) else None
    text = extract_text(status, headers, body)
    if text is None:
        return None
    refusal = _classify_text(status, text, find_figures(text))
    if refusal is not None or status in (200, 413, 429):
        return refusal
    # Validators name an option outside of the message.
    decoded_body = decode_body(body, find_encoding(headers), BODY_MAX_BYTES)
    for option, names in OPTION_NAMES.items():
        if any(name in decoded_body for name in names):
            return Refusal(option)
    return None


def _classify_text(status: int, text: str, figures: Figures) -> Refusal | None:
    if _blames_signature(text):
        return Refusal("signature")
    if status == 429 or RATE.search(text):  # noqa: PLR2004
        if figures.over and "token" in text:
            return Refusal("tpm-hard", figures.limit, figures.total)
        return Refusal("rate")
    if weigh_overflow(text, figures) >= 5:  # noqa: PLR2004 (tests/support/overflow_sentences.py is read right by it)
        return _read_overflow(text, figures)
    counts_bytes = r"(?:request|payload|body|entity)(?: \w+)? too large|\d ?(?:bytes|[km]i?b)\b"
    if status == 413 or re.search(counts_bytes, text):  # noqa: PLR2004
        return Refusal("bytes")
    return None


def _blames_signature(text: str) -> bool:
    for words in (
        ("thinking", "thought", "reasoning", "encrypted"),
        ("signature", "encrypted", "blocks"),
        (
            *("invalid", "not valid", "corrupt", "mismatch", "tamper"),
            *("not be verified", "not be decrypted", "not be modified"),
        ),
    ):
        if not any(map(text.__contains__, words)):
            return False
    return True


def _read_overflow(text: str, figures: Figures) -> Refusal:
    """Tell an input that is too long, which asks for a shorter history, from an answer that is too long."""
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
    prompt_alone = r"\b(?:input|prompt)`?s?`? (?:token|length|must)|max(?:imum)? (?:input|prompt)|prompt is too long:"
    shared = r"context|\bwindow\b|total|completion|output|sequence|generat|max_\w*tokens"
    for line in text.splitlines():
        if re.search(prompt_alone, line) and not re.search(shared, line):
            return "input"
    return "total"


ANSWER_TOO_LONG = re.compile(
    rf"{MAX_TOKENS}[^.]{{0,60}}(?:too (?:large|high|big)|greater|larger|exceed|at most|<=)"
    rf"|(?:reduce|decrease|lower)[^.]{{0,12}}{MAX_TOKENS}"
)

_TALK = r"prompt|input|message|conversation|history|thread"
IDEA: tuple[tuple[int, re.Pattern[str]], ...] = tuple(
    (word_weight, re.compile(words))
    for word_weight, words in (
        (2, r"context|n_ctx|max_model_len|\bwindow|上下文"),
        (
            2,
            (
                r"exceed|overflow|too (?:long|large|many)|(?:long|larg|great|bigg)er than|more than|over the\b|beyond"
                r"|at most|(?:not|n't) fit|not enough|no room|must (?:be|have) (?:<=|less|fewer)|超|过长"
            ),
        ),
        (1, r"token"),
        (1, rf"{_TALK}|\bchat\b|sequence|tokens in (?:the |your )?request|输入"),
        (1, r"length|\bsize|count\b|\blong\b|长度"),
        (1, r"max|limit|at most|\bonly\b|allowed|available|上限|最大"),
        (1, r"reduce|short|truncat|trim|fewer|smaller"),
        # hardly ever about anything else
        (3, rf"(?:{_TALK}|chat)s? (?:\w+ ){{0,3}}(?:is|are|was|were|become|grown) (?:too|longer|larger)"),
        (3, r"context (?:window |limit )?(?:is |was )?(?:full|exhausted|exceeded|used up)|out of context"),
        (3, rf"(?:reduce|shorten) (?:the (?:length|size) of )?(?:the|your) (?:{_TALK})"),
        (3, r"length should be \[\d"),
        # other things that can be too long, or too short
        (-4, r"\b(?:array|string|schema|stop sequences?|budget_tokens|metadata|json|deadline|caching|minimum)\b"),
    )
)


def weigh_overflow(text: str, figures: Figures) -> int:
    weight = 0
    for word_weight, words in IDEA:
        if words.search(text):
            weight += word_weight
    if figures.over:
        weight += 2
    return weight


RATE = re.compile(
    r"rate.?limit|\bper[ -](?:sec|min|hour|day|month)|(?:daily|monthly|this (?:day|month))|quota|throttl|\bwait\b"
    r"|too many requests|(?:try again|retry) (?:in|after|later)|concurren|credit|billing|balance|overloaded"
)


def extract_text(status: int, headers: Headers, body: bytes) -> str | None:
    """Return the server's own words in lower case, without a quoted request; None if it is no readable error."""
    try:
        text = decode_body(body, find_encoding(headers), BODY_MAX_BYTES).decode(errors="replace")
    except ValueError:
        return None
    if status == 200 and not begins_as_error(text.encode()):  # noqa: PLR2004
        return None
    return "\n".join(_iterate_sentences(_parse_json(text))).lower()[:4_096]


_ERROR_MEMBER = b'{"error":'
_NO_ERROR = (b"null", b"false", b'""', b"{}")


def begins_as_error(body: bytes | bytearray) -> bool:
    """Return True if an answer with status 200 is an error. White space, which keeps clients alive, may come first."""
    start = _compact_beginning(body)
    if start.startswith(_ERROR_MEMBER):
        return not start.startswith(_NO_ERROR, len(_ERROR_MEMBER))
    return start.startswith(b'{"object":"error"')


def may_begin_as_error(body: bytes | bytearray) -> bool:
    """Return True if more of the body may show that it is an error."""
    start = _compact_beginning(body)
    if not start:
        return False
    beginnings = (b'{"object":"error"', *(_ERROR_MEMBER + value for value in _NO_ERROR))
    is_cut = any(beginning.startswith(start) and beginning != start for beginning in beginnings)
    return is_cut or begins_as_error(body)


def _compact_beginning(body: bytes | bytearray) -> bytes:
    return bytes(body.lstrip(b" \t\r\n[")[:256]).translate(None, b" \t\r\n[")[:64]


def _iterate_sentences(value: Any, name: str = "message", level: int = 0) -> Iterator[str]:  # noqa: ANN401 - any JSON
    """Yield the sentences and figures of an error. *name* is the member that holds the value."""
    if level > 8:  # noqa: PLR2004 (no server nests its errors deeper)
        return
    match value:
        case str() if name in {"code", "type", "error_type", "status"}:
            yield value.replace("_", " ")
        case str() if name in {
            "message",
            "msg",
            "detail",
            "error",
            "error_msg",
            "reason",
            "description",
            "title",
            "raw",
        }:
            inner = _parse_json(value)
            if isinstance(inner, str):
                yield value
            else:
                yield from _iterate_sentences(inner, name, level + 1)
        case int() if "token" in name or "ctx" in name:
            yield f"{name}={value}"
        case list():
            for element in value:
                yield from _iterate_sentences(element, name, level + 1)
        case dict():
            for key, member in value.items():
                yield from _iterate_sentences(member, key, level + 1)


def _parse_json(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Return the error that a router wrapped in a text, or the text itself."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
