"""Is this answer a summary? What is none is never stored: the history it would have replaced is gone by then.

Models asked for a summary have been seen to answer with nothing, with half of it, with a tool call, with their
thoughts only, with more than they were given, and in another language. Each of these has a word here, and the word
says whether the same question, put another way, is worth another try.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.pipeline import Count

_THOUGHT = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL)
_UNFINISHED = re.compile(r"<(?:think|thinking|reasoning)>.*\Z", re.DOTALL)
_NOTHING = ("", "null", "none", "n/a", '""', "''", "{}", "[]")
_ENOUGH_HEADINGS = 0.5
_FOREIGN = 0.3
_FAMILIAR = 0.1
_SHORTEST = 40
"""A summary of fewer characters tells nothing."""
_TELLING = 12
"""So many letters tell a script."""
_SCRIPTS = {
    "cyrillic": re.compile(r"[\u0400-\u052f]"),
    "greek": re.compile(r"[\u0370-\u03ff]"),
    "hebrew": re.compile(r"[\u0590-\u05ff]"),
    "arabic": re.compile(r"[\u0600-\u06ff\u0750-\u077f]"),
    "indic": re.compile(r"[\u0900-\u0dff]"),
    "thai": re.compile(r"[\u0e00-\u0e7f]"),
    "korean": re.compile(r"[\u1100-\u11ff\uac00-\ud7af]"),
    "kana": re.compile(r"[\u3040-\u30ff]"),
    "han": re.compile(r"[\u3400-\u9fff]"),
}
_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True, slots=True)
class Said:
    """A model's answer, as far as it matters here."""

    text: str
    finish: str = "stop"
    calls: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The summary, or why there is none."""

    text: str = ""
    why: str = ""


def judged(said: Said, *, weight: int, most: int, headings: Sequence[str], words: str, count: Count) -> Verdict:
    """`weight`: tokens of what it replaces; `most`: how long it may be; `words`: what the user said."""
    if said.calls:
        return Verdict(why="tool-call")
    if said.finish not in ("stop", "", "end_turn", "eos"):
        return Verdict(why="cut-off" if said.finish in ("length", "max_tokens") else "refused")
    text = _UNFINISHED.sub("", _THOUGHT.sub("", said.text)).strip()
    if len(text) < _SHORTEST or text.lower() in _NOTHING:
        return Verdict(why="empty")
    size = count(text.encode("utf-8", "replace"))
    if size >= weight or size > 2 * most:
        return Verdict(why="too-long")
    there = sum(heading.lower() in text.lower() for heading in headings)
    if there < len(headings) * _ENOUGH_HEADINGS:
        return Verdict(why="no-sections")
    return Verdict(why="language") if _another_script(text, words) else Verdict(text)


def _another_script(text: str, words: str) -> bool:
    """Whether the summary is written in letters that the user hardly used, or without those the user did use."""
    ours, theirs = _shares(text), _shares(words)
    if not ours or not theirs:
        return False
    foreign = any(share > _FOREIGN and theirs[script] < _FAMILIAR for script, share in ours.items())
    return foreign or any(share > _FOREIGN and ours[script] < _FAMILIAR for script, share in theirs.items())


def _shares(text: str) -> dict[str, float]:
    """How much of the letters belongs to each script that is not Latin; nothing where there are too few."""
    letters = len(_LETTER.findall(text))
    if letters < _TELLING:
        return {}
    return {script: len(pattern.findall(text)) / letters for script, pattern in _SCRIPTS.items()}
