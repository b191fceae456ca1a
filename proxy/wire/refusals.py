"""Refusals of an upstream, classified: prompt too long, answer too long, rate limit, body too large, bad signature.

Every server words its errors differently. Figures are read by the words around them (`ROLES`); words about a full
context window, and about other errors that sound similar, have weights (`WEIGHTS`). If in doubt, it is no overflow: a
missed one costs an error that the client can read, a false alarm costs history.

    "maximum context length is 8192 tokens. However, you requested 9000 tokens (8500 in the messages, 500 in the
    completion)"    ->  limit 8192, size 9000, prompt 8500, answer 500: the prompt alone is too long

Real refusals of each kind are in tests/support/overflow_replies.py.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal, TypeGuard, get_args

from msgspec import Struct

from proxy.shorten.economics import Covers
from proxy.wire.encodings import decode_body
from proxy.wire.http_head import Headers, find_encoding

AddedOption = Literal["usage-option", "cache-marks", "cache-key"]
"""An option that the proxy adds to a request: `stream_options`, `cache_control`, `prompt_cache_key`."""
RefusedOption = AddedOption | Literal["options"]
"""`options`: the upstream does not say which, or whether it was one of them at all."""
RefusalKind = Literal["input", "output", "tpm-hard", "rate", "bytes", "signature", "invalid", "other"] | RefusedOption
"""`invalid`: status 400 or 422, and `classify` does not know why. `other`: no changed request is known to help."""


def is_option(kind: RefusalKind) -> TypeGuard[RefusedOption]:
    return kind == "options" or kind in get_args(AddedOption)


class Refusal(Struct, frozen=True):
    """A classified error. Its figures are in tokens; None if the error does not name them."""

    kind: RefusalKind
    limit: int | None = None
    size: int | None = None
    covers: Covers = "total"
    answer_room: int | None = None
    """The longest answer that the upstream would accept, if `kind` is `output`."""


LEAST_ANSWER_TOKENS = 1_024
"""If less is left for an answer, it is the history that is too long."""
BODY_MAX_BYTES = 64 * 1024
"""A longer body is no error message."""
OPTION_NAMES: Mapping[AddedOption, Sequence[bytes]] = {
    "usage-option": (b"stream_options", b"include_usage"),
    "cache-marks": (b"cache_control",),
    "cache-key": (b"prompt_cache_key",),
}
"""The names of added options in errors of servers that refuse them, with examples in `REFUSED_OPTIONS` of the tests."""
RECOVERABLE_KINDS = frozenset({"input", "output", "tpm-hard", "signature", *OPTION_NAMES})

_MAX_TOKENS = r"\bmax_(?:new_|completion_|output_)?tokens\b"
_LIMIT = (
    r"(?:\b(?:limit|max\w*|most|only|exceed\w*|than|over\b|beyond|window|capacity|allowance|n_ctx)"
    r"|<=|>|上限|最大|超过|超出)[^,;.\n]{0,40}"
)
_TALK = r"prompt|input|message|conversation|history|thread"
Role = Literal["limit", "size", "prompt", "answer", "longest answer", "other"]
# The first row that matches gives the role of a figure. N stands for it, perhaps in a new line. The last column is an
# example; all words are in lower case.
ROLES: tuple[tuple[Role, str, str], ...] = (
    ("other", r"N ?(?:characters|bytes|seconds|ms\b|s\b|[km]i?b\b)", "image exceeds 5 mb maximum: N bytes"),
    ("other", r"input_text, value=N", "(parameter=input_text, value=N)"),  # vLLM: characters
    ("other", r"\b(?:by|used:?) (?:\w+ )?N", "exceeded max context length by N tokens"),
    ("longest answer", rf"{_LIMIT}N (?:completion|output) tokens", "supports at most N completion tokens"),
    ("answer", rf"(?:{_MAX_TOKENS}`?(?: is too \w+| of| \()?[=: ]*|\+ ?)N", "max_tokens is too large: N"),
    ("answer", r"N (?:tokens )?(?:in|for) the (?:completion|output)", "(9969 in the messages, N in the completion)"),
    ("answer", r"N (?:tokens )?(?:(?:completion|output) tokens|`?max_new_tokens)", "requested N output tokens"),
    ("prompt", r"N (?:tokens )?(?:in|from) the (?:messages|functions|input)", "N tokens from the input messages"),
    ("prompt", r"N (?:tokens )?of (?:text|tool) input", "(N of text input, 1000 of tool input)"),
    ("prompt", r"N (?:tokens )?(?:`?inputs?`? tokens|\+)", "given: N `inputs` tokens and 4096 `max_new_tokens`"),
    ("limit", rf"N (?:tokens )?(?:maximum|max\b|allowed|available)|{_LIMIT}N", "context length is only N tokens"),
    ("limit", r"\[\d+, ?N", "range of input length should be [1, N]"),
    ("prompt", r"(?:prompt|input)(?: tokens)? \(N|n_prompt_tokens=N|N prompt tokens", "cannot process N prompt tokens"),
    ("size", r"N", "your messages resulted in N tokens"),
)
WEIGHTS: tuple[tuple[int, str, str], ...] = (
    (2, r"context|n_ctx|max_model_len|\bwindow|上下文", "context window full"),
    (
        2,
        (
            r"exceed|overflow|too (?:long|large|many)|(?:long|larg|great|bigg)er than|more than|over the\b|beyond"
            r"|at most|(?:not|n't) fit|not enough|no room|must (?:be|have) (?:<=|less|fewer)|超|过长"
        ),
        "prompt is longer than the model's context window",
    ),
    (1, r"token", "prompt has too many tokens"),
    (1, rf"{_TALK}|\bchat\b|sequence|tokens in (?:the |your )?request|输入", "input is too long for requested model"),
    (1, r"length|\bsize|count\b|\blong\b|长度", "prompt size limit exceeded"),
    (1, r"max|limit|at most|\bonly\b|allowed|available|上限|最大", "this model can only take 65536 tokens at once"),
    (1, r"reduce|short|truncat|trim|fewer|smaller", "truncate it"),
    # Phrases that are hardly ever about anything else.
    (
        3,
        rf"(?:{_TALK}|chat)s? (?:\w+ ){{0,3}}(?:is|are|was|were|become|grown) (?:too|longer|larger)",
        "your messages are too long for this model",
    ),
    (
        3,
        r"context (?:window |limit )?(?:is |was )?(?:full|exhausted|exceeded|used up)|out of context",
        "ran out of context",
    ),
    (
        3,
        rf"(?:reduce|shorten) (?:the (?:length|size) of )?(?:the|your) (?:{_TALK})",
        "please reduce the length of the messages or completion",
    ),
    (3, r"length should be \[\d", "range of input length should be [1, 129024]"),
    # Names of other things that can be too long, or too short.
    (
        -4,
        r"\b(?:array|string|schema|stop sequences?|budget_tokens|metadata|json|deadline|caching|minimum)\b",
        "array too long: expected at most 4 stop sequences",
    ),
)
"""A text is about an overflow if the weights of the rows that match add up to 5. The last column is an example."""


class Figures(Struct, frozen=True):
    """The tokens that an error names; None if it does not name them."""

    limit: int | None
    """The window, which is the largest limit: some servers also name the prompt's share of it, or an error code."""
    size: int | None
    prompt: int | None
    answer: int | None
    longest_answer: int | None
    total: int
    is_over: bool
    """The total is larger than the limit."""
    has_stopped: bool
    """The server stopped counting: the size is its limit + 1."""


def find_figures(text: str) -> Figures:
    by_role: dict[Role, list[int]] = {}
    for role, number in _iterate_numbers(text):
        by_role.setdefault(role, []).append(number)
    by_role.pop("other", None)
    if len(by_role) == 1:
        [numbers] = by_role.values()
        if min(numbers) < max(numbers):  # the smaller of two numbers is the limit
            by_role = {"limit": [min(numbers)], "size": [max(numbers)]}
    limits = by_role.get("limit", [])
    # Smaller limits bound other things, such as lists: windows below 2,048 tokens have to be set (docs/upstreams.md).
    limit = max(limits, default=0) if max(limits, default=0) >= 2_048 else None  # noqa: PLR2004
    size = max(by_role.get("size", ()), default=None)
    answer = max(by_role.get("answer", ()), default=None)
    longest_answer = min(by_role.get("longest answer", ()), default=None)
    stated_prompt = sum(by_role.get("prompt", ())) or None
    prompt = size - answer if stated_prompt is None and size and answer else stated_prompt
    total = max(size or 0, (stated_prompt or 0) + (answer or 0))
    allowed_tokens = limit or longest_answer
    is_over = allowed_tokens is not None and total > allowed_tokens
    has_stopped = any(limit + 1 in (stated_prompt, size) for limit in limits)
    return Figures(limit, size, prompt, answer, longest_answer, total, is_over, has_stopped)


def _iterate_numbers(text: str) -> Iterator[tuple[Role, int]]:
    figures = re.finditer(r"(?<![a-z0-9.])(?:\d{1,3}(?:[,_]\d{3}){1,3}|\d{1,10})(?![a-z0-9]|\.\d)", text)
    # Smaller numbers count messages, images, status codes.
    numbers = [figure for figure in figures if _read_number(figure) >= 256]  # noqa: PLR2004
    start = 0
    for number, next_number in zip_longest(numbers, numbers[1:]):
        stop = len(text) if next_number is None else next_number.start()
        words = text[start : number.start()][-60:] + "N" + text[number.end() : stop][:60]
        start = number.end()
        for role, pattern, _ in ROLES:
            if re.search(pattern.replace("N", r"\n?N"), words):
                yield role, _read_number(number)
                break


def _read_number(number: re.Match[str]) -> int:
    return int(number[0].replace(",", "").replace("_", ""))


def classify(status: int, headers: Headers, body: bytes) -> Refusal | None:
    """Classify an error. Return None if its cause is not known."""
    # 200 and 502 are answers of routers that wrap another server's error.
    if status not in {200, 400, 413, 422, 429, 500, 502} or len(body) > BODY_MAX_BYTES:
        return None
    if not body:
        # Cerebras answers so to a prompt that is too long: tests/support/overflow_replies.py.
        return Refusal("input") if status in (400, 413) else None
    try:
        body = decode_body(body, find_encoding(headers), BODY_MAX_BYTES)
    except ValueError:
        return None
    if status == 200 and not begins_as_error(body):  # noqa: PLR2004
        return None
    # Only the server's own words: an error may quote the request.
    sentences = _iterate_sentences(_parse_json(body.decode(errors="replace")))
    text = "\n".join(sentences).lower()[:4_096]
    refusal = _classify_text(status, text, find_figures(text))
    if refusal is None and status in (400, 422, 500, 502):
        for option, names in OPTION_NAMES.items():  # validators name an option outside of the message
            if any(name in body for name in names):
                return Refusal(option)
    return refusal


def _classify_text(status: int, text: str, figures: Figures) -> Refusal | None:
    """Classify an error by the server's own words, which are in lower case."""
    signature_words = (
        r"thinking|thought|reasoning|encrypted",
        r"signature|encrypted|blocks",
        r"invalid|not valid|corrupt|mismatch|tamper|not be (?:verified|decrypted|modified)",
    )
    if all(re.search(words, text) for words in signature_words):
        return Refusal("signature")
    rate = (
        r"rate.?limit|\bper[ -](?:sec|min|hour|day|month)|(?:daily|monthly|this (?:day|month))|quota|throttl|\bwait\b"
        r"|too many requests|(?:try again|retry) (?:in|after|later)|concurren|credit|billing|balance|overloaded"
    )
    if status == 429 or re.search(rate, text):  # noqa: PLR2004
        if figures.is_over and "token" in text:
            return Refusal("tpm-hard", figures.limit, figures.total)
        return Refusal("rate")
    weight = 2 if figures.is_over else 0
    for row_weight, words, _ in WEIGHTS:
        if re.search(words, text):
            weight += row_weight
    if weight >= 5:  # noqa: PLR2004 (tests/support/overflow_sentences.tsv is read right by it)
        return _read_overflow(text, figures)
    counts_bytes = r"(?:request|payload|body|entity)(?: \w+)? too large|\d ?(?:bytes|[km]i?b)\b"
    if status == 413 or re.search(counts_bytes, text):  # noqa: PLR2004
        return Refusal("bytes")
    return None


def _read_overflow(text: str, figures: Figures) -> Refusal:
    """Tell an input that is too long, which asks for a shorter history, from an answer that is too long."""
    limit, prompt = figures.limit, figures.prompt
    prompt_alone = r"\b(?:input|prompt)`?s?`? (?:token|length|must)|max(?:imum)? (?:input|prompt)|prompt is too long:"
    shared_limit = r"context|\bwindow\b|total|completion|output|sequence|generat|max_\w*tokens"
    covers: Covers = "total"
    if any(re.search(prompt_alone, line) and not re.search(shared_limit, line) for line in text.splitlines()):
        covers = "input"
    room = limit - prompt if limit and prompt else None
    has_room = room is not None and room >= LEAST_ANSWER_TOKENS
    if figures.has_stopped:
        return Refusal("input", limit, covers=covers)
    if figures.longest_answer:
        return Refusal("output", answer_room=figures.longest_answer)
    if limit and figures.answer and (room is None or has_room):
        return Refusal("output", limit, prompt, covers, room)
    if figures.size is None and has_room:
        return Refusal("output", limit, prompt, covers, room)  # the prompt alone would have fitted
    answer_too_long = (
        rf"{_MAX_TOKENS}[^.]{{0,60}}(?:too (?:large|high|big)|greater|larger|exceed|at most|<=)"
        rf"|(?:reduce|decrease|lower)[^.]{{0,12}}{_MAX_TOKENS}"
    )
    if prompt is None and re.search(answer_too_long, text):
        return Refusal("output", limit, covers=covers)
    return Refusal("input", limit, prompt or figures.size, covers)


_NO_ERRORS = (b'{"error":null', b'{"error":false', b'{"error":""', b'{"error":{}')


def begins_as_error(body: bytes | bytearray) -> bool:
    """Return True if an answer with status 200 is an error. White space, which keeps clients alive, may come first."""
    start = _compact_beginning(body)
    return start.startswith((b'{"error":', b'{"object":"error"')) and not start.startswith(_NO_ERRORS)


def may_begin_as_error(body: bytes | bytearray) -> bool:
    """Return True if more of the body may show that it is an error. White space alone is passed on at once."""
    return 0 < len(_compact_beginning(body)) < len(b'{"object":"error"') or begins_as_error(body)


def _compact_beginning(body: bytes | bytearray) -> bytes:
    return bytes(body.lstrip(b" \t\r\n[")[:256]).translate(None, b" \t\r\n[")[:64]


def _iterate_sentences(value: Any, name: str = "message", level: int = 0) -> Iterator[str]:  # noqa: ANN401 - any JSON
    """Yield the sentences and figures of an error. *name* is the member that holds the value."""
    if level > 8:  # noqa: PLR2004 (no server nests its errors deeper)
        return
    sentence_names = {"message", "msg", "detail", "error", "error_msg", "reason", "description", "title", "raw"}
    match value:
        case str() if name in {"code", "type", "error_type", "status"}:
            yield value.replace("_", " ")
        case str() if name in sentence_names:
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
