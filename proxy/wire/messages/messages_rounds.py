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
_USED = "tool_use"

Block = dict[str, Any]


class MessagesRounds(Rounds):
    """The rounds of one request.

    Thinking goes back to the upstream unchanged within them. Of the later ones the client does not get it: it is signed
    for a history with the proxy's own call in it, and the client's next request has another.
    """

    def __init__(self, own: Collection[str], *, stream: bool) -> None:
        super().__init__(own, stream=stream)
        self._shown: list[Block] = []
        """The blocks of a whole body that the client gets of the rounds that are over."""
        self._next_index = 0
        self._client_calls = 0
        """How many calls of the client's tools it has got."""

    def _reset(self, *, is_last: bool) -> None:
        super()._reset(is_last=is_last)
        self._blocks: dict[int, Block] = {}
        self._texts: dict[tuple[int, str], list[str]] = {}
        """What grows of a block in a stream, by its index and the name of the member."""
        self._places: dict[int, int | None] = {}
        """The client's index of each block; None where it does not get it."""
        self._stop: str | None = None

    def _find_round(self) -> Round | None:
        if self._stop is None or not self._waits:
            return None
        blocks = [self._close_block(index) for index in sorted(self._blocks)]
        sendable = [block for block in blocks if block.get("type") != "text" or str(block.get("text")).strip()]
        calls = tuple(
            ToolCall(str(block.get("id")), str(block.get("name")), json.dumps(block.get("input")))
            for block in sendable
            if block.get("type") == _USED
        )
        return Round((b'{"role":"assistant","content":%b}' % write_json(sendable),), calls)

    @property
    def _waits(self) -> bool:
        """True where this answer ends for a call of the proxy's own tools: the end for the client is still to come."""
        return not self._is_last and self._stop not in _CUT and any(map(self._is_own, self._blocks.values()))

    def _show(self, event: bytes) -> bytes:
        value = read_event(event) or {}
        match value.get("type"):
            case "message_start":
                self._round_usage = as_object(as_object(value.get("message")).get("usage"))
                return event if self._is_first else b""
            case "content_block_start":
                self._open_block(value)
            case "content_block_delta":
                self._grow(_index_of(value), as_object(value.get("delta")))
            case "content_block_stop":
                pass
            case "message_delta":
                return self._show_end(event, value)
            case "message_stop":
                return b"" if self._waits else event
            case _:
                return event
        place = self._places.get(_index_of(value))
        if place is None:
            return b""
        return event if place == value["index"] else write_event({**value, "index": place}, named=True)

    def _open_block(self, value: Mapping[str, Any]) -> None:
        block, index = dict(as_object(value.get("content_block"))), _index_of(value)
        self._blocks[index] = block
        self._places[index] = None
        if self._is_shown(block):
            self._places[index] = self._next_index
            self._next_index += 1
            self._client_calls += block.get("type") == _USED

    def _grow(self, index: int, delta: Mapping[str, Any]) -> None:
        block, kind = self._blocks.setdefault(index, {}), str(delta.get("type"))
        if kind in _GROWING:
            name = _GROWING[kind]
            pieces = self._texts.setdefault((index, name), [str(block.get(name) or "")])
            pieces.append(str(delta.get(name) or ""))
        elif kind == "signature_delta":
            block["signature"] = delta.get("signature")
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]

    def _close_block(self, index: int) -> Block:
        """The block as it is sent back."""
        grown = {name: "".join(pieces) for (at, name), pieces in self._texts.items() if at == index}
        partial = grown.pop("partial_json", None)
        given = {} if partial is None else {"input": read_object(partial.encode("utf-8", "surrogatepass")) or {}}
        return {**self._blocks[index], **grown, **given}

    def _is_own(self, block: Block) -> bool:
        """Whether this is a call of one of the proxy's own tools."""
        return block.get("type") == _USED and block.get("name") in self._own

    def _is_shown(self, block: Block) -> bool:
        return not self._is_own(block) and (self._is_first or block.get("type") not in THINKING)

    def _show_end(self, event: bytes, value: dict[str, Any]) -> bytes:
        delta, more = as_object(value.get("delta")), as_object(value.get("usage"))
        # What an API says at the end counts from the beginning: it replaces the count there.
        self._round_usage = (self._round_usage or {}) | {
            name: count for name, count in more.items() if count is not None
        }
        stop = delta.get("stop_reason")
        self._stop = stop if isinstance(stop, str) else None
        if self._waits:
            return b""
        named = self._name_stop(stop)
        if self._is_first and named == stop:
            return event
        usage = add_usage(self._usage, self._round_usage)
        return write_event({**value, "delta": {**delta, "stop_reason": named}, "usage": usage}, named=True)

    def _name_stop(self, stop: object) -> object:
        if stop in _CUT or stop is None:
            return stop
        if self._client_calls:
            return stop if self._is_first else _USED
        return "end_turn" if stop == _USED else stop

    def _read_body(self) -> None:
        whole = read_object(self._body) or {}
        content = whole.get("content")
        self._blocks = dict(enumerate(map(as_object, content if isinstance(content, list) else ())))
        self._round_usage, self._stop = as_object(whole.get("usage")), whole.get("stop_reason")

    def _keep_shown(self) -> None:
        self._shown += self._choose_shown()

    def _choose_shown(self) -> list[Block]:
        shown = [block for block in self._blocks.values() if self._is_shown(block)]
        self._client_calls += sum(block.get("type") == _USED for block in shown)
        return shown

    def _join_bodies(self) -> bytes | None:
        if self._is_first and not any(map(self._is_own, self._blocks.values())):
            return None
        whole = read_object(self._body)
        if whole is None or whole.get("type") != "message":
            return None
        content = [*self._shown, *self._choose_shown()]
        usage = add_usage(self._usage, self._round_usage)
        return write_json({**whole, "content": content, "stop_reason": self._name_stop(self._stop), "usage": usage})


def _index_of(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else -1
