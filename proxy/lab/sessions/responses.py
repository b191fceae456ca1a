"""Items of the Responses API, put into the form of chat messages: what Codex writes down, and other agents too.

A model's answer comes as several items (reasoning, words, calls), and a chat client would send them as one assistant
message: so they are gathered until something that is no answer follows, or until the usage closes them.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from proxy.lab.replay.replay_values import Json, RecordedUsage
from proxy.lab.sessions.session_history import RecordedMessage, make_answer, make_call, make_result
from proxy.lab.sessions.shapes import as_arguments, as_objects, as_text, join_text, make_image_link, simplify_content

CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "tool_search_call": "arguments",
}
RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output")
KINDS = ("message", "reasoning", *CALLS, *RESULTS)
_HOSTED = ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call")
"""What the provider ran within an answer: chat completions have nothing like it."""
_NOT_SENT = ("internal_chat_message_metadata_passthrough",)
"""Members that Codex notes in its file only."""
_ROLES = ("system", "developer", "user")


@dataclass(slots=True)
class Items:
    """Messages as far as they were read."""

    messages: list[RecordedMessage] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    _open: bool = False
    """The last message is an answer that may go on."""

    def add(self, item: Json, *, at: float | None = None, again: bool = False) -> None:
        kind = as_text(item.get("type")) or "message"
        own = ({key: value for key, value in item.items() if key not in _NOT_SENT},)
        if kind in RESULTS:
            self._open = False
            result = make_result(as_text(item.get("call_id")), _output(item))
            self.messages.append(RecordedMessage(result, again=again, own=own))
        elif kind == "message" and item.get("role") in _ROLES:
            self._open = False
            message = {"role": item["role"], "content": _parts(item.get("content"))}
            self.messages.append(RecordedMessage(message, again=again, own=own))
        elif kind == "message" and item.get("role") == "assistant":
            self._answers(make_answer(_parts(item.get("content"))), at, own, again=again)
        elif kind == "reasoning":
            self._answers(make_answer("", reasoning=_reasoning(item)), at, own, again=again)
        elif kind in CALLS:
            self._answers(make_answer("", [_call(item, kind)]), at, own, again=again)
        else:
            if kind in _HOSTED and self._open:
                self._answers(make_answer(""), at, own, again=again)
            self.notes[f"items of the kind {kind[:40]!r}, left out"] += 1

    def note_usage(self, recorded: RecordedUsage | None) -> None:
        """The usage of the answer that came last: whatever follows is another."""
        for place in range(len(self.messages) - 1, -1, -1):
            if self.messages[place].role == "assistant":
                earlier = self.messages[place].recorded
                if (
                    recorded is not None
                    and (earlier is None or earlier.tokens is None)
                    and not self.messages[place].again
                ):
                    at = earlier.at if earlier else None
                    self.messages[place] = replace(
                        self.messages[place], recorded=replace(recorded, at=at or recorded.at)
                    )
                break
        self._open = False

    def restart(self, messages: list[RecordedMessage]) -> None:
        """Another history begins, with these messages."""
        self.messages, self._open = messages, False

    def _answers(self, message: Json, at: float | None, own: tuple[Json, ...], *, again: bool) -> None:
        if self._open and self.messages[-1].again == again:
            last = self.messages[-1]
            self.messages[-1] = replace(last, message=_join_answers(last.message, message), own=last.own + own)
        else:
            recorded = None if at is None or again else RecordedUsage(at=at)
            self.messages.append(RecordedMessage(message, recorded, again, own))
        self._open = True


def _join_answers(one: Json, more: Json) -> Json:
    """Two halves of an answer."""
    words = [join_text(each.get("content")) for each in (one, more)]
    reasoning = [as_text(each.get("reasoning_content")) for each in (one, more)]
    calls = [*as_objects(one.get("tool_calls")), *as_objects(more.get("tool_calls"))]
    return make_answer("\n\n".join(filter(None, words)), calls, "\n\n".join(filter(None, reasoning)))


def _call(item: Json, kind: str) -> Json:
    name = as_text(item.get("name")) or kind.removesuffix("_call")
    return make_call(name, as_arguments(item.get(CALLS[kind])), as_text(item.get("call_id")) or as_text(item.get("id")))


def _output(item: Json) -> str | list[Json]:
    """A text, a list of parts, or (of older versions) an object that holds either."""
    output = item.get("output", item.get("tools"))
    if isinstance(output, dict):
        output = output.get("content", output)
    return output if isinstance(output, str) else _parts(output) or as_arguments(output)


def _parts(content: object) -> str | list[Json]:
    if isinstance(content, str):
        return content
    parts: list[Json] = []
    for part in as_objects(content):
        if part.get("type") == "input_image":
            parts.append(make_image_link(part.get("image_url")))
        elif words := as_text(part.get("text")):
            parts.append({"type": "text", "text": words})
    return simplify_content(parts)


def _reasoning(item: Json) -> str:
    """Readable reasoning; encrypted reasoning is left out."""
    return join_text(item.get("content")) or join_text(item.get("summary"))
