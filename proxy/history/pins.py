"""Pins: passages that must survive verbatim, and the check that they did.

A rule given in turn three may be missing from a summary and broken in turn ninety. So a policy names tags, markers and
patterns, and the passages that they find stay byte for byte, the newest first, up to a budget:

    tags: [rules]      <rules>Never touch production.</rules>
    markers: [MUST]    Answers MUST be in French.

Only a user or a system message can hold a pin: a web page that a tool fetched cannot pin itself. Markers and patterns
are looked for in the beginning of a line, and a pattern may repeat one thing only and match in a hundred ways at most,
so that no text can make it slow. At the worst, a line of 2,000 characters takes a second and a half.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import filterfalse
from typing import Annotated

from msgspec import Struct

from proxy.foundation.declaration import INTERNAL, check_texts
from proxy.history.messages import HEAD, NOTE, Message


def find_pin_fault(pattern: str, *, repetitions: int = 1) -> str | None:
    """Return why a pattern is refused, or None. One that a text could make slow is."""
    atom = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\\\]])*\]", re.DOTALL)  # an escaped character, or a set
    if any(re.fullmatch(r"\\[1-9]", text) for text in atom.findall(pattern)):
        return "a pattern may not refer back: it could be made slow"
    form = atom.sub("a", pattern)
    if re.search(r"\)[*+{]|\(\?(?:[=!<P(#]|[a-zA-Z]*x)", form):
        return "a pattern may not repeat a group, look around or hold comments: it could be made slow"
    form = re.sub(r"\{\d+\}", "", form)
    form = re.sub(r"([*+?]|\{\d*,\d*\})[?+]", r"\1", form)  # the second says how, as in `*?`
    repetition_count = len(re.findall(r"[*+]|\{\d*,\d*\}", form))
    if repetition_count > repetitions:
        return f"a pattern may hold {repetitions} of * + {{n,}} only: more could be made slow"
    max_ways = 100 if repetition_count else 1_000
    if _count_ways(form) > max_ways:
        return (
            f"a pattern may match in {max_ways} ways at most (each x? doubles them, and a|b|c has three): "
            "more could be made slow, so write several patterns"
        )
    try:
        compile_pattern(pattern)
    except re.error as error:
        return f"not a regular expression: {error}"
    return None


def _count_ways(form: str) -> int:
    """Return in how many ways a pattern without escapes and sets combines its optional parts and alternatives."""
    ways: int = 2 ** len(re.findall(r"(?<!\()\?", form))
    while groups := re.findall(r"\([^()]*\)", form):  # from the innermost groups outwards
        for group in groups:
            ways *= 1 + group.count("|")
        form = re.sub(r"\([^()]*\)", "", form)
    return ways * (1 + form.count("|"))


class Pins(Struct, frozen=True):
    """Passages that are kept word for word, the newest 16,000 bytes of them. Only users and system messages can pin."""

    tags: tuple[str, ...] = ()
    """Names of tags: everything between <tag> and </tag> is kept."""
    markers: tuple[str, ...] = ()
    """Texts: each line that contains one of them in its first 2,000 characters is kept."""
    patterns: Annotated[tuple[str, ...], check_texts(find_pin_fault)] = ()
    """Regular expressions: each line that matches one in its first 2,000 characters is kept. Each may hold one
    repetition (* + {n,}), and match in 100 ways (each x? doubles them, and a|b|c has three); without one, in 1,000."""
    budget: Annotated[int, INTERNAL] = 16_000
    """Bytes of pinned passages in all. If there are more, or more than 250 passages, older ones are not kept."""

    def find(self, message: Message) -> tuple[str, ...]:
        if message.role in ("user", *HEAD) and (self.tags or self.markers or self.patterns):
            return tuple(self._find(message.text))
        return ()

    def choose(self, messages: Sequence[Message], passages_of_each: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        """Return the newest passages that fit the budget, in their order, each once."""
        candidates: list[str] = []
        for message, passages in zip(messages, passages_of_each, strict=True):
            if passages and _may_pin(message):
                candidates += passages
        remaining_bytes = self.budget
        max_passages = 250  # each is searched in each message that may hold it
        chosen: dict[str, None] = {}
        for passage in reversed(candidates):
            size = len(passage.encode("utf-8", "surrogatepass"))
            if passage not in chosen and size <= remaining_bytes and len(chosen) < max_passages:
                chosen[passage] = None
                remaining_bytes -= size
        return tuple(reversed(chosen))

    def stand_in(self, text: str) -> bool:
        return any(self._find(text))

    def _find(self, text: str) -> Iterable[str]:
        for tag in self.tags:
            yield from _find_between(text, f"<{tag}>", f"</{tag}>")
        rules = list(map(compile_pattern, self.patterns))
        markers = list(filter(text.__contains__, self.markers))
        if not rules and not markers:
            return
        for line in text.split("\n"):
            start = line[:2_000]
            if any(map(start.__contains__, markers)) or any(rule.search(start) for rule in rules):
                yield line


def must_stay(message: Message, passages: Sequence[str]) -> bool:
    """Return whether no step may touch a message, wherever it stands: instructions, tool definitions, pins."""
    if message.literal:
        return False
    if message.is_fixed or message.declares_tools or (message.role in HEAD and not message.is_observation):
        return True
    return bool(passages) and _may_pin(message) and any(map(message.text.__contains__, passages))


def find_fixed(messages: Iterable[Message], passages: Sequence[str], newest_words: int | None) -> frozenset[int]:
    """Return the starts of messages that no step may touch: the newest words, and those that must stay anyway."""
    starts = set()
    for message in messages:
        if must_stay(message, passages) or (message.start == newest_words and not message.literal):
            starts.add(message.start)
    return frozenset(starts)


def find_missing_passages(passages: Sequence[str], view: Sequence[Message]) -> tuple[str, ...]:
    """Return the pinned passages that stand nowhere in a view."""
    missing_passages = tuple(passages)
    for message in view:
        if missing_passages and (_may_pin(message) or message.made == NOTE):
            missing_passages = tuple(filterfalse(message.text.__contains__, missing_passages))
    return missing_passages


@lru_cache(maxsize=1_024)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern that `find_pin_fault` has allowed, or `find_pattern_fault` for observations."""
    return re.compile(pattern)


def _may_pin(message: Message) -> bool:
    return message.role in HEAD or message.is_user


def _find_between(text: str, opening: str, closing: str) -> Iterable[str]:
    start = text.find(opening)
    while start >= 0:
        stop = text.find(closing, start)
        if stop < 0:
            return
        yield text[start : stop + len(closing)]
        start = text.find(opening, stop)
