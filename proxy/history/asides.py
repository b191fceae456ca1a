"""`/compact` inside a conversation, and questions of a client about the conversation.

- `/compact` as the last message is meant for this proxy if a person wrote it. A file may say that, too, and an agent
  without tools sends the file as a user message.
- A call of an offered tool named `Compact` is a request by the model.
- An *aside* is the whole history once more with another question at its end: a client summarizes the conversation or
  gives it a title. The current block applies to that, too, but no new one is made for it.
"""

import re
from collections.abc import Sequence

from proxy.history.messages import Message, ToolCall, find_last_assistant
from proxy.history.observations import RUNS_SOMETHING, is_text_style, mark_observations
from proxy.history.offered_tools import list_tool_names
from proxy.history.request import Request

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
COMPACT = "compact"
_COMMAND = re.compile(r"\s*/compact(?:[ \t]+([^\n]*))?\s*\Z", re.IGNORECASE)
# Agents add these to a person's words, in the same message.
_REMINDER_START, _REMINDER_END = "<system-reminder>", "</system-reminder>"
_REMINDER_CHARACTERS = 50_000
_HARNESS_OPENING = re.compile(
    r"\s*<(system-reminder|task-notification|turn_aborted|local-command-[a-z]{1,20}|bash-std(?:out|err))>"
)
_RULES_IN_FORCE = re.compile(r"skill|plan mode|(?:agents|claude|gemini|qwen)(?:\.\w{1,10})?\.md|rules", re.IGNORECASE)
_COMMANDS = (b"/compact", b"/Compact", b"/COMPACT")
_CALLS = (b'"Compact"', b'"compact"')
# A command begins a text, or follows a reminder that the client put before it; `What does /compact do?` is none.
_COMMAND_PLACE = re.compile(rb'(?:"|\\n|>) *(?:/compact|/Compact|/COMPACT)')
_END_CHARACTERS = 2_000
_MOSTLY_OUTPUT_RATIO = 3


def find_command(request: Request, observations: tuple[str, ...] = ()) -> str | None:
    """Return the focus of a `/compact` that ends the history if a person wrote it.

    *observations* are the patterns of output in the role of a user.
    """
    last = request.messages[-1]
    if last.role != "user" or len(last.raw) > _REMINDER_CHARACTERS:
        return None
    text = remove_reminders(last.text)
    if len(text) >= _END_CHARACTERS:
        return None
    command = _COMMAND.match(text)
    if command is None or _may_be_output(request.body, observations):
        return None
    return (command[1] or "").strip()


def is_harness_note(text: str) -> bool:
    """Whether a message in the user's role holds only a client's own notes, and no rules in force.

    <system-reminder>The file a.py was changed.</system-reminder>
    """
    end = 0
    while opening := _HARNESS_OPENING.match(text, end):
        closing = f"</{opening[1]}>"
        stop = text.find(closing, opening.end())
        if stop < 0:
            return False
        end = stop + len(closing)
    return end > 0 and not text[end:].strip() and _RULES_IN_FORCE.search(text) is None


def remove_reminders(text: str) -> str:
    """Return the text without its reminders; one that does not end stays, with all that follows it."""
    remaining: list[str] = []
    start, opening = 0, text.find(_REMINDER_START)
    while opening >= 0:
        end = text.find(_REMINDER_END, opening)
        if end < 0:
            break
        remaining.append(text[start:opening])
        start = end + len(_REMINDER_END)
        opening = text.find(_REMINDER_START, start)
    remaining.append(text[start:])
    return "".join(remaining)


def find_compact_call(request: Request) -> str | None:
    """Return the focus of a call of `Compact` in the newest answer of the model if the client offers such a tool."""
    newest = find_last_assistant(request.messages)
    if newest is None:
        return None
    for call in request.messages[newest].calls:
        if call.name.lower() == COMPACT:
            if any(name.lower() == COMPACT for name in list_tool_names(request.tools)):
                return _find_focus(call)
            return None
    return None


def was_asked(request: Request) -> bool:
    """Whether the history holds a request for compaction: then there may be a block, however short it is."""
    body, source = request.body, request.source
    if not body:
        return _asks(source)

    def look(values: Sequence[bool]) -> list[bool]:
        has_asked, new_values = False, []
        if values:
            has_asked = values[-1]
        for message in body[len(values) :]:
            has_asked = has_asked or _asks(message.raw)
            new_values.append(has_asked)
        return new_values

    if request.columns.compact_requests(len(body), look)[-1]:
        return True
    before, after = source[: request.offsets[request.head_size]], source[request.find_end(len(request.messages)) :]
    return _asks(before) or _asks(after)


def is_aside(body: tuple[Message, ...], patterns: tuple[str, ...]) -> bool:
    """Whether the last message is a question about the conversation itself."""
    if not body or not body[-1].is_user:
        return False
    text = body[-1].text
    if len(text) > 2 * _END_CHARACTERS:
        text = f"{text[:_END_CHARACTERS]}\n{text[-_END_CHARACTERS:]}"
    return any(re.search(pattern, text) for pattern in patterns)


def _may_be_output(body: tuple[Message, ...], observations: tuple[str, ...]) -> bool:
    """Whether the last message, in the role of a user, may be output of an environment.

    If tools are called, their output comes as results. Without tools it may be output if it matches a pattern, if the
    answer before it holds something to be run, or if the user's messages are far larger than the model's: then it is
    an agent that sends its output, and not a person who chats.
    """
    if not is_text_style(body):
        return False
    if mark_observations(body, observations)[-1].is_observation:
        return True
    user_size, answer_size = 0, 0
    last_answer: Message | None = None
    for message in body[:-1]:
        if message.role == "assistant":
            last_answer = message
            answer_size += len(message.content)
        elif message.role == "user" and last_answer is not None:
            user_size += len(message.content)
    if user_size > max(_END_CHARACTERS, _MOSTLY_OUTPUT_RATIO * answer_size):
        return True
    return last_answer is not None and RUNS_SOMETHING.search(last_answer.text) is not None


def _asks(source: bytes) -> bool:
    if b"ompact" not in source and b"COMPACT" not in source:
        return False
    if any(call in source for call in _CALLS):
        return True
    return any(command in source for command in _COMMANDS) and _COMMAND_PLACE.search(source) is not None


def _find_focus(call: ToolCall) -> str:
    focus = call.named.get("focus")
    if isinstance(focus, str):
        return focus
    return ""
