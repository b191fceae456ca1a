"""Several rounds of Responses, as the client gets them."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from proxy.history.messages import ToolCall
from proxy.wire.lenient import as_object, read_object, write_json
from proxy.wire.responses.call_items import CALLS, is_call
from proxy.wire.rounds import Round, Rounds, add_usage
from proxy.wire.sse import has_name, read_event, write_event

_BEGUN = frozenset({"response.created", "response.in_progress", "response.queued"})
ENDED = frozenset({"response.completed", "response.incomplete", "response.failed"})

Item = dict[str, Any]


class ResponsesRounds(Rounds):
    """The rounds of one request.

    Reasoning belongs to the item behind it, and the API refuses one without the other. So reasoning is shown once the
    item behind it is known, and reasoning that led to a call of the proxy's own tools is not shown at all.
    """

    def __init__(self, own: Collection[str], *, stream: bool) -> None:
        super().__init__(own, stream=stream)
        self._shown: list[Item] = []
        """The items that the client has got, or of whole bodies will get, of all rounds."""
        self._next_index = 0
        self._sequence = -1
        """The number of the last event that was shown."""
        self._is_changed = False
        """An event was left out: those that follow have other numbers."""

    def _reset(self, *, is_last: bool) -> None:
        super()._reset(is_last=is_last)
        self._items: dict[int, Item] = {}
        """By the upstream's index: as they began, and then as they are."""
        self._places: dict[int, int] = {}
        """The client's index of each."""
        self._thoughts: list[tuple[bytes, dict[str, Any]]] = []
        """Events of reasoning whose next item is not known yet."""
        self._status: str | None = None

    def begin_round(self, *, is_last: bool) -> None:
        super().begin_round(is_last=is_last)
        self._is_changed = True

    def _find_round(self) -> Round | None:
        if not self._waits:
            return None
        items = [item for _, item in sorted(self._items.items())]
        calls = tuple(
            ToolCall(
                str(item.get("call_id") or item.get("id")),
                str(item.get("name") or item["type"]),
                str(item.get(CALLS.get(item["type"], "")) or ""),
                "custom" if item["type"] == "custom_tool_call" else "function",
            )
            for item in items
            if is_call(str(item.get("type")))
        )
        return Round(tuple(map(write_json, items)), calls)

    @property
    def _waits(self) -> bool:
        """True where this answer ends for a call of the proxy's own tools: the end for the client is still to come."""
        return not self._is_last and self._status == "completed" and any(map(self._is_own, self._items.values()))

    def _show(self, event: bytes) -> bytes:
        value = read_event(event)
        kind = None if value is None else value.get("type")
        if value is None or not isinstance(kind, str):
            return event
        if kind in _BEGUN:
            return self._number(event, value) if self._is_first else b""
        if kind in ENDED:
            return self._show_end(event, value)
        index = value.get("output_index")
        return self._show_item(event, value, index) if isinstance(index, int) else self._number(event, value)

    def _show_item(self, event: bytes, value: dict[str, Any], index: int) -> bytes:
        """An event about an item, with what was held back before it."""
        kind, ready = value["type"], b""
        if kind == "response.output_item.added":
            ready = self._open_item(index, as_object(value.get("item")))
        elif kind == "response.output_item.done":
            self._items[index] = as_object(value.get("item"))
        item = self._items.get(index, {})
        if self._is_own(item):
            self._is_changed = True
            return ready
        if self._thoughts or (item.get("type") == "reasoning" and index not in self._places):
            self._thoughts.append((event, value))
            return ready
        return ready + self._show_item_event(event, value)

    def _open_item(self, index: int, item: Item) -> bytes:
        """The reasoning before this item, if the client gets it."""
        self._items[index] = item
        thoughts, self._thoughts = self._thoughts, []
        if self._is_own(item):
            self._is_changed |= bool(thoughts)
            return b""
        return b"".join([self._show_item_event(*thought) for thought in thoughts])

    def _show_item_event(self, event: bytes, value: dict[str, Any]) -> bytes:
        index = value["output_index"]
        if index not in self._places:
            self._places[index] = self._next_index
            self._next_index += 1
        if value["type"] == "response.output_item.done":
            self._shown.append(as_object(value.get("item")))
        return self._number(event, {**value, "output_index": self._places[index]})

    def _show_end(self, event: bytes, value: dict[str, Any]) -> bytes:
        response = as_object(value.get("response"))
        self._status, self._round_usage = str(response.get("status")), as_object(response.get("usage")) or None
        if self._waits:
            return b""
        thoughts, self._thoughts = self._thoughts, []
        ready = b"".join([self._show_item_event(*thought) for thought in thoughts])
        if self._is_changed:
            response["output"] = self._shown
            response["usage"] = add_usage(self._usage, self._round_usage)
        return ready + self._number(event, value)

    def _number(self, event: bytes, value: dict[str, Any]) -> bytes:
        """The event with its number in the order of what the client gets, and without the tool among its tools."""
        number = value.get("sequence_number")
        if not self._is_changed:
            self._sequence = number if isinstance(number, int) else self._sequence
            if not self._names_own(event):
                return event
        elif isinstance(number, int):
            self._sequence += 1
            value["sequence_number"] = self._sequence
        return write_event(self._without_tools(value), named=has_name(event))

    def _read_body(self) -> None:
        whole = read_object(self._body) or {}
        output = whole.get("output")
        self._items = dict(enumerate(map(as_object, output if isinstance(output, list) else ())))
        self._round_usage, self._status = as_object(whole.get("usage")) or None, str(whole.get("status"))

    def _keep_shown(self) -> None:
        self._shown += self._leave_out_own(self._items.values())

    def _join_bodies(self) -> bytes | None:
        if self._is_first and not self._names_own(self._body):
            return None
        whole = read_object(self._body)
        if whole is None or whole.get("object") != "response":
            return None
        output = [*self._shown, *self._leave_out_own(self._items.values())]
        usage = add_usage(self._usage, self._round_usage)
        return write_json(self._without_tools({**whole, "output": output, "usage": usage}))

    def _is_own(self, item: Mapping[str, Any]) -> bool:
        """Whether this is a call of one of the proxy's own tools."""
        return item.get("type") == "function_call" and item.get("name") in self._own

    def _leave_out_own(self, items: Iterable[Item]) -> list[Item]:
        """The items without calls of the proxy's own tools, and without the reasoning that led to them."""
        shown: list[Item] = []
        for item in items:
            if not self._is_own(item):
                shown.append(item)
            elif shown and shown[-1].get("type") == "reasoning":
                shown.pop()
        return shown

    def _without_tools(self, value: dict[str, Any]) -> dict[str, Any]:
        """The event or answer without the proxy's own tools in the list of tools, which this API repeats."""
        about = value.get("response", value)
        if isinstance(about, dict) and isinstance(about.get("tools"), list):
            about["tools"] = [
                tool for tool in about["tools"] if not (isinstance(tool, dict) and tool.get("name") in self._own)
            ]
        return value
