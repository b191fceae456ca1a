"""Checks that an answer is a summary. Any other must never be stored: it would replace a history that is gone by then.

Models asked for a summary have been seen to answer with nothing, with half of it, with a tool call, with their thoughts
only, with more than they were given, and in another language. Each of these has a name here, by which one can tell
whether the question is worth another try.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from proxy.shorten.pipeline import Count

_WHOLE = ("", "stop", "end_turn", "eos", "eos_token", "stop_sequence")
_CUT = ("length", "max_tokens", "model_length")
_CALLED = ("tool_calls", "function_call", "tool_use")
_TAGS = "think|thinking|thought|reasoning"
_OPENED = re.compile(rf"^[ \t]*<(?:{_TAGS})>", re.MULTILINE | re.IGNORECASE)
_CLOSING = re.compile(rf"</(?:{_TAGS})>", re.IGNORECASE)
_THOUGHTS = re.compile(rf"{_OPENED.pattern}.*?{_CLOSING.pattern}", re.MULTILINE | re.IGNORECASE | re.DOTALL)
_CLOSED = re.compile(rf"^[ \t]*</(?:{_TAGS})>[ \t]*$", re.MULTILINE | re.IGNORECASE)
_ENOUGH_HEADINGS_SHARE = 0.5
_FOREIGN_SHARE = 0.3
_FAMILIAR_SHARE = 0.1
_MIN_BYTES = 40
"""Bytes: a shorter answer says nothing."""
_MIN_LETTERS = 12
"""With fewer letters one cannot tell in which script a text is written."""
# Scripts that one text may mix, and that differ from others only together.
_SAME_SCRIPT = {"HIRAGANA": "KANA", "KATAKANA": "KANA"}
_LETTERS_AND_MARKS = "LM"
_ASCII = re.compile(r"[!-~]+")
_OF_CODE = re.compile(r"[^A-Za-z\s'-](?=\w)|[a-z][A-Z]|`")


@dataclass(frozen=True, slots=True)
class SummaryReply:
    """A model's answer, as far as it matters here."""

    text: str
    finish: str = "stop"
    calls: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The summary, or why there is none."""

    text: str = ""
    why: str = ""


def judge_answer(
    reply: SummaryReply, *, weight: int, most: int, headings: Sequence[str], words: str, count: Count
) -> Verdict:
    """Judge an answer. `weight`: tokens of the messages that it replaces; `most`: its bound; `words`: the user's."""
    finish = reply.finish.lower()
    if reply.calls or finish in _CALLED:
        return Verdict(why="tool-call")
    if finish not in _WHOLE:
        return Verdict(why="cut-off" if finish in _CUT else "refused")
    text = _remove_thoughts(reply.text).strip()
    written = text.encode("utf-8", "replace")
    if len(written) < _MIN_BYTES:
        return Verdict(why="empty")
    size = count(written)
    if size >= weight or size > 2 * most:
        return Verdict(why="too-long")
    answered = [heading for heading in headings if _compile_heading(heading).search(text)]
    if len(answered) < len(headings) * _ENOUGH_HEADINGS_SHARE:
        return Verdict(why="no-sections")
    return Verdict(why="language") if _uses_other_script(text, words) else Verdict(text)


def _remove_thoughts(text: str) -> str:
    """The answer without the thoughts: those within tags, and those whose opening tag came before the answer.

    A tag in the midst of a line is only being talked about.
    """
    # Behind the last tag that closes nothing is searched: from each tag that opens it would be, to the end.
    end = max((closing.end() for closing in _CLOSING.finditer(text)), default=0)
    answer = (_THOUGHTS.sub("", text[:end]) + text[end:]).strip()
    if _OPENED.match(answer):
        return ""
    unopened = _CLOSED.search(answer)
    return answer if unopened is None else answer[unopened.end() :]


@lru_cache(maxsize=256)
def _compile_heading(heading: str) -> re.Pattern[str]:
    """A heading as models write it: behind marks or a number, on a line of its own or before a colon."""
    mark, name = r"(?:[^\w\n]|_)", re.escape(heading)
    number = rf"(?:\d{{1,2}}[.)]{mark}{{0,4}})?"
    marked = rf"[ \t]{{0,4}}#{{1,6}}{mark}{{0,4}}{number}{name}(?!\w)"
    alone = rf"{mark}{{0,6}}{number}{name}{mark}{{0,4}}(?::|$)"
    return re.compile(rf"^(?:{marked}|{alone})", re.MULTILINE | re.IGNORECASE)


def _uses_other_script(text: str, words: str) -> bool:
    """Whether the summary uses a script that the user hardly used, or lacks one that the user did use."""
    prose = "\n".join(line for line in text.split("\n") if not line.startswith("#"))
    summary_letters, user_letters = _count_letters(prose), _count_letters(words)
    summary_total, user_total = summary_letters.total(), user_letters.total()
    if min(summary_total, user_total) < _MIN_LETTERS:
        return False
    for script in {*summary_letters, *user_letters} - {"LATIN"}:
        of_summary, of_user = summary_letters[script], user_letters[script]
        is_foreign = of_summary > summary_total * _FOREIGN_SHARE
        if is_foreign and of_user < min(_MIN_LETTERS, user_total * _FAMILIAR_SHARE):
            return True
        if of_user > user_total * _FOREIGN_SHARE and of_summary < summary_total * _FAMILIAR_SHARE:
            return True
    return False


def _count_letters(text: str) -> Counter[str]:
    """The number of letters of each script. Code is in no language: it is left out."""
    prose = _ASCII.sub(lambda word: "" if _OF_CODE.search(word[0]) else word[0], text)
    scripts = Counter[str]()
    for letter, count in Counter(prose).items():
        if unicodedata.category(letter)[0] in _LETTERS_AND_MARKS:
            script = unicodedata.name(letter, "").partition(" ")[0]
            scripts[_SAME_SCRIPT.get(script, script)] += count
    return scripts
