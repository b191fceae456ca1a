"""Observations: messages in the role of a user in which an environment speaks, not a person.

Agents without tools run the commands in a model's answer and send the output back as a user message. Patterns find
such messages. A pattern can be wrong, and a person's words must never be folded as if they were output, so four limits
hold. A message is a person's

- before the first answer of the model,
- in any history that holds tool calls or results: such an agent sends its output as results,
- where it holds a pin,
- where words stand beside the output: after a closing `</output>`, or in a `<feedback>` of their own.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from proxy.core.model.messages import Message
from proxy.core.pins import Pins

OBSERVATIONS = (
    r"^\s*(?:Observation|OBSERVATION|Tool output|Tool result|Command output|EXECUTION RESULT)\b[^\n]*:",
    r"^\s*<(?:returncode|output|observation|tool_response|function_results?|result)>",
    r"\nbash-\$\s*$",
    r"^\s*I ran this command:\n",
    r"^\[\w+(?: for '[^\n]*')?\] Result:",
)
NO_PINS = Pins()
MOST_CHARACTERS = 1_000
"""What a pattern sees of a message: its first and its last characters. A search may take the square of this."""
MAX_LOOPS = 2
_LOOPS = re.compile(r"(?<!\\)(?:[*+]|\{\d*,\d*\})")
_RISKY = re.compile(r"(?<!\\)(?:\)[*+{]|\(\?[=!<P(])|\\[1-9]")
_OPENING_TAG = re.compile(r"\s*<(\w+)>")
# Where agents that know tools by text only put what a person answered to a result.
_USER_TAGS = re.compile(r"^<(?:feedback|answer|user_message)>$", re.MULTILINE)
_NUMBER = re.compile(r"\d+")


def find_pattern_fault(pattern: str) -> str | None:
    """The fault of a pattern for observations, or None: patterns that could be slow are refused."""
    if _RISKY.search(pattern):
        return "a pattern for observations may not repeat a group, look around or refer back: it could be made slow"
    loops = len(_LOOPS.findall(pattern))
    if loops > MAX_LOOPS or (loops == MAX_LOOPS and not pattern.startswith("^")):
        return "a pattern for observations may hold one of * + {n,}, or two where it begins with ^: more could be slow"
    try:
        re.compile(pattern)
    except re.error as error:
        return f"not a regular expression: {error}"
    return None


@lru_cache(maxsize=1_024)
def _compile(pattern: str) -> re.Pattern[str] | None:
    """The compiled pattern; None for one that is refused (configuration reports it, here it matches nothing)."""
    return None if find_pattern_fault(pattern) else re.compile(pattern)


def is_text_style(body: Iterable[Message]) -> bool:
    """True where a history holds no tool call and no result, so that output can only be in user messages."""
    return not any(message.is_result or message.calls for message in body)


def mark_observations(
    body: tuple[Message, ...], patterns: tuple[str, ...], pins: Pins = NO_PINS, *, text_style: bool = False
) -> tuple[Message, ...]:
    """The same messages, with `observed` set where an environment speaks in the role of a user.

    `text_style`: a block stands that was made before the first tool call. What stands before that call is read as it
    was read then, or the messages that were forwarded already would change.
    """
    if not patterns or not (text_style or is_text_style(body)):
        return body
    answered = False
    reminders = set[str]()
    marked: list[Message] = []
    for place, message in enumerate(body):
        if message.is_result or message.calls:
            marked += body[place:]
            break
        is_candidate = answered and message.role == "user"
        is_output = is_candidate and _is_output(message.text, patterns, pins, reminders)
        marked.append(replace(message, observed=True) if is_output else message)
        answered = answered or message.role == "assistant"
    return tuple(marked)


def _is_output(text: str, patterns: Iterable[str], pins: Pins, reminders: set[str]) -> bool:
    """True where a message is output and nothing else.

    `reminders` are words that stood beside earlier outputs. The first time they may be a person's. Words that come
    again with every output are a reminder that the client adds ("3 steps left"), and keep nothing.
    """
    ends = text if len(text) <= 2 * MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}\n{text[-MOST_CHARACTERS:]}"
    rules = filter(None, map(_compile, patterns))
    if not any(rule.search(ends) for rule in rules) or pins.stand_in(text) or _USER_TAGS.search(text):
        return False
    beside = _NUMBER.sub("", words_beside_output(text))
    is_reminder = beside in reminders
    reminders.add(beside)
    return not beside or is_reminder


def words_beside_output(text: str) -> str:
    """The text after the elements that a message begins with; empty where it begins with none."""
    end = 0
    while opening := _OPENING_TAG.match(text, end):
        closing = f"</{opening[1]}>"
        stop = text.find(closing, opening.end())
        if stop < 0:
            break
        end = stop + len(closing)
    return text[end:].strip() if end else ""
