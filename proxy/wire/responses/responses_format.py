"""Requests of Responses: <https://platform.openai.com/docs/api-reference/responses/create>."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from proxy.history import splice
from proxy.history.messages import Message, is_different
from proxy.history.request import Request
from proxy.summary.question import Try
from proxy.wire.api_format import RequestFormat, keep_members, set_bounds
from proxy.wire.json_body import Places, Prefix, as_text, find_values, list_named
from proxy.wire.pieces import PiecedRequest, find_raw, has_type, read_body, read_list, read_value, replace_list
from proxy.wire.responses.items import as_user_item, read_items, write_items

_BOUND = "max_output_tokens"
_ASKS_FOR_MORE = frozenset(
    {"text", "include", "background", "truncation", "context_management", "prompt", "service_tier", "max_tool_calls"}
)
"""They make a model answer with anything but one text, or the provider do more than answer."""
_TOOLS = frozenset({"tools", "parallel_tool_calls"})
_KEYS_FOR_OTHER_UPSTREAMS = frozenset(
    {"model", "input", "instructions", "stream", "temperature", "top_p", "reasoning", _BOUND, *_TOOLS}
)
_REFERENCE = re.compile(rb'"type"\s*:\s*"item_reference"')
_COMPACTING = re.compile(rb'"type"\s*:\s*"(?:context_)?compaction(?:_summary|_trigger)?"')
_MANAGEMENT = "context_management"
_HISTORIES_ELSEWHERE = frozenset({"previous_response_id", "conversation"})
"""At the provider: <https://platform.openai.com/docs/guides/conversation-state>."""


class ResponsesFormat(RequestFormat):
    NAME = "responses"
    FIRST_MESSAGE = list_named("input")
    BOUNDS = (_BOUND,)

    def parse(self, source: bytes, prefix: Prefix | None = None) -> PiecedRequest | None:
        return read_body(source, prefix, _read_request)

    def why_relayed(self, source: bytes, /) -> str:
        members: set[str] = set()
        # First by its bytes, which is quick; a tool may have a parameter of such a name.
        if any(f'"{key}"'.encode() in source for key in (*_HISTORIES_ELSEWHERE, _MANAGEMENT)):
            members = _list_members(source)
        if members & _HISTORIES_ELSEWHERE:
            return "history-elsewhere"
        if b'"item_reference"' in source and _has_item(source, _REFERENCE):
            return "history-elsewhere"
        if _MANAGEMENT in members or (b"compaction" in source and _has_item(source, _COMPACTING)):
            return "provider-compacts"
        return ""

    def render(
        self, request: Request, view: Sequence[Message], tools: bytes | None = None, _shared: int = 0, /
    ) -> bytes:
        return replace_list(request, view, tools, write_items)

    def render_question(
        self, request: Request, question: Try, bounds: Mapping[str, int], model: str = "", *, foreign: bool = False
    ) -> bytes:
        assert isinstance(request, PiecedRequest)  # noqa: S101 - `parse` made it
        source = self.render(request, question.messages, question.tools)
        removed_keys = set(_ASKS_FOR_MORE)
        head = question.messages[: request.head_size]
        if len(head) < request.head_size or any(map(is_different, head, request.head)):
            removed_keys.add("instructions")
        if foreign:
            source = keep_members(source, _KEYS_FOR_OTHER_UPSTREAMS)
        if not question.aligned:
            removed_keys |= _TOOLS | {"tool_choice"}
        choice = splice.find_member(source, "tool_choice")
        if choice is not None and source[choice.start : choice.stop] not in (b'"auto"', b'"none"'):
            removed_keys.add("tool_choice")
        return set_bounds(splice.remove_members(source, removed_keys), {_BOUND: bounds[_BOUND]}, model)


RESPONSES_FORMAT = ResponsesFormat()


def _read_request(source: bytes, places: Places, prefix: Prefix | None) -> PiecedRequest | None:
    system: bytes | None = find_raw(source, places, "instructions")
    if system is not None and not system.startswith(b'"'):
        system = None
    request = read_list(source, places, "input", read_items, system=system, prefix=prefix, as_element=as_user_item)
    if request is None:
        return None
    max_output = read_value(source, places, _BOUND)
    if type(max_output) is not int:
        max_output = None
    user = read_value(source, places, "safety_identifier") or read_value(source, places, "user")
    return replace(
        request,
        user=as_text(user),
        session=as_text(read_value(source, places, "prompt_cache_key")),
        max_output=max_output,
        wire=ResponsesFormat.NAME,
    )


def _has_item(source: bytes, types: re.Pattern[bytes]) -> bool:
    """A tool's schema or an item's data may hold such a type as well."""
    if types.search(source) is None:
        return False
    try:
        return has_type(find_raw(source, find_values(source), "input"), types)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def _list_members(source: bytes) -> set[str]:
    """Members that are not null; none if it cannot be understood."""
    try:
        places = find_values(source)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return set()
    return {key for key, place in places.items() if source[slice(*place)] != b"null"}
