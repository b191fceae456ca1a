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

import re

from proxy.path.recovery import LEAST_ANSWER_TOKENS, Refusal
from proxy.shorten.window import Covers
from proxy.wire.encodings import decode_body
from proxy.wire.headers import Headers, find_encoding
from proxy.wire.refusal_figures import MAX_TOKENS, Figures, find_figures
from proxy.wire.refusal_text import BODY_MAX_BYTES, extract_text

RECOVERABLE_KINDS = frozenset({"input", "output", "tpm-hard", "signature", "usage-option"})
"""Kinds that a changed request can help."""
INVALID_STATUSES = (400, 422)
"""An API answers so to a request that is not valid."""
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
