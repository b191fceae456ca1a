"""Requests of chat completions.

Only the outline of a request is parsed; each message and the tools stay slices of the client's bytes, and a request is
rendered by splicing, so that all that was not touched leaves as it came, spacing included. What the fast parser
refuses (half surrogate pairs, `NaN`, repeated keys at the top) is read once more with the standard library; what that
refuses, too, is not understood (None), and the caller relays it as it is.

<https://platform.openai.com/docs/api-reference/chat/create>
"""

import json
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from proxy.history import splice
from proxy.history.messages import HEAD, Message, Request
from proxy.summary.question import Try
from proxy.wire import marks
from proxy.wire.chat.chat_messages import build_request, read_after_prefix
from proxy.wire.known_prefix import Prefix, list_named
from proxy.wire.outline import find_values, read_elements
from proxy.wire.request_format import RequestFormat, keep_members, set_bounds

_ASKS_FOR_MORE = frozenset(
    {
        "tool_choice",
        "function_call",
        "response_format",
        "n",
        "stop",
        "logprobs",
        "top_logprobs",
        "prediction",
        "modalities",
        "audio",
        "store",
        "web_search_options",
    }
)
"""Members that would make a model answer with anything but one text."""
_TOOLS = frozenset({"tools", "functions", "parallel_tool_calls"})


class ChatFormat(RequestFormat):
    """Requests of chat completions, the form that the core works on."""

    NAME = ""
    FIRST_MESSAGE = list_named("messages")
    BOUNDS = ("max_completion_tokens", "max_tokens")
    _KEYS_FOR_OTHER_UPSTREAMS = frozenset(
        {
            "model",
            "messages",
            *BOUNDS,
            *_TOOLS,
            "stream",
            "stream_options",
            "temperature",
            "top_p",
            "seed",
            "reasoning_effort",
        }
    )

    def parse(self, source: bytes, prefix: Prefix | None = None) -> Request | None:
        try:
            if prefix is not None:
                request = read_after_prefix(source, prefix)
                if request is not None:
                    return request
            source.decode()
            return build_request(source, find_values(source))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None

    def why_relayed(self, source: bytes, /) -> str:
        # LiteLLM passes this member on to models that speak Responses:
        # <https://docs.litellm.ai/docs/response_api>.
        if b'"previous_response_id"' not in source:
            return ""
        try:
            place = find_values(source).get("previous_response_id")
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return ""
        if place is None or source[slice(*place)] == b"null":
            return ""
        return "history-elsewhere"

    def render(
        self, request: Request, view: Sequence[Message], tools: bytes | None = None, _shared: int = 0, /
    ) -> bytes:
        body = _splice_messages(request, view)
        if tools is None or request.tools is None or tools == request.tools:
            return body
        start = request.tools_at
        if request.tools_at > request.offsets[0]:
            start += len(body) - len(request.source)
        return splice.replace_bytes(body, start, start + len(request.tools), tools)

    def render_question(
        self, request: Request, question: Try, bounds: Mapping[str, int], model: str = "", *, foreign: bool = False
    ) -> bytes:
        source = self.render(request, question.messages, question.tools)
        if foreign:
            source = keep_members(source, self._KEYS_FOR_OTHER_UPSTREAMS)
        removed = _ASKS_FOR_MORE | (frozenset(self.BOUNDS) - bounds.keys())
        if not question.aligned:
            removed |= _TOOLS
        return set_bounds(splice.remove_members(source, removed), bounds, model)

    def find_bounds(self, source: bytes, /) -> tuple[str, ...]:
        return tuple(
            member.key
            for member in splice.iterate_members(source)
            if member.key in self.BOUNDS and source[member.start : member.stop] != b"null"
        )

    def add_marks(self, source: bytes, model: str, /) -> bytes:
        # Gateways pass the marks on to Anthropic's models: <https://openrouter.ai/docs/features/prompt-caching>.
        if "claude" not in model or marks.KEY in source:
            return source
        start, stop = find_values(source)["messages"]
        head_size = 0
        for raw in read_elements(source[start:stop]):
            if json.loads(raw).get("role") not in HEAD:
                break
            head_size += 1
        marked = marks.mark_messages(source[start:stop], head_size, marks.MARKS_MAX)
        return splice.replace_bytes(source, start, stop, marked)

    def request_usage(self, source: bytes, /) -> bytes | None:
        place = None
        if b'"stream_options"' in source:
            place = find_values(source).get("stream_options")
        if place is None:
            opening = source.index(b"{") + 1
            return splice.replace_bytes(source, opening, opening, b'"stream_options":{"include_usage":true},')
        options = json.loads(source[slice(*place)])
        if options is None:
            options = {}
        if not isinstance(options, dict) or options.get("include_usage"):
            return None
        return splice.replace_bytes(source, *place, json.dumps({**options, "include_usage": True}).encode())


CHAT_FORMAT = ChatFormat()


def _splice_messages(request: Request, view: Sequence[Message]) -> bytes:
    """The body with this view; untouched neighbours keep the spacing between them."""
    source, count = request.source, len(request.messages)
    if not request.is_changed_by(view):
        return source
    comma = b","
    if count > 1:
        comma = source[request.find_end(1) : request.offsets[1]]
    if _is_evenly_spaced(request, comma):
        pieces = [message.raw for message in view]
    else:
        pieces = list(_cut_stretches(request, view))
    return b"".join((source[: request.offsets[0]], comma.join(pieces), source[request.find_end(count) :]))


def _is_evenly_spaced(request: Request, comma: bytes) -> bool:
    """True if the same bytes are between all of the client's messages."""
    source, offsets, head_size, body = request.source, request.offsets, request.head_size, request.body

    def follows_comma(number: int) -> bool:
        return number == 0 or source[request.find_end(number) : offsets[number]] == comma

    def compare_new(so_far: Sequence[bool]) -> Iterator[bool]:
        is_even = all(map(follows_comma, range(head_size)))
        if so_far:
            is_even = so_far[-1]
        for number in range(head_size + len(so_far), head_size + len(body)):
            is_even = is_even and follows_comma(number)
            yield is_even

    return all(request.columns.extend(_is_evenly_spaced, len(body), compare_new)[-1:])


def _cut_stretches(request: Request, view: Sequence[Message]) -> Iterator[bytes]:
    """Stretches of untouched neighbours in one piece, with the spacing between them, and each other message."""
    source, messages, offsets = request.source, request.messages, request.offsets
    number = 0
    while number < len(view):
        first = number
        if view[number].stop:
            first = request.head_size + view[number].start
        length, longest = 0, min(len(view) - number, len(messages) - first)
        while length < longest and view[number + length] is messages[first + length]:
            length += 1
        if length:
            yield source[offsets[first] : request.find_end(first + length)]
        else:
            yield view[number].raw
        number += max(length, 1)
