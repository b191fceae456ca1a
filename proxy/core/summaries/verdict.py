"""Checks that an answer is a summary. Any other must never be stored: it would replace a history that is gone by then.

Models asked for a summary have been seen to answer with nothing, with half of it, with a tool call, with their
thoughts only, with more than they were given, and in another language. Each of these has a name here, by which one
can tell whether the question is worth another try.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from proxy.core.pipeline import Count

_WHOLE = ("", "stop", "end_turn", "eos", "eos_token", "stop_sequence")
_CUT = ("length", "max_tokens", "model_length")
_CALLED = ("tool_calls", "function_call", "tool_use")
_TAGS = "think|thinking|thought|reasoning"
_OPENED = re.compile(rf"^[ \t]*<({_TAGS})>", re.MULTILINE | re.IGNORECASE)
_CLOSED = re.compile(rf"^[ \t]*</(?:{_TAGS})>[ \t]*$", re.MULTILINE | re.IGNORECASE)
_ENOUGH_HEADINGS_SHARE = 0.5
_FOREIGN_SHARE = 0.3
_FAMILIAR_SHARE = 0.1
_MIN_BYTES = 40
"""Bytes: what is shorter says nothing."""
_MIN_LETTERS = 12
"""With fewer letters one cannot tell in which script a text is written."""
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
_HEADING = re.compile(r"^#.*$", re.MULTILINE)
_ASCII = re.compile(r"[!-~]+")
_OF_CODE = re.compile(r"[^A-Za-z\s'-](?=\w)|[a-z][A-Z]|`")


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


def judge_answer(said: Said, *, weight: int, most: int, headings: Sequence[str], words: str, count: Count) -> Verdict:
    """The verdict on an answer. `weight`: tokens of what it replaces; `most`: its bound; `words`: the user's."""
    finish = said.finish.lower()
    if said.calls or finish in _CALLED:
        return Verdict(why="tool-call")
    if finish not in _WHOLE:
        return Verdict(why="cut-off" if finish in _CUT else "refused")
    text = _aloud(said.text).strip()
    written = text.encode("utf-8", "replace")
    if len(written) < _MIN_BYTES:
        return Verdict(why="empty")
    size = count(written)
    if size >= weight or size > 2 * most:
        return Verdict(why="too-long")
    there = sum(_section(heading).search(text) is not None for heading in headings)
    if there < len(headings) * _ENOUGH_HEADINGS_SHARE:
        return Verdict(why="no-sections")
    return Verdict(why="language") if _another_script(text, words) else Verdict(text)


def _aloud(text: str) -> str:
    """The answer without the thoughts: those within tags, and those whose opening tag came before the answer.

    A tag in the midst of a line is only being talked about.
    """
    kept, at = list[str](), 0
    while (opened := _OPENED.search(text, at)) is not None:
        closed = re.compile(f"</{opened[1]}>", re.IGNORECASE).search(text, opened.end())
        if closed is None:
            if not "".join((*kept, text[at : opened.start()])).strip():
                return ""
            break
        kept.append(text[at : opened.start()])
        at = closed.end()
    said = "".join((*kept, text[at:]))
    unopened = _CLOSED.search(said)
    return said if unopened is None else said[unopened.end() :]


@lru_cache(maxsize=256)
def _section(heading: str) -> re.Pattern[str]:
    """A heading as models write it: behind marks or a number, on a line of its own or before a colon."""
    mark, name = r"(?:[^\w\n]|_)", re.escape(heading)
    number = rf"(?:\d{{1,2}}[.)]{mark}{{0,4}})?"
    marked = rf"[ \t]{{0,4}}#{{1,6}}{mark}{{0,4}}{number}{name}(?!\w)"
    alone = rf"{mark}{{0,6}}{number}{name}{mark}{{0,4}}(?::|$)"
    return re.compile(rf"^(?:{marked}|{alone})", re.MULTILINE | re.IGNORECASE)


def _another_script(text: str, words: str) -> bool:
    """True where the summary uses a script that the user hardly used, or lacks one that the user did use."""
    ours, theirs = _letters(_HEADING.sub("", text)), _letters(words)
    of_ours, of_theirs = sum(ours.values()), sum(theirs.values())
    if min(of_ours, of_theirs) < _MIN_LETTERS:
        return False
    return any(
        (ours[script] > of_ours * _FOREIGN_SHARE and theirs[script] < min(_MIN_LETTERS, of_theirs * _FAMILIAR_SHARE))
        or (theirs[script] > of_theirs * _FOREIGN_SHARE and ours[script] < of_ours * _FAMILIAR_SHARE)
        for script in _SCRIPTS
    )


def _letters(text: str) -> dict[str, int]:
    """The number of letters of each script, all others under "". Code is in no language: it is left out."""
    prose = _ASCII.sub(lambda found: "" if _OF_CODE.search(found[0]) else found[0], text)
    found = {script: len(pattern.findall(prose)) for script, pattern in _SCRIPTS.items()}
    return {**found, "": max(0, len(_LETTER.findall(prose)) - sum(found.values()))}
