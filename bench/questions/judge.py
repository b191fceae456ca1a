"""Whether a view answers a question, judged by words.

A question is *answered* if every group of its answer stands in what the view still says about the sources: the results
that a reader of the whole history would take the answer from. It is also answered if one message that is no result
(the user's or the model's own words, a call, a note of the proxy) has them all. A result about something else does not
count, though it may have the same words.

An answer is *false* if a placeholder of a source, or a line of a note that names its call, has one of the words that
would mislead ("worked" about a command that failed) and the source itself has not.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from proxy.history.grouping import list_callers
from proxy.history.messages import NOTE, Message
from proxy.tools.tool_call import ToolCall

KINDS = ("outcome", "end state", "task", "instruction", "file", "search", "record")
QUESTIONS = Path(__file__).with_name("questions.yaml")


@dataclass(frozen=True)
class Question:
    """One question, its answer, and the results that the answer stands in."""

    kind: str
    text: str
    about: tuple[str, ...]
    """A result is a source if its call, or an observation itself, has one of these words."""
    messages: tuple[int, ...]
    """Only results with these numbers are sources, if the same call was made more than once; empty: all of them."""
    answer: tuple[tuple[str, ...], ...]
    """Groups of words: of each group one alternative must be there."""
    false: tuple[str, ...] = ()
    """Words that would mislead, in a placeholder of a source."""


@dataclass(frozen=True)
class Checkpoint:
    """A place in a recorded conversation: the request that the message with this number answers."""

    conversation: str
    place: int
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Verdict:
    """What a view does with a question."""

    is_answered: bool
    is_shortened: bool
    """No source that has the whole answer is forwarded as it was."""
    is_false: bool


def read_checkpoints(path: Path = QUESTIONS) -> list[Checkpoint]:
    """Return the checkpoints of a file of questions."""
    rows = yaml.safe_load(path.read_text(encoding="utf-8"))["checkpoints"]
    return [_read_checkpoint(row) for row in rows]


def _read_checkpoint(row: Mapping[str, Any]) -> Checkpoint:
    questions = tuple(_read_question(each) for each in row["questions"])
    return Checkpoint(row["conversation"], row["checkpoint"], questions)


def _read_question(row: Mapping[str, Any]) -> Question:
    return Question(
        kind=row["kind"],
        text=row["question"],
        about=tuple(_as_list(row["about"])),
        messages=tuple(row.get("messages", ())),
        answer=tuple(tuple(_as_list(group)) for group in row["answer"]),
        false=tuple(row.get("false", ())),
    )


def _as_list(value: str | list[str]) -> list[str]:
    return value if isinstance(value, list) else [value]


def find_sources(question: Question, originals: Sequence[Message]) -> list[int]:
    """Return the places of the results that a question is about."""
    sources = list[int]()
    for place, (message, call) in enumerate(zip(originals, list_callers(originals), strict=True)):
        if not message.is_bulk or (question.messages and place not in question.messages):
            continue
        told = message.text if call is None else f"{call.name} {_list_arguments(call)}"
        if any(words in told for words in question.about):
            sources.append(place)
    return sources


def judge(question: Question, originals: Sequence[Message], view: Sequence[Message]) -> Verdict:
    """Judge a view of these messages. Both begin with the same head, which a policy leaves alone."""
    sources = find_sources(question, originals)
    head_size = sum(1 for message in originals if message.role in ("system", "developer"))
    about, outside = list[Message](), list[Message]()
    for message in view:
        if not message.is_bulk:
            outside.append(message)
        elif any(message.start <= place - head_size < message.stop for place in sources):
            about.append(message)
    texts = ["\n".join(message.text for message in about), *map(_read_words, outside)]
    is_answered = any(has_answer(text, question.answer) for text in texts)
    is_shortened = not any(has_answer(message.text, question.answer) for message in about if not message.literal)
    whole = "\n".join(originals[place].text for place in sources)
    misleading = [words for words in question.false if not has_words(whole, words)]
    told = [message.text for message in about if message.literal]
    if not question.messages:
        told += _list_note_lines(outside, question.about)
    is_false = any(has_words(text, words) for text in told for words in misleading)
    return Verdict(is_answered, is_shortened, is_false)


def judge_bounds(question: Question, originals: Sequence[Message]) -> tuple[Verdict, Verdict]:
    """Judge the view of which every result is left out, and the whole history."""
    without_results = [message for message in originals if not message.is_bulk]
    return judge(question, originals, without_results), judge(question, originals, originals)


def has_answer(text: str, answer: Iterable[Iterable[str]]) -> bool:
    """Return whether a text has one alternative of every group."""
    return all(any(has_words(text, words) for words in group) for group in answer)


def has_words(text: str, words: str) -> bool:
    """Return whether a text has these words: whole ones, in any case, with any white space between them."""
    pattern = r"\s+".join(map(re.escape, words.split()))
    before = r"(?<!\w)" if words[:1].isalnum() else ""
    behind = r"(?!\w)" if words[-1:].isalnum() else ""
    return re.search(f"{before}{pattern}{behind}", text, re.IGNORECASE) is not None


def _read_words(message: Message) -> str:
    """The text of a message and the arguments of its calls."""
    return "\n".join([message.text, *map(_list_arguments, message.calls)])


def _list_arguments(call: ToolCall) -> str:
    """The texts among the arguments; the arguments as they are if they are no JSON object."""
    return "\n".join(_list_texts(call.named)) or call.arguments


def _list_texts(value: Any) -> Iterator[str]:  # noqa: ANN401 (any JSON)
    if isinstance(value, Mapping):
        for member in value.values():
            yield from _list_texts(member)
    elif isinstance(value, list):
        for element in value:
            yield from _list_texts(element)
    else:
        yield str(value)


def _list_note_lines(outside: Iterable[Message], about: Sequence[str]) -> Iterator[str]:
    """The lines of notes that name one of these calls."""
    for message in outside:
        if message.made == NOTE:
            yield from (line for line in message.text.split("\n") if any(words in line for words in about))
