"""Several rounds of Messages, as the client gets them."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from proxy.history.messages import ToolCall
from proxy.wire.lenient import as_object, read_object, write_json
from proxy.wire.rounds import Round, Rounds, add_usage
from proxy.wire.sse import read_event, write_event

_CUT = frozenset({"max_tokens", "model_context_window_exceeded", "refusal", "pause_turn"})
THINKING = frozenset({"thinking", "redacted_thinking"})
_GROWING = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
_TOOL_USE = "tool_use"

Block = dict[str, Any]


class MessagesRounds(Rounds):
    """The rounds of one request.

    Thinking is sent back unchanged within them. Of later rounds the client does not get it: it is signed for a history
    with the call of the proxy's tool in it, and the client's next request has another.
    """

    def __init__(self, own_tools: Collection[str], *, stream: bool) -> None:
        super().__init__(own_tools, stream=stream)
        self._earlier_blocks: list[Block] = []
        """Of whole bodies: the blocks that the client gets of the rounds that are over."""
        self._next_index = 0
        self._client_calls = 0
        """The number of calls of its own tools that the client has got."""

    def _reset(self, *, is_last: bool) -> None:
        super()._reset(is_last=is_last)
        self._blocks: dict[int, Block] = {}
        self._growing: dict[int, dict[str, list[str]]] = {}
        """The pieces of the members of each block that come in pieces."""
        self._client_indexes: dict[int, int] = {}
        """The client's index of each block that it gets."""
        self._stop_reason: str | None = None

    def _find_round(self) -> Round | None:
        if self._stop_reason is None or not self._waits:
            return None
        blocks: list[Block] = []
        calls: list[ToolCall] = []
        for index in sorted(self._blocks):
            block = self._close_block(index)
            if block.get("type") == "text" and not str(block.get("text")).strip():
                continue  # the API refuses an empty text
            blocks.append(block)
            if block.get("type") == _TOOL_USE:
                calls.append(ToolCall(str(block.get("id")), str(block.get("name")), json.dumps(block.get("input"))))
        return Round((b'{"role":"assistant","content":%b}' % write_json(blocks),), tuple(calls))

    @property
    def _waits(self) -> bool:
        """True if this answer ends for a call of the proxy's own tools: the client's end is still to come."""
        return not self._is_last and self._stop_reason not in _CUT and any(map(self._is_own, self._blocks.values()))

    def _show(self, event: bytes) -> bytes:
        value = read_event(event) or {}
        kind = value.get("type")
        if kind == "message_delta":
            return self._show_end(event, value)
        if kind in ("content_block_start", "content_block_delta", "content_block_stop"):
            return self._show_block_event(event, value)
        if kind == "message_start":
            self._round_usage = as_object(as_object(value.get("message")).get("usage"))
        if (kind == "message_start" and not self._is_first) or (kind == "message_stop" and self._waits):
            return b""
        return event

    def _show_block_event(self, event: bytes, value: Mapping[str, Any]) -> bytes:
        if value["type"] == "content_block_start":
            self._open_block(value)
        elif value["type"] == "content_block_delta":
            self._grow(_get_index(value), as_object(value.get("delta")))
        client_index = self._client_indexes.get(_get_index(value))
        if client_index is None:
            return b""
        if client_index == value["index"]:
            return event
        return write_event({**value, "index": client_index}, named=True)

    def _open_block(self, value: Mapping[str, Any]) -> None:
        block, index = dict(as_object(value.get("content_block"))), _get_index(value)
        self._blocks[index] = block
        self._client_indexes.pop(index, None)
        if self._is_shown(block):
            self._client_indexes[index] = self._next_index
            self._next_index += 1
            self._client_calls += block.get("type") == _TOOL_USE

    def _grow(self, index: int, delta: Mapping[str, Any]) -> None:
        block, kind = self._blocks.setdefault(index, {}), str(delta.get("type"))
        if kind in _GROWING:
            name = _GROWING[kind]
            pieces = self._growing.setdefault(index, {}).setdefault(name, [str(block.get(name) or "")])
            pieces.append(str(delta.get(name) or ""))
        elif kind == "signature_delta":
            block["signature"] = delta.get("signature")
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]

    def _close_block(self, index: int) -> Block:
        """The block as it is sent back."""
        block = dict(self._blocks[index])
        for name, pieces in self._growing.get(index, {}).items():
            text = "".join(pieces)
            if name == "partial_json":
                block["input"] = read_object(text.encode("utf-8", "surrogatepass")) or {}
            else:
                block[name] = text
        return block

    def _is_own(self, block: Block) -> bool:
        """True for a call of one of the proxy's own tools."""
        return block.get("type") == _TOOL_USE and block.get("name") in self._own

    def _is_shown(self, block: Block) -> bool:
        return not self._is_own(block) and (self._is_first or block.get("type") not in THINKING)

    def _show_end(self, event: bytes, value: dict[str, Any]) -> bytes:
        delta = as_object(value.get("delta"))
        # The counts at the end are of the whole answer, and replace those of the beginning:
        # <https://platform.claude.com/docs/en/build-with-claude/streaming>.
        end_usage = as_object(value.get("usage"))
        usage = (self._round_usage or {}) | {name: count for name, count in end_usage.items() if count is not None}
        self._round_usage = usage
        stop_reason = delta.get("stop_reason")
        self._stop_reason = stop_reason if isinstance(stop_reason, str) else None
        if self._waits:
            return b""
        client_reason = self._name_stop(stop_reason)
        if self._is_first and client_reason == stop_reason:
            return event
        delta = {**delta, "stop_reason": client_reason}
        return write_event({**value, "delta": delta, "usage": add_usage(self._usage, usage)}, named=True)

    def _name_stop(self, stop_reason: object) -> object:
        """The stop reason for the client, after rounds that it does not see."""
        if stop_reason in _CUT or stop_reason is None:
            return stop_reason
        if self._client_calls and not self._is_first:
            return _TOOL_USE
        if not self._client_calls and stop_reason == _TOOL_USE:
            return "end_turn"
        return stop_reason

    def _read_body(self) -> None:
        body = read_object(self._body) or {}
        content = body.get("content")
        if isinstance(content, list):
            self._blocks = dict(enumerate(map(as_object, content)))
        self._round_usage, self._stop_reason = as_object(body.get("usage")), body.get("stop_reason")

    def _keep_shown(self) -> None:
        self._earlier_blocks += self._choose_shown()

    def _choose_shown(self) -> list[Block]:
        blocks = [block for block in self._blocks.values() if self._is_shown(block)]
        self._client_calls += sum(block.get("type") == _TOOL_USE for block in blocks)
        return blocks

    def _join_bodies(self) -> bytes | None:
        if self._is_first and not any(map(self._is_own, self._blocks.values())):
            return None
        body = read_object(self._body)
        if body is None or body.get("type") != "message":
            return None
        body["content"] = [*self._earlier_blocks, *self._choose_shown()]
        body["stop_reason"] = self._name_stop(self._stop_reason)
        body["usage"] = add_usage(self._usage, self._round_usage)
        return write_json(body)


def _get_index(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    if isinstance(index, int):
        return index
    return -1
