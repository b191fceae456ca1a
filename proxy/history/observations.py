"""Observations: messages in the role of a user in which an environment speaks, not a person.

Agents without tools run the commands in a model's answer and send the output back as a user message. Patterns find
such messages. A pattern can be wrong, and a person's words must never be folded as if they were output. So a message is
a person's

- before the first answer of the model,
- in any history that holds tool calls or results: such an agent sends its output as results,
- if it holds a pin,
- if words stand beside the output, after a closing `</output>` or in an element `<feedback>`.

Two kinds of output match no pattern:

- gptme sends it as system messages, AutoGen as user messages of another `name`. Each follows an answer that runs
  something, and none stands elsewhere. The first two examples stay: only from the third on is it sure.
- CrewAI adds it to the answer: "Action: ..." and, below it, "Observation: ...". There the output alone is an
  observation; what the model said before it stays.
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
SEEN_CHARACTERS = 1_000
"""Patterns see the first and the last characters of a message. A search may take the square of this."""
MAX_ANCHORED_REPETITIONS = 2
EXAMPLES_MIN = 2
"""Earlier messages of one kind that must follow answers which run something."""
OUTPUT_MIN_CHARACTERS = 500
"""Shorter output that no pattern finds is not worth shortening."""
_OPENING_TAG = re.compile(r"\s*<(\w+)>")
# Cline and its kin put the answer of a person into an element of a result.
_USER_TAGS = re.compile(r"^<(?:feedback|answer|user_message)>$", re.MULTILINE)
_OUTPUT_WITHIN = re.compile(r"^Observation:", re.MULTILINE)
_FENCED = re.compile(r"^\s{0,8}```\w", re.MULTILINE)
RUNS_SOMETHING = re.compile(
    r"^\s{0,8}```(?:bash|sh|shell|console|python|tool_code|execute)\b|^\s{0,8}(?:Action|Command|Tool)\s{0,4}:"
    r"|^\s{0,8}<(?:execute|function|tool|invoke|command|action|bash|run|read|write|edit|search|list|ls|use)\w{0,40}[\s=>]",
    re.MULTILINE,
)
"""How agents that know tools by text only ask for one: a block of shell or Python, an action, an element."""


def find_pattern_fault(pattern: str) -> str | None:
    """Return the fault of a pattern for observations, if any. One that begins with ^ may repeat two things."""
    if pattern.startswith("^"):
        return find_pin_fault(pattern, repetitions=MAX_ANCHORED_REPETITIONS)
    return find_pin_fault(pattern)


@lru_cache(maxsize=1_024)
def _compile(pattern: str) -> re.Pattern[str] | None:
    """Return the compiled pattern; None for a refused one (configuration reports it, here it matches nothing)."""
    if find_pattern_fault(pattern):
        return None
    return re.compile(pattern)


def is_text_style(body: Iterable[Message]) -> bool:
    """Whether a history holds no tool call and no result, so that output can only be in other messages."""
    return not any(message.is_result or message.calls for message in body)


def mark_observations(
    body: tuple[Message, ...], patterns: tuple[str, ...], pins: Pins = NO_PINS, *, text_style: bool = False
) -> tuple[Message, ...]:
    """Return the messages, marked as observations if an environment speaks as a user or within an answer.

    *text_style*: there is a block from before the first tool call. Messages before that call are read as they were
    then, or the bytes that were forwarded would change.
    """
    if not patterns or not (text_style or is_text_style(body)):
        return body
    environment = _Environment(body)
    before: Message | None = None
    was_answered = False
    marked: list[Message] = []
    for place, message in enumerate(body):
        if message.is_result or message.calls:
            return (*marked, *body[place:])
        if message.role == "assistant":
            was_answered = True
            is_output = _holds_output(message.text)
        elif was_answered:
            is_output = environment.is_output(message, before)
            if message.role == "user" and _matches(message.text, patterns):
                is_output = True
        else:
            is_output = False
        if is_output and not pins.stand_in(message.text):
            marked.append(replace(message, is_observation=True))
        else:
            marked.append(message)
        if message.role not in HEAD:
            before = message
    return tuple(marked)


def find_output_within(text: str) -> int:
    """Return the place of the output in an answer to which its client has added that, 0 if it has not."""
    if "Observation:" not in text:
        return 0
    output = _OUTPUT_WITHIN.search(text)
    if output is None or not RUNS_SOMETHING.search(text, 0, output.start()):
        return 0
    return output.start()


def find_words_beside_output(text: str) -> str:
    """Return the text after the elements that a message begins with; empty if it begins with none."""
    end = 0
    while opening := _OPENING_TAG.match(text, end):
        closing = f"</{opening[1]}>"
        stop = text.find(closing, opening.end())
        if stop < 0:
            break
        end = stop + len(closing)
    if not end:
        return ""
    return text[end:].strip()


def _holds_output(text: str) -> bool:
    start = find_output_within(text)
    return start > 0 and len(text) - start >= OUTPUT_MIN_CHARACTERS


def _matches(text: str, patterns: Iterable[str]) -> bool:
    """Whether a message is output by one of the patterns, and nothing else."""
    ends = text
    if len(text) > 2 * SEEN_CHARACTERS:
        ends = f"{text[:SEEN_CHARACTERS]}\n{text[-SEEN_CHARACTERS:]}"
    for pattern in patterns:
        rule = _compile(pattern)
        if rule is not None and rule.search(ends):
            return not _USER_TAGS.search(text) and not find_words_beside_output(text)
    return False


class _Environment:
    """The speakers besides the person: the system, and users of another name."""

    def __init__(self, body: Iterable[Message]) -> None:
        self._person = ""
        for message in body:
            if message.role == "user":
                self._person = _find_name(message)
                break
        self._examples: dict[str, int] = {}
        """The number of messages of each speaker that followed an answer which runs something."""
        self._elsewhere = set[str]()
        """The speakers of other messages."""

    def is_output(self, message: Message, before: Message | None) -> bool:
        """Whether a message is output. From now on it is an example. *before*: the last one not of the system."""
        speaker = message.role
        if message.role not in HEAD:
            name = _find_name(message)
            if name == self._person:
                return False
            speaker = f"name {name}"
        if before is None or before.role != "assistant" or not _runs_something(before.text):
            self._elsewhere.add(speaker)
            return False
        examples = self._examples.get(speaker, 0)
        self._examples[speaker] = examples + 1
        if examples < EXAMPLES_MIN or speaker in self._elsewhere:
            return False
        return len(message.text) >= OUTPUT_MIN_CHARACTERS and not _USER_TAGS.search(message.text)


def _runs_something(text: str) -> bool:
    return _FENCED.search(text) is not None or RUNS_SOMETHING.search(text) is not None


def _find_name(message: Message) -> str:
    """Return the `name` of a message; empty if it has none."""
    if b'"name"' not in message.raw:
        return ""
    name = json.loads(message.raw).get("name")
    if isinstance(name, str):
        return name
    return ""
