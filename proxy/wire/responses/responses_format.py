"""Requests of Responses: <https://platform.openai.com/docs/api-reference/responses/create>."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from proxy.history import splice
from proxy.history.messages import Message, is_different
from proxy.history.request import Request
from proxy.shorten.reasons import Reason
from proxy.wire.api_format import RequestFormat, Try
from proxy.wire.json_body import UNREADABLE, Places, Prefix, find_raw, find_values, has_member, read_members
from proxy.wire.pieces import PiecedRequest, find_types, read_request, replace_list
from proxy.wire.responses.items import as_user_item, decode_item, read_items, write_items
from proxy.wire.responses.responses_answers import ResponsesAnswers


class ResponsesFormat(RequestFormat):
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
    answers = ResponsesAnswers()

    def _read(self, source: bytes, places: Places, prefix: Prefix | None) -> PiecedRequest | None:
        system = find_raw(source, places, "instructions")
        if not system.startswith(b'"'):
            system = b""
        fields = self._list_fields(read_members(source, places), source, places)
        # A tool may have a parameter of such a name: only the types of the edits themselves count.
        edits = find_raw(source, places, "context_management")
        fields["provider_compacts"] = "compaction" in find_types(edits, b'"compaction"')
        request = read_request(
            source, places, self.LIST, read_items, fields, system=system, prefix=prefix, as_element=as_user_item
        )
        newest = None if request is None else request.pieces[-1]
        # Codex asks the provider for a compaction by the last item.
        if request is not None and newest is not None and b'"compaction_trigger"' in newest.blocks[-1]:
            is_trigger = decode_item(newest.blocks[-1]).type == "compaction_trigger"
            return replace(request, provider_compacts=is_trigger or request.provider_compacts)
        return request

    def why_relayed(self, source: bytes, /) -> Reason:
        # The provider holds such a history: <https://platform.openai.com/docs/guides/conversation-state>.
        if has_member(source, "previous_response_id", "conversation") or _has_reference(source):
            return "history-elsewhere"
        return ""

    def render(self, request: Request, view: Sequence[Message], tools: bytes | None = None, /) -> bytes:
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


def _has_reference(source: bytes) -> bool:
    """Return True if an item is a reference to one at the provider."""
    word = b'"item_reference"'  # with quotes, which are escaped in a text that mentions it
    if word not in source:
        return False
    try:
        return "item_reference" in find_types(find_raw(source, find_values(source), "input"), word)
    except UNREADABLE:
        return False
