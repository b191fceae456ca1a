"""Who speaks in the role of a user: a person, an environment, or a client that asks about the conversation itself.

Agents without tools run the commands in a model's answer and send the output back as a user message: an *observation*.
Patterns find it. A person's words must never be folded as if they were output, so a message is a person's

- before the first answer of the model,
- in a history with tool calls or results, as which such an agent sends its output,
- if it holds a pin,
- if words stand next to the output, after a closing `</output>` or in an element `<feedback>`.

Two kinds of output match no pattern:

- gptme sends it as system messages, AutoGen as user messages of another `name`. Each follows an answer that runs
  something, and none stands elsewhere. Only from the third on is it sure.
- CrewAI adds it to the answer: "Action: ..." and, below it, "Observation: ...".

`/compact` as the last message is meant for this proxy if a person wrote it: a file may say that, too. A call of an
offered tool named `Compact` is a request by the model. An *aside* is the whole history with another question at its
end, for a summary or a title: it causes no rewrite while it fits.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from math import inf
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from proxy.history.messages import HEAD, RESULTS, Message, find_last_assistant, list_tool_names, remove_reminders
from proxy.history.pins import Pins, compile_pattern, find_pin_fault
from proxy.history.request import Known, Request

OBSERVATIONS = (
    r"^\s*(?:Observation|OBSERVATION|Tool output|Tool result|Command output|Code output|EXECUTION RESULT)\b[^\n]*:",
    r"^\s*<(?:returncode|output|observation|tool_response|function_results?|result)>",
    r"\nbash-\$\s*$",
    r"^\s*I ran this command:\n",
    r"^\[\w+(?: for '[^\n]*')?\] Result:",
)
OUTPUT_MIN_CHARACTERS = 500
"""Output that no pattern matches is at least this long: a shorter text may be a word of the person."""
EXAMPLES_MIN = 3
"""One or two messages of a speaker may come after an answer that runs something by chance."""
_FENCED = re.compile(r"^\s{0,8}```\w", re.MULTILINE)
RUNS_SOMETHING = re.compile(
    r"^\s{0,8}```(?:bash|sh|shell|console|python|tool_code|execute)\b|^\s{0,8}(?:Action|Command|Tool)\s{0,4}:"
    r"|^\s{0,8}<(?:execute|function|tool|invoke|command|action|bash|run|read|write|edit|search|list|ls|use)\w{0,40}[\s=>]",
    re.MULTILINE,
)
"""How agents that know tools by text only ask for one."""


def find_pattern_fault(pattern: str) -> str | None:
    """Return the fault of a pattern. One that begins with ^ may repeat two things."""
    if pattern.startswith("^"):
        return find_pin_fault(pattern, repetitions=2)
    return find_pin_fault(pattern)


def is_text_style(known: Known) -> bool:
    """Return whether a history has neither calls nor results, so that its tools, if any, are known by text only."""
    column = known.column("text style", partial(_find_text_styles, known.messages))
    return not column or column[-1]


def _find_text_styles(messages: Sequence[Message], earlier: Sequence[bool]) -> Iterator[bool]:
    is_of_text = not earlier or earlier[-1]
    for message in messages[len(earlier) :]:
        is_of_text = is_of_text and not message.calls and message.role not in RESULTS
        yield is_of_text


def mark_observations(
    known: Known, patterns: tuple[str, ...], pins: Pins = Pins(), *, text_style: bool = False
) -> Known:
    """Mark the messages that are output of an environment. Return the same value if there are none.

    *text_style*: a block was made before the first tool call. Messages before that call are read as they were then,
    or the bytes that were forwarded would change.
    """
    if not patterns or not (text_style or is_text_style(known)):
        return known
    column = known.column("observations", partial(_mark, known.messages, patterns, pins), patterns, pins)
    return known.continue_marked(tuple(map(attrgetter("message"), column)))


class _Marked(Struct, frozen=True, gc=False):
    message: Message
    is_of_text: bool
    """Whether no tool was called so far."""
    speaker: str
    """A role or a name; empty for the model."""
    examples: float
    """The messages of this speaker after an answer that runs something; -inf once one came elsewhere."""


def _mark(
    messages: Sequence[Message], patterns: tuple[str, ...], pins: Pins, earlier: Sequence[_Marked]
) -> Iterator[_Marked]:
    start = len(earlier)
    is_of_text = not earlier or earlier[-1].is_of_text
    examples = {marked.speaker: marked.examples for marked in earlier}
    was_answered = find_last_assistant(messages, start) is not None
    before = next((message for message in reversed(messages[:start]) if message.role not in HEAD), None)
    runs_something: bool | None = None  # asked once, of an answer that thousands of messages may follow
    person = next((f"name {_find_name(message)}" for message in messages if message.role == "user"), "")
    for message in messages[start:]:
        if message.is_result or message.calls:
            is_of_text = False
        is_output, speaker = False, ""
        if is_of_text and message.role == "assistant":
            was_answered = True
            text = message.text
            output_start = find_output_within(text)
            is_output = output_start > 0 and len(text) - output_start >= OUTPUT_MIN_CHARACTERS
        elif is_of_text and was_answered:
            speaker = message.role if message.role in HEAD else f"name {_find_name(message)}"
            if speaker != person:
                if runs_something is None:
                    runs_something = _runs_something(before)
                examples[speaker] = examples.get(speaker, 0) + 1 if runs_something else -inf
                is_output = examples[speaker] >= EXAMPLES_MIN and len(message.text) >= OUTPUT_MIN_CHARACTERS
                is_output = is_output and not _holds_answer(message.text)
            if message.role == "user" and _matches(message.text, patterns):
                is_output = True
        if is_output and not pins.stand_in(message.text):
            yield _Marked(replace(message, is_observation=True), is_of_text, speaker, examples.get(speaker, 0))
        else:
            yield _Marked(message, is_of_text, speaker, examples.get(speaker, 0))
        if message.role not in HEAD:
            before, runs_something = message, None


def find_output_within(text: str) -> int:
    """Return the place of output that a client has added to an answer, else 0."""
    start = f"\n{text}".find("\nObservation:")
    if start > 0 and RUNS_SOMETHING.search(text, 0, start):
        return start
    return 0


def find_words_beside_output(text: str) -> str:
    end = _skip_elements(text, r"\s*<(\w+)>")
    return text[end:].strip() if end else ""


def _skip_elements(text: str, opening_tag: str) -> int:
    """Return the end of the elements that a text begins with; 0 if it begins with none."""
    end, tag = 0, re.compile(opening_tag)
    while opening := tag.match(text, end):
        closing = f"</{opening[1]}>"
        stop = text.find(closing, opening.end())
        if stop < 0:
            break
        end = stop + len(closing)
    return end


def _matches(text: str, patterns: Iterable[str]) -> bool:
    ends, seen_characters = text, 1_000  # only the ends are searched: that may take the square of the length
    if len(text) > 2 * seen_characters:
        ends = f"{text[:seen_characters]}\n{text[-seen_characters:]}"
    for pattern in patterns:
        if compile_pattern(pattern).search(ends):
            return not _holds_answer(text) and not find_words_beside_output(text)
    return False


def _holds_answer(text: str) -> bool:
    """Return whether a person speaks in the output: Cline and its kin put an answer into an element of a result."""
    framed = f"\n{text}\n"
    return "\n<feedback>\n" in framed or "\n<answer>\n" in framed or "\n<user_message>\n" in framed


def _runs_something(before: Message | None) -> bool:
    """Return whether the last message that is not of the system is an answer that runs something."""
    if before is None or before.role != "assistant":
        return False
    return bool(_FENCED.search(before.text) or RUNS_SOMETHING.search(before.text))


def _find_name(message: Message) -> str:
    if b'"name"' not in message.raw:
        return ""
    name = json.loads(message.raw).get("name")
    return name if isinstance(name, str) else ""


_TALK = "(?:conversation|session|transcript|chat|context|discussion)"
ASIDES = (
    rf"(?i)summar[^\n]{{0,160}}\b(?:this|our|the above|the entire|the whole|partial|current|chat) {_TALK}\b",
    rf"(?i)summar[^\n]{{0,160}}\b{_TALK}(?: history)?(?: so far| above| until now| to date|[.,:;!?\n]|$)",
    r"(?i)\btitle\b[^\n]{0,80}\b(?:conversation|session|chat|thread)\b",
    r"(?i)\bname (?:for|of|to)? ?(?:this|our|the) (?:conversation|session|chat|thread)\b",
    r"(?i)\bcompact[^\n]{0,80}\b(?:(?:this|our) (?:context|history)|(?:this|our|the) (?:conversation|chat|session))\b",
    r"(?i)context (?:checkpoint|compaction)",
    r"(?i)\b(?:prompt|handoff|handover)\b[^\n]{0,80}\b(?:this|our|the) (?:conversation|session|chat)\b",
    r"(?i)<state_snapshot>",
    r"(?i)\b(?:write|generate|create|suggest)[^\n]{0,60}commit message",
)
# A call of the tool, or a command that begins a text or follows a reminder. A question about `/compact` is neither.
_CALL_OR_COMMAND = re.compile(rb'"[Cc]ompact"|(?:"|\\n|>) *(?:/compact|/Compact|/COMPACT)')
_END_CHARACTERS = 2_000


def find_command(request: Request, observations: tuple[str, ...] = ()) -> str | None:
    """Return the focus of a `/compact` that ends the history, or None if there is none."""
    last, with_reminders_bytes = request.messages[-1], 50_000
    if last.role != "user" or len(last.raw) > with_reminders_bytes:
        return None
    text = remove_reminders(last.text)
    command = text.strip()
    if len(text) >= _END_CHARACTERS or "\n" in command or command[:9].rstrip().lower() != "/compact":
        return None
    if _may_be_output(request.known, observations):
        return None
    return command[9:].strip()


def is_of_user(message: Message) -> bool:
    """Return whether a person wrote a message: some clients send reminders in the user's role."""
    return message.is_user and (message.attached or not is_harness_note(message.text))


def find_newest_words(known: Known) -> int | None:
    """Return the index of the newest message of a person, or of the newest note of a client if nobody wrote any."""
    messages = known.messages

    def find_newest(values: Sequence[tuple[int | None, bool]]) -> list[tuple[int | None, bool]]:
        newest, is_note = values[-1] if values else (None, True)
        found = []
        for place in range(len(values), len(messages)):
            message = messages[place]
            if message.is_user and (is_note or is_of_user(message)):
                newest, is_note = place, not is_of_user(message)
            found.append((newest, is_note))
        return found

    newest_words = known.column("last users", find_newest)
    return newest_words[-1][0] if newest_words else None


def is_harness_note(text: str) -> bool:
    """Return whether a text holds only notes of a harness, and no rules in force.

    `<system-reminder>The file a.py was changed.</system-reminder>` is such a note.
    """
    end = _skip_elements(
        text, r"\s*<(system-reminder|task-notification|turn_aborted|local-command-[a-z]{1,20}|bash-std(?:out|err))>"
    )
    rules_in_force = r"(?i)skill|plan mode|(?:agents|claude|gemini|qwen)(?:\.\w{1,10})?\.md|rules"
    return end > 0 and not text[end:].strip() and re.search(rules_in_force, text) is None


def find_compact_call(request: Request) -> str | None:
    """Return the focus of a call of `Compact` in the newest answer, or None. The client must offer that tool."""
    newest = find_last_assistant(request.messages)
    if newest is None:
        return None
    for call in request.messages[newest].calls:
        if call.name.lower() == "compact":
            if "compact" not in map(str.lower, list_tool_names(request.tools)):
                return None
            focus = call.named.get("focus")
            return focus if isinstance(focus, str) else ""
    return None


def was_asked(request: Request) -> bool:
    """Return whether the history was to be compacted."""
    if any(request.known.map("compact requests", lambda message: _asks(message.raw))):
        return True
    return _asks(request.outside)


def is_aside(body: tuple[Message, ...], patterns: tuple[str, ...]) -> bool:
    """Return whether the last message is a question about the conversation itself."""
    if not body or not body[-1].is_user:
        return False
    text = body[-1].text
    if len(text) > 2 * _END_CHARACTERS:
        text = f"{text[:_END_CHARACTERS]}\n{text[-_END_CHARACTERS:]}"
    return any(compile_pattern(pattern).search(text) for pattern in patterns)


def _may_be_output(known: Known, observations: tuple[str, ...]) -> bool:
    """Return whether the last message, in the role of a user, may be output of an agent without tools.

    It matches a pattern, the answer before it runs something, or the user's messages are far larger than the answers.
    """
    if not is_text_style(known):
        return False
    if mark_observations(known, observations).messages[-1].is_observation:
        return True
    user_size, answer_size = 0, 0
    last_answer: Message | None = None
    for message in known.messages[:-1]:
        if message.role == "assistant":
            last_answer = message
            answer_size += message.content_size
        elif message.role == "user" and last_answer is not None:
            user_size += message.content_size
    if user_size > max(_END_CHARACTERS, 3 * answer_size):
        return True
    return last_answer is not None and RUNS_SOMETHING.search(last_answer.text) is not None


def _asks(source: bytes) -> bool:
    if b"ompact" not in source and b"COMPACT" not in source:
        return False
    return _CALL_OR_COMMAND.search(source) is not None
