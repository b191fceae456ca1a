"""The figures of a refusal, each by the words around it: a limit, the size of the prompt, of the answer.

prompt is too long: 213044 tokens > 200000 maximum   ->  size 213044, limit 200000
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

FIGURE_MIN = 256
"""Smaller numbers count messages, images, status codes."""
LIMIT_MIN_TOKENS = 2_048
"""No model reads less; some servers put their own error codes where others put a limit."""
MAX_TOKENS = r"\bmax_(?:new_|completion_|output_)?tokens\b"
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
        """The tokens that the prompt leaves for the answer."""
        if not self.limit or not self.prompt:
            return None
        return self.limit - self.prompt

    @property
    def whole(self) -> int:
        return max(self.size or 0, (self.stated_prompt or 0) + (self.answer or 0))

    @property
    def over(self) -> bool:
        """True if the figures alone show a size above its limit."""
        allowed_tokens = self.limit or self.longest_answer
        return allowed_tokens is not None and self.whole > allowed_tokens


def find_figures(text: str) -> Figures:
    """The figures in this text."""
    by_role: dict[Role, list[int]] = {}
    for role, number in _iterate_numbers(text):
        by_role.setdefault(role, []).append(number)
    by_role.pop("other", None)
    if len(by_role) == 1:
        by_role = _split_by_size(*by_role.popitem())
    prompt = None
    if "prompt" in by_role:
        prompt = sum(by_role["prompt"])
    return Figures(
        limits=tuple(by_role.get("limit", ())),
        size=max(by_role.get("size", ()), default=None),
        stated_prompt=prompt,
        answer=max(by_role.get("answer", ()), default=None),
        longest_answer=min(by_role.get("longest answer", ()), default=None),
    )


def _split_by_size(role: Role, numbers: list[int]) -> dict[Role, list[int]]:
    """Tell two numbers of one role apart: the smaller one is the limit, the larger one the size."""
    smallest, largest = min(numbers), max(numbers)
    if smallest == largest:
        return {role: numbers}
    return {"limit": [smallest], "size": [largest]}


def _iterate_numbers(text: str) -> Iterator[tuple[Role, int]]:
    """Each number that may be a figure, with its role."""
    numbers = [number for number in NUMBER.finditer(text) if _read_number(number) >= FIGURE_MIN]
    for place, number in enumerate(numbers):
        start, stop = 0, len(text)
        if place > 0:
            start = numbers[place - 1].end()
        if place + 1 < len(numbers):
            stop = numbers[place + 1].start()
        before, after = text[start : number.start()][-60:], text[number.end() : stop][:60]
        yield _find_role(before, after), _read_number(number)


def _find_role(before: str, after: str) -> Role:
    for role, words_before, words_after in _ROLES:
        if words_before.search(before) and words_after.search(after):
            return role
    return "other"


def _read_number(number: re.Match[str]) -> int:
    return int(number[0].replace(",", "").replace("_", ""))
