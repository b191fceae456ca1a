"""Requests of Responses: <https://platform.openai.com/docs/api-reference/responses/create>."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from proxy.history import splice
from proxy.history.messages import Message, is_different
from proxy.history.request import Request
from proxy.summary.question import Try
from proxy.wire.json_body import UNREADABLE, Places, Prefix, find_raw, find_values, list_members, read_members
from proxy.wire.pieces import PiecedFormat, PiecedRequest, has_type, read_list, replace_list
from proxy.wire.responses.items import as_user_item, read_items, write_items

_HISTORIES_ELSEWHERE = frozenset({"previous_response_id", "conversation"})
"""At the provider: <https://platform.openai.com/docs/guides/conversation-state>."""


class ResponsesFormat(PiecedFormat):
    NAME = "responses"
    LIST = "input"
    BOUNDS = ("max_output_tokens",)
    ASKS_FOR_MORE = frozenset(
        {
            *("text", "include", "background", "truncation", "context_management", "prompt", "service_tier"),
            "max_tool_calls",
        }
    )
    TOOLS = frozenset({"tools", "parallel_tool_calls", "tool_choice"})
    KEYS_FOR_OTHER_UPSTREAMS = frozenset(
        {
            *("model", "input", "instructions", "stream", "temperature", "top_p", "reasoning"),
            *("max_output_tokens", "tools", "parallel_tool_calls"),
        }
    )

    def _read(self, source: bytes, places: Places, prefix: Prefix | None) -> PiecedRequest | None:
        system = find_raw(source, places, "instructions")
        if not system.startswith(b'"'):
            system = b""
        fields = self._list_fields(read_members(source, places), source, places)
        return read_list(
            source, places, self.LIST, read_items, fields, system=system, prefix=prefix, as_element=as_user_item
        )

    def why_relayed(self, source: bytes, /) -> str:
        members: set[str] = set()
        # First by its bytes, which is quick; a tool may have a parameter of such a name.
        if any(f'"{key}"'.encode() in source for key in (*_HISTORIES_ELSEWHERE, "context_management")):
            members = list_members(source)
        if members & _HISTORIES_ELSEWHERE:
            return "history-elsewhere"
        if _has_item(source, b'"item_reference"', "item_reference".__eq__):
            return "history-elsewhere"
        if "context_management" in members:
            return "provider-compacts"
        if any(_has_item(source, word, _is_compaction) for word in (b'"compaction', b'"context_compaction')):
            return "provider-compacts"
        return ""

    def render(
        self, request: Request, view: Sequence[Message], tools: bytes | None = None, _shared: int = 0, /
    ) -> bytes:
        return replace_list(request, view, tools, write_items)

    def _list_unwanted(self, source: bytes, request: Request, question: Try, /) -> AbstractSet[str]:
        unwanted_keys: set[str] = set()
        head = question.messages[: request.head_size]
        if len(head) < request.head_size or any(map(is_different, head, request.head)):
            unwanted_keys.add("instructions")
        choice = splice.find_member(source, "tool_choice")
        if choice is not None and source[choice.start : choice.stop] not in (b'"auto"', b'"none"'):
            unwanted_keys.add("tool_choice")
        return unwanted_keys


RESPONSES_FORMAT = ResponsesFormat()


def _is_compaction(kind: str) -> bool:
    return kind.removeprefix("context_") in {"compaction", "compaction_summary", "compaction_trigger"}


def _has_item(source: bytes, word: bytes, is_type: Callable[[str], bool]) -> bool:
    """A tool's schema or an item's data may hold such a type as well."""
    if word not in source:
        return False
    try:
        return has_type(find_raw(source, find_values(source), "input"), word, is_type)
    except UNREADABLE:
        return False
