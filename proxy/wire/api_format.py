"""The classes of each API: for its requests and answers, and for the rounds of a request.

If a model calls the tool of `proxy/recall.py`, the proxy answers it and asks the upstream again. The client gets the
words of all rounds as one message, and never sees the tool. An answer without such a call keeps its bytes, except that
the list of tools in it loses this one, and that pieces of a call come no earlier than its name.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from msgspec import Struct

from proxy.foundation.errors import ProxyError
from proxy.history import splice
from proxy.history.messages import Message
from proxy.history.request import Request
from proxy.recall import RECALL, withdraw_tool
from proxy.shorten.block import Reason
from proxy.tools.tool_call import ToolCall
from proxy.wire.cache_placement import Choice, ForwardedView
from proxy.wire.event_streams import EventReader, StreamForm
from proxy.wire.http_head import ApiPath, Headers
from proxy.wire.json_body import (
    UNREADABLE,
    Places,
    Prefix,
    as_object,
    as_text,
    find_raw,
    find_values,
    has_member,
    read_elements,
    read_json,
    read_object,
)


class Try(Struct, frozen=True):
    """The messages and tools of one attempt to ask a model for a summary."""

    messages: tuple[Message, ...]
    tools: bytes | None
    aligned: bool
    """The question follows the conversation itself, which the provider has cached."""
    again: bool = False
    """It is the second attempt, with more room, because the first answer had too little."""


@dataclass(frozen=True, kw_only=True)
class ApiFormat(ABC):
    """Reads and writes the requests of an API, and reads its answers as chat answers.

    No field has a default: each API states all of them. Methods get the body of a request as `source` and change only
    the bytes that they must.
    """

    name: str
    """The API in transcripts; empty for Chat Completions."""
    path: ApiPath
    """The path of requests that a model answers."""
    count_path: ApiPath | None
    """The path of requests that only count tokens."""
    compact_path: ApiPath | None
    """The path of requests for a compaction by the provider."""
    provider: str
    """The provider in traces, if the address of the upstream does not tell it."""
    version_header: str | None
    """The header, in lower case, by which clients name the version of the API."""
    write_error: Callable[[ProxyError, str], bytes]
    """Write an error of the proxy's own as clients of the API expect it, with the id of the request."""
    stream: StreamForm
    takes_late_results: bool
    """Whether a result may come after messages that follow the other results of its call."""
    takes_user_rows: bool
    """Whether two messages of the user may come in a row, whichever model answers."""
    marked_with: frozenset[Choice]
    """The values of the setting `cache_marks` with which a request may get marks."""
    takes_cache_key: bool
    """Whether a request may name its conversation, by `prompt_cache_key`."""
    list_name: str
    """The member that holds the history."""
    bounds: tuple[str, ...]
    """Members that bound an answer; the last is set if a request has none."""
    asks_for_more: frozenset[str]
    """Members that ask for more than one text."""
    tool_members: frozenset[str]
    """Members that a question without the client's history does not need."""
    keys_for_other_upstreams: frozenset[str]
    """The only members of a question that another upstream gets."""
    history_members: tuple[str, ...]
    """Members by which a request names a history that the provider holds."""
    rounds: type["Rounds"]
    rounds_need: Mapping[str, tuple[bytes, ...]]
    """The only values of some members with which a request may get an answer of several rounds."""
    recall_tool: bytes
    """The definition of the proxy's tool, as a member of `tools`."""

    def parse(self, source: bytes, prefix: Prefix | None = None) -> Request | None:
        """Return a request, or None if it cannot be understood. Messages of a known prefix are not read again."""
        try:
            places = prefix.find_values(source, self.list_name) if prefix is not None else None
            if prefix is not None and places is not None:
                request = self._read(source, places, prefix)
                if request is not None:
                    request.known.follow(prefix.request.known, prefix.count - prefix.request.head_size)
                    return request
            source.decode()  # the parser cuts values out without looking whether they are UTF-8
            return self._read(source, find_values(source, (self.list_name, "tools")), None)
        except UNREADABLE:
            return None

    def read_outline(self, source: bytes) -> tuple[str, int | None] | None:
        """Return the model and the bound of the answer, or None if `parse` may not understand the request."""
        request = self.parse(source)
        return None if request is None else (request.model, request.max_output)

    @abstractmethod
    def _read(self, source: bytes, places: Places, prefix: Prefix | None) -> Request | None:
        """Read a request; after a prefix, only the elements that follow it."""

    def _list_fields(self, source: bytes, places: Places) -> dict[str, Any]:
        """Read the members that all APIs have in common, and the user and the session as OpenAI's APIs name them."""
        texts = dict.fromkeys(("model", "user", "safety_identifier", "prompt_cache_key"), str)
        kinds = {**texts, "tool_choice": dict, "function_call": dict, "stream": bool, **dict.fromkeys(self.bounds, int)}
        members: dict[str, Any] = {}
        for key in kinds.keys() & places.keys():
            value = read_json(source[slice(*places[key])])
            if type(value) is kinds[key]:
                members[key] = value
        # Chat nests the name: {"type": "function", "function": {"name": ...}}. The other APIs do not.
        choice, forced_tool = members.get("tool_choice") or members.get("function_call"), ""
        if choice:
            tool = as_object(choice.get(as_text(choice.get("type")), choice))
            forced_tool = as_text(tool.get("name"))
        max_output = None
        for name in self.bounds:
            max_output = max_output or members.get(name)
        return {
            "model": members.get("model", ""),
            "tools": find_raw(source, places, "tools") or None,
            "tools_at": places.get("tools", (0, 0))[0],
            "forced_tool": forced_tool,
            "user": members.get("safety_identifier") or members.get("user", ""),
            "session": members.get("prompt_cache_key", ""),
            "max_output": max_output,
            "stream": members.get("stream", False),
            "wire": self.name,
            "takes_late_results": self.takes_late_results,
            "takes_user_rows": self.takes_user_rows,
        }

    @abstractmethod
    def render(self, request: Request, view: Sequence[Message], tools: bytes | None = None, /) -> bytes:
        """Write the request with the messages of `view`."""

    def render_question(
        self, request: Request, question: Try, bounds: Mapping[str, int], model: str = "", *, foreign: bool = False
    ) -> bytes:
        """Write the request that asks a model for a summary.

        `bounds`: the tokens of the answer, by member. `foreign`: it goes to another upstream, which must not learn
        the client's account.
        """
        source = self._replace_history(request, question)
        removed_keys = self.asks_for_more | (frozenset(self.bounds) - bounds.keys())
        removed_keys |= self._list_unwanted(source, request, question)
        if not question.aligned:
            removed_keys |= self.tool_members
        if foreign:
            removed_keys |= {member.key for member in splice.iterate_members(source)} - self.keys_for_other_upstreams
        members = {name: b"%d" % tokens for name, tokens in bounds.items()}
        if model:
            members["model"] = splice.write_json(model)
        return splice.set_members(splice.remove_members(source, removed_keys), members)

    def _replace_history(self, request: Request, question: Try) -> bytes:
        return self.render(request, question.messages, question.tools)

    def _list_unwanted(self, _source: bytes, _request: Request, _question: Try, /) -> set[str]:
        return set()

    def find_first_message(self, source: bytes) -> int:
        """Return the probable start of the first message, or -1. It is a guess: other lists may have this name."""
        match = re.search(rb'"%b"[ \t\n\r]*+:[ \t\n\r]*+\[[ \t\n\r]*+' % self.list_name.encode(), source)
        return -1 if match is None else match.end()

    @abstractmethod
    def fits(self, body: Mapping[str, Any], /) -> bool:
        """Return whether a saved request has the form of this API."""

    def why_relayed(self, source: bytes, _headers: Headers = (), /) -> Reason:
        """Return a code for `x-compaction-reason` if the history cannot be shortened here, else an empty text."""
        return "history-elsewhere" if has_member(source, *self.history_members) else ""

    def ask_for_history(self, _source: bytes, _headers: Headers, _request_id: str, /) -> tuple[int, bytes] | None:
        """Return the status and the body of an error after which this client will send its whole history.

        Return None if it has sent it, or is not known to do so.
        """
        return None

    def find_bounds(self, _source: bytes, _model: str, /) -> tuple[str, ...]:
        """Return the bounds that a question of the proxy's own has, in place of this request to this model."""
        return self.bounds

    def answer_within(self, source: bytes, max_tokens: int) -> bytes:
        """Bound the answer of a request. The last of the bounds is set if there is none."""
        changes: list[tuple[int, int, bytes]] = []
        is_bounded = False
        for member in splice.iterate_members(source):
            if member.key in self.bounds:
                is_bounded = True
                bound = json.loads(source[member.start : member.stop])
                if bound is None or (isinstance(bound, int | float) and bound > max_tokens):
                    changes.append((member.start, member.stop, b"%d" % max_tokens))
        if is_bounded:
            return splice.replace_spans(source, changes)
        opening = source.index(b"{") + 1
        return splice.replace_bytes(source, opening, opening, b'"%b":%d,' % (self.bounds[-1].encode(), max_tokens))

    def disable_streaming(self, source: bytes) -> bytes:
        return splice.remove_members(source, {"stream", "stream_options"})

    def place_marks(
        self, source: bytes, _request: Request, _cache_marks: Choice, _view: ForwardedView | None = None, /
    ) -> bytes:
        """Mark a body that is forwarded for this request, if the API caches by marks. `view`: its shortened history."""
        return source

    def request_usage(self, _source: bytes, /) -> bytes | None:
        """Ask for the usage at the end of the stream; None if it comes anyway."""
        return None

    @abstractmethod
    def read_event(self, event: Mapping[str, Any], /) -> Mapping[str, Any]:
        """Return the chunk of a chat answer that says the same."""

    def finish_message(self, message: dict[str, Any], /) -> dict[str, Any]:
        """Return the chat message for one that was put together from what `read_event` returned."""
        return message

    @abstractmethod
    def read_body(self, body: bytes, /) -> bytes:
        """Return the chat completion that says the same."""

    @abstractmethod
    def render_answer(self, text: str, model: str, timestamp: int, /, *, stream: bool) -> bytes:
        """Write an answer of the proxy's own, as a body or as a stream of events."""

    @abstractmethod
    def continue_request(self, source: bytes, answer: "Round", results: Sequence[str]) -> bytes:
        """Write the request of the next round, with the results of the calls of this one."""

    def _extend_list(self, source: bytes, new_elements: Sequence[bytes]) -> bytes:
        start, stop = find_values(source)[self.list_name]
        if source[start : start + 1] == b'"':  # in Responses, a text is a message of the user
            message = b'[{"role":"user","content":%b}]' % source[start:stop]
            source, stop = splice.replace_bytes(source, start, stop, message), start + len(message)
        end = source.rindex(b"]", start, stop)
        return splice.replace_bytes(source, end, end, b"".join(b"," + element for element in new_elements))

    def withdraw_recall_tool(self, source: bytes) -> bytes:
        start, stop = find_values(source)["tools"]
        return splice.replace_bytes(source, start, stop, withdraw_tool(source[start:stop], self.recall_tool))

    def allows_rounds(self, source: bytes) -> bool:
        """Return False for a request whose answer cannot be followed by another."""
        for name, values in self.rounds_need.items():
            if find_raw(source, find_values(source), name) not in (b"", b"null", *values):
                return False
        return True


class Round(Struct, frozen=True):
    """An answer that calls the proxy's tool."""

    elements: tuple[bytes, ...]
    """The answer as the next request has to repeat it, with reasoning and signatures."""
    calls: tuple[ToolCall, ...]
    """Calls of the proxy's tool and of the client's."""


class Rounds(ABC):
    """The answers of all rounds of a request, shown to the client as one answer.

    An answer comes as a stream of events or as a whole body, whose bytes are held until its end. It has *items*:
    content blocks in Messages, output items in Responses.
    """

    _ITEMS: ClassVar[str]
    """The member of a body that holds its items."""
    _FINISH: ClassVar[str]
    """The member that tells why the answer ended."""
    _CUT: ClassVar[frozenset[str]]
    """Finish reasons after which the last call may be truncated."""
    _CALL: ClassVar[str]
    """The type of the items that call a tool."""
    _FINISHES: ClassVar[tuple[str, str]]
    """The finish reasons of an answer that calls tools, and of one that does not."""

    def __init_subclass__(
        cls, *, items: str, finish: str, cut: frozenset[str], call: str, finishes: tuple[str, str]
    ) -> None:
        cls._ITEMS, cls._FINISH, cls._CUT, cls._CALL, cls._FINISHES = items, finish, cut, call, finishes

    def __init__(self, *, stream: bool) -> None:
        self._stream = stream
        self._is_first = True
        self._usage: dict[str, Any] | None = None
        self.first_usage: Mapping[str, Any] | None = None
        """The usage of the first round, once there is another one."""
        self._next_index = 0
        """The number of items that the client has got, as it counts them."""
        self._client_calls = 0
        self._shown_before: list[bytes] = []
        """The items or messages of the earlier bodies, in the upstream's bytes."""
        self._reset(is_last=False)

    def _reset(self, *, is_last: bool) -> None:
        self._is_last = is_last
        self._events = EventReader(16 * 1024 * 1024)
        self._unshown: list[bytes] = []
        """Events that were split off but not shown yet. If showing one fails, `held` still has them."""
        self._rest = b""
        self._chunks: list[bytes] = []
        self._body = b""
        self._answer: Mapping[str, Any] = {}
        """A whole body as it was read; empty if it is no answer of this API."""
        self._round_usage: dict[str, Any] | None = None
        self._finish: str | None = None
        self._items: dict[int, dict[str, Any]] = {}
        """Items by the upstream's index."""
        self._elements: list[bytes] = []
        """The items of a whole body, as they came."""
        self._client_indexes: dict[int, int] = {}
        """The index of an item as the client counts them, by the upstream's index."""

    @property
    def held(self) -> bytes:
        return b"".join(self._unshown) + self._events.held

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes for the client; a whole body is held until its end."""
        if not self._stream:
            self._chunks.append(chunk)
            return b""
        self._unshown = self._events.feed(chunk)
        output = b"".join(map(self._show, self._unshown))
        self._unshown = []
        return output

    def end_round(self) -> Round | None:
        """Return the round if another one follows, and its end was not shown to the client; else None."""
        if self._stream and (rest := self.held):  # some servers end a stream without the blank line
            self._rest = self._show(rest)
            self._events.close()
        try:
            if not self._stream:
                self._read_body()
            return self._find_round() if self._waits else None
        except UNREADABLE:  # it is no answer of this API, and is delivered as it came
            self._answer, self._elements = {}, []
            return None

    @property
    def _waits(self) -> bool:
        """Whether the answer ended for a call of the proxy's tool, so that another round follows."""
        return not self._is_last and self._finish is not None and self._finish not in self._CUT and self._has_own_call()

    def _name_finish(self, finish: str | None) -> str | None:
        """Return the finish reason for the client, who does not see calls of the proxy's tool."""
        if finish is None or finish in self._CUT or (self._is_first and not self._has_own_call()):
            return finish
        for_calls, for_words = self._FINISHES
        if self._client_calls:
            return finish if self._is_first else for_calls
        return for_words if finish == for_calls else finish

    def _has_own_call(self) -> bool:
        return any(map(self._is_own, self._items.values()))

    def _is_own(self, item: Mapping[str, Any]) -> bool:
        """Return True for a call of the proxy's tool."""
        return item.get("type") == self._CALL and item.get("name") == RECALL.name

    def begin_round(self, *, is_last: bool) -> None:
        """Begin the next round. If `is_last`, no other follows, even if this one calls the proxy's tool."""
        if not self._stream:
            self._shown_before += self._choose_shown()
        self._usage = add_usage(self._usage, self._round_usage)
        if self._is_first:
            self.first_usage = self._round_usage
        self._is_first = False
        self._reset(is_last=is_last)

    def close(self) -> bytes | None:
        """Return the end of the stream, or the whole body; None if a body is to be delivered as it came."""
        return self._rest + self._events.close() if self._stream else self._join_bodies()

    @abstractmethod
    def _show(self, event: bytes) -> bytes:
        """Return the event as the client gets it; empty if it does not get it."""

    @abstractmethod
    def _find_round(self) -> Round:
        """Return the round that ended for a call of the proxy's tool."""

    @abstractmethod
    def _choose_shown(self) -> list[bytes]:
        """Return the items of this round that the client gets, in the upstream's bytes."""

    def _find_changes(self) -> dict[str, bytes]:
        """Return the other members of the last body that change."""
        return {}

    def _read_body(self) -> None:
        self._body, self._chunks = b"".join(self._chunks), []
        self._answer = read_object(self._body) or {}
        items = self._answer.get(self._ITEMS)
        if isinstance(items, list):
            self._items = dict(enumerate(map(as_object, items)))
            self._elements = read_elements(find_raw(self._body, find_values(self._body), self._ITEMS))
        self._round_usage = as_object(self._answer.get("usage")) or None
        self._finish = as_text(self._answer.get(self._FINISH)) or None

    def _join_bodies(self) -> bytes | None:
        if self._ITEMS not in self._answer:
            return None
        shown = self._choose_shown()
        changes = self._find_changes() | self._sum_usage()
        finish = self._name_finish(self._finish)
        if finish != self._finish:
            changes[self._FINISH] = splice.write_json(finish)
        if not self._is_first or len(shown) < len(self._elements):
            changes[self._ITEMS] = write_elements((*self._shown_before, *shown))
        if not changes:
            return None
        return splice.set_members(self._body, changes)

    def _sum_usage(self) -> dict[str, bytes]:
        usage = add_usage(self._usage, self._round_usage)
        if self._is_first or usage is None:
            return {}
        return {"usage": splice.write_json(usage)}


def write_elements(elements: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(elements) + b"]"


def add_usage(usage: Mapping[str, Any] | None, other_usage: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Add up the numbers of two usage objects. Any other value is taken from the second."""
    if usage is None or other_usage is None:
        return dict(usage or other_usage or {}) or None
    total = dict(usage)
    for name, value in other_usage.items():
        before = usage.get(name)
        # By `type`, because `isinstance` counts True as an integer.
        if type(value) in (int, float) and type(before) in (int, float):
            total[name] = before + value
        elif isinstance(value, dict) and isinstance(before, dict):
            total[name] = add_usage(before, value)
        elif value is not None:
            total[name] = value
    return total


def write_completion(answer: Mapping[str, Any], content: list[Any], calls: list[Any], finish: str | None) -> bytes:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": finish}
    members = {name: answer.get(name) for name in ("model", "usage", "context_management")}
    return json.dumps({**members, "choices": [choice]}).encode()


def make_call(call_id: object, name: object, arguments: object) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def make_chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
