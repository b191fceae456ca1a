"""Observations: messages in the role of a user in which an environment speaks, not a person.

Agents without tools run the commands in a model's answer and send the output back as a user message. Patterns find
such messages. A pattern can be wrong, and a person's words must never be folded as if they were output. So a message is
a person's

- before the first answer of the model,
- in any history that holds tool calls or results: such an agent sends its output as results,
- if it holds a pin,
- if words stand beside the output, after a closing `</output>` or in an element `<feedback>`.

Two more ways to send output are known by their place: a system message behind an answer that runs something (gptme),
and, behind an action, in the answer itself (CrewAI): "Action: ..." and, below it, "Observation: ...". There the output
alone is an observation; what the model said before it stays.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from proxy.history.messages import HEAD, Message
from proxy.history.pins import Pins, find_pin_fault

OBSERVATIONS = (
    r"^\s*(?:Observation|OBSERVATION|Tool output|Tool result|Command output|Code output|EXECUTION RESULT)\b[^\n]*:",
    r"^\s*<(?:returncode|output|observation|tool_response|function_results?|result)>",
    r"\nbash-\$\s*$",
    r"^\s*I ran this command:\n",
    r"^\[\w+(?: for '[^\n]*')?\] Result:",
)
NO_PINS = Pins()
MOST_CHARACTERS = 1_000
"""What a pattern sees of a message: its first and its last characters. A search may take the square of this."""
MAX_ANCHORED_REPETITIONS = 2
_OPENING_TAG = re.compile(r"\s*<(\w+)>")
# Where agents that know tools by text only put what a person answered to a result.
_USER_TAGS = re.compile(r"^<(?:feedback|answer|user_message)>$", re.MULTILINE)
_NUMBER = re.compile(r"\d+")


EXAMPLES_MIN = 2
"""So many earlier messages of one sort must follow answers that run something, and none may be elsewhere."""
OUTPUT_MIN_CHARACTERS = 500
"""Shorter messages are not worth shortening, and stay."""
_BEGINNING_CHARACTERS = 40
_BEGINNING_LETTERS_MIN = 6
_OUTPUT_WITHIN = re.compile(r"^Observation:", re.MULTILINE)
_FENCED = re.compile(r"^\s{0,8}```\w", re.MULTILINE)
_SENTENCE = re.compile(r"\s*[A-Z][^\n]{8,}[.?!]\s*")


def find_pattern_fault(pattern: str) -> str | None:
    """The fault of a pattern for observations, or None: one that begins with ^ may repeat two things."""
    return find_pin_fault(pattern, repetitions=MAX_ANCHORED_REPETITIONS if pattern.startswith("^") else 1)


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
    """The same messages, marked as observations where an environment speaks as a user or within an answer.

    `text_style`: there is a block from before the first tool call. Messages before that call are read as they
    were read then, or the messages that were forwarded already would change.
    """
    if not patterns or not (text_style or is_text_style(body)):
        return body
    answered, before = False, None
    reminders = set[str]()
    environment = _Environment(next((_name_speaker(message) for message in body if message.role == "user"), ""))
    marked: list[Message] = []
    for place, message in enumerate(body):
        if message.is_result or message.calls:
            marked += body[place:]
            break
        is_output = message.role == "assistant" and _holds_output(message.text) and not pins.stand_in(message.text)
        if answered and message.role != "assistant":
            is_user = message.role == "user"
            is_output = is_user and _is_output(message.text, patterns, pins, reminders)
            is_output = is_output or (environment.is_output(message, before) and not pins.stand_in(message.text))
        marked.append(replace(message, is_observation=True) if is_output else message)
        answered = answered or message.role == "assistant"
        before = before if message.role in HEAD else message
    return tuple(marked)


def find_output_within(text: str) -> int:
    """The place in an answer where its client has put the output behind the action that asked for it; 0 for none."""
    found = _OUTPUT_WITHIN.search(text) if "bservation:" in text else None
    return found.start() if found and _RUNS_SOMETHING.search(text, 0, found.start()) else 0


def _holds_output(text: str) -> bool:
    start = find_output_within(text)
    return start > 0 and len(text) - start >= OUTPUT_MIN_CHARACTERS


class _Environment:
    """The sorts of messages seen so far that may be output, each with how often it followed an answer that runs
    something, and whether it was elsewhere.
    """

    def __init__(self, person: str) -> None:
        self._person = person
        self._examples: dict[str, int] = {}
        self._elsewhere = set[str]()
        self._beginnings = set[str]()
        self._ends = set[str]()

    def is_output(self, message: Message, before: Message | None) -> bool:
        """True where a message is output; it counts as an example from now on. `before`: who spoke before it, the
        system left out.
        """
        text = message.text
        name = _name_speaker(message)
        beginning = "" if message.role in HEAD or name != self._person else _begin_alike(text)
        sort = message.role if message.role in HEAD else f"name {name}" if name != self._person else beginning
        if before is None or before.role != "assistant" or not _runs_something(before.text):
            self._elsewhere.add(sort)
            return False
        if message.role == "user" and name == self._person:
            self._beginnings.add(beginning)
        end = text.rstrip().rpartition("\n")[2]
        # A sentence at the end that was not there before may be what a person asks about the output.
        is_asked = bool(beginning and _SENTENCE.fullmatch(end) and end not in self._ends)
        self._ends.add(end)
        known = self._examples.get(sort, 0)
        self._examples[sort] = known + 1
        is_alike = sort != "" and sort not in self._elsewhere and (not beginning or len(self._beginnings) == 1)
        is_long = len(text) >= OUTPUT_MIN_CHARACTERS
        return is_alike and is_long and known >= EXAMPLES_MIN and not is_asked and not _USER_TAGS.search(text)


def _runs_something(text: str) -> bool:
    return _FENCED.search(text) is not None or _RUNS_SOMETHING.search(text) is not None


def _begin_alike(text: str) -> str:
    """The words with which a message begins, without numbers; empty where it begins with hardly any."""
    line = text.lstrip().partition("\n")[0][:_BEGINNING_CHARACTERS]
    beginning = " ".join(_NUMBER.sub("", line).split())
    return beginning if sum(letter.isalpha() for letter in beginning) >= _BEGINNING_LETTERS_MIN else ""


def _name_speaker(message: Message) -> str:
    """The `name` of a message; empty where it has none."""
    if b'"name"' not in message.raw:
        return ""
    name = json.loads(message.raw).get("name")
    return name if isinstance(name, str) else ""


def _is_output(text: str, patterns: Iterable[str], pins: Pins, reminders: set[str]) -> bool:
    """True where a message is output and nothing else.

    `reminders` are words that were beside earlier outputs. The first time they may be a person's. Words that come
    again with every output are a reminder that the client adds ("3 steps left"), and keep nothing.
    """
    ends = text if len(text) <= 2 * MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}\n{text[-MOST_CHARACTERS:]}"
    rules = filter(None, map(_compile, patterns))
    if not any(rule.search(ends) for rule in rules) or pins.stand_in(text) or _USER_TAGS.search(text):
        return False
    beside = _NUMBER.sub("", find_words_beside_output(text))
    is_reminder = beside in reminders
    reminders.add(beside)
    return not beside or is_reminder


def find_words_beside_output(text: str) -> str:
    """The text after the elements that a message begins with; empty where it begins with none."""
    end = 0
    while opening := _OPENING_TAG.match(text, end):
        closing = f"</{opening[1]}>"
        stop = text.find(closing, opening.end())
        if stop < 0:
            break
        end = stop + len(closing)
    return text[end:].strip() if end else ""


# How agents that know tools by text only ask for one: a block of shell or Python, an action, an element.
_RUNS_SOMETHING = re.compile(
    r"^\s{0,8}```(?:bash|sh|shell|console|python|tool_code|execute)\b|^\s{0,8}(?:Action|Command|Tool)\s{0,4}:"
    r"|^\s{0,8}<(?:execute|function|tool|invoke|command|action|bash|run|read|write|edit|search|list|ls|use)\w{0,40}[\s=>]",
    re.MULTILINE,
)
