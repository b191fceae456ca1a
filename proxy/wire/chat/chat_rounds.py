"""Several rounds of chat completions, as the client gets them."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from proxy.history.messages import read_message
from proxy.wire.answer_assembly import Assembly
from proxy.wire.lenient import read_object, write_json
from proxy.wire.rounds import Round, Rounds, add_usage
from proxy.wire.sse import read_event, write_event

_CUT = frozenset({"length", "content_filter"})
"""Finish reasons after which the last call may be truncated."""
_NAMELESS = frozenset({"index", "id", "type", "function"})
"""All members of a piece that may be one of a call of the proxy's own tools; only its name tells."""
_TEXT_MEMBERS = ("content", "reasoning_content", "reasoning")
SIGNED_MEMBER = "reasoning_details"
"""Left out of later rounds: it is signed for a history that the client never sends."""
PARAGRAPH = "\n\n"
"""Put between the texts of two rounds, which would run into one another."""


@dataclass(slots=True)
class _OpenCall:
    """A call of a stream whose pieces may still come."""

    id: object
    place: int | None
    """The client's index; None for a call of the proxy's own tools."""


class ChatRounds(Rounds):
    """The rounds of one request."""

    def __init__(self, own: Collection[str], *, stream: bool) -> None:
        super().__init__(own, stream=stream)
        self._about: dict[str, Any] = {}
        """The id and time of the first answer, which all events carry."""
        self._client_calls = 0
        """How many calls of the client's tools it has got."""
        self._ends = dict[str, str]()
        """The last letters of each voice in the rounds that are over."""
        self._messages: list[dict[str, Any]] = []
        """Of whole bodies: the messages of the rounds that are over."""

    def _reset(self, *, is_last: bool) -> None:
        super()._reset(is_last=is_last)
        self._assembly = Assembly("text/event-stream" if self._stream else "application/json")
        self._finish: str | None = None
        self._calls: dict[int, _OpenCall] = {}
        self._nameless: dict[int, list[dict[str, Any]]] = {}
        """The first pieces of calls, where the name comes in a later one."""
        self._newest_call = -1
        self._calls_own = False
        self._last_letters = dict[str, str]()
        """The last letters of each voice in this round."""

    def feed(self, chunk: bytes) -> bytes:
        self._assembly.feed(chunk)
        return super().feed(chunk)

    def begin_round(self, *, is_last: bool) -> None:
        self._ends |= self._last_letters
        super().begin_round(is_last=is_last)

    def _find_round(self) -> Round | None:
        choices = self._assembly.answer(ended=True).choices
        if not choices or self._finish is None or self._finish in _CUT:
            return None
        raw = choices[0].message
        message = read_message(json.loads(raw), raw)
        if self._is_last or all(call.name not in self._own for call in message.calls):
            return None
        return Round((raw,), message.calls)

    @property
    def _waits(self) -> bool:
        """Whether this answer has ended for an own tool of the proxy: the end for the client is still to come."""
        return self._calls_own and not self._is_last and self._finish is not None and self._finish not in _CUT

    def _show(self, event: bytes) -> bytes:
        chunk = read_event(event)
        if chunk is None or "error" in chunk:
            return b"" if self._waits and b"[DONE]" in event else event
        if self._is_first and not self._about:
            self._about = {key: chunk[key] for key in ("id", "created") if key in chunk}
        listed = chunk.get("choices")
        choice = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else None
        is_changed = choice is not None and self._change(choice)
        if isinstance(usage := chunk.get("usage"), dict):
            self._round_usage = usage
            if self._waits:
                del chunk["usage"]
                is_changed = True
            elif self._usage:
                chunk["usage"] = add_usage(self._usage, usage)
        if self._is_first and not is_changed:
            return event
        says_something = choice is not None and (choice.get("delta") or choice.get("finish_reason"))
        return write_event(chunk | self._about) if says_something or isinstance(chunk.get("usage"), dict) else b""

    def _change(self, choice: dict[str, Any]) -> bool:
        """Take calls of own tools out of a choice, and let it go on where the last round ended. True: it is changed."""
        is_changed = False
        delta = choice.get("delta")
        if isinstance(delta, dict):
            if self._nameless and choice.get("finish_reason"):
                delta.setdefault("tool_calls", [])
            if isinstance(pieces := delta.get("tool_calls"), list):
                shown = [each for piece in pieces if isinstance(piece, dict) for each in self._show_call(piece)]
                if choice.get("finish_reason"):  # no name will come
                    shown += [piece for held in self._nameless.values() for piece in held]
                is_changed = self._calls_own or shown != pieces
                delta["tool_calls"] = shown
                if not shown:
                    del delta["tool_calls"]
            if not self._is_first:
                delta.pop("role", None)
                delta.pop(SIGNED_MEMBER, None)
            self._show_text(delta)
        if isinstance(finish := choice.get("finish_reason"), str):
            self._finish = finish
            choice["finish_reason"] = None if self._waits else self._name_finish(finish)
            is_changed |= choice["finish_reason"] != finish
        return is_changed

    def _show_call(self, piece: dict[str, Any]) -> list[dict[str, Any]]:
        """Give a piece of a call the client's index. The pieces to show: before its name, and of an own tool, none."""
        called, id_, index = piece.get("function") or piece.get("custom"), piece.get("id"), piece.get("index")
        name = called.get("name") if isinstance(called, dict) else None
        if not isinstance(index, int):
            index = self._newest_call + bool(name)
        call = self._calls.get(index)
        if call is None and not name and _NAMELESS.issuperset(piece):
            self._nameless.setdefault(index, []).append(piece)
            return []
        pieces = [*self._nameless.pop(index, ()), piece]
        if name and (call is None or (id_ and id_ != call.id)):  # some servers give all calls the same index
            id_ = next((each["id"] for each in pieces if each.get("id")), None)
            is_own = name in self._own
            call = self._calls[index] = _OpenCall(id_, None if is_own else self._client_calls)
            self._client_calls += not is_own
            self._calls_own |= is_own
        self._newest_call = index
        if call is None or call.place is None:
            return pieces if call is None else []
        if self._calls_own or not self._is_first:
            for each in pieces:
                if "index" in each:
                    each["index"] = call.place
        return pieces

    def _show_text(self, delta: dict[str, Any]) -> None:
        """Separate the first text of a round from the text before."""
        for voice in _TEXT_MEMBERS:
            text = delta.get(voice)
            if isinstance(text, str) and text:
                if voice not in self._last_letters:
                    delta[voice] = _part(self._ends.get(voice, ""), text) + text
                self._last_letters[voice] = text[-1:]

    def _name_finish(self, finish: str) -> str:
        if finish in _CUT or (self._is_first and not self._calls_own):
            return finish
        if not self._client_calls:
            return "stop" if finish == "tool_calls" else finish
        return finish if self._is_first else "tool_calls"

    def _read_body(self) -> None:
        answer = self._assembly.answer(ended=True)
        self._round_usage = dict(answer.usage or {}) or None
        self._finish = answer.choices[0].finish if answer.choices else None

    def _keep_shown(self) -> None:
        self._messages.append(self._read_message())

    def _read_message(self) -> dict[str, Any]:
        answer = self._assembly.answer(ended=True)
        message = json.loads(answer.choices[0].message)
        calls = message.get("tool_calls") or ()
        shown = [call for call in calls if call.get("function", {}).get("name") not in self._own]
        self._client_calls += len(shown)
        return {**message, "tool_calls": shown}

    def _join_bodies(self) -> bytes | None:
        whole = read_object(self._body)
        if whole is None or (self._is_first and not self._names_own(self._body)):
            return None
        try:
            message, choice = self._read_message(), whole["choices"][0]
        except (LookupError, TypeError, ValueError):
            return None
        for earlier in reversed(self._messages):
            for voice in _TEXT_MEMBERS:
                before, text = earlier.get(voice) or "", message.get(voice) or ""
                if before and isinstance(before, str) and isinstance(text, str):
                    message[voice] = before + (_part(before, text) if text else "") + text
            message["tool_calls"] = earlier["tool_calls"] + message["tool_calls"]
        if not message["tool_calls"]:
            del message["tool_calls"]
        if not self._is_first:
            message.pop(SIGNED_MEMBER, None)
            whole["usage"] = add_usage(self._usage, whole.get("usage"))
        choice |= {"message": message, "finish_reason": self._name_finish(str(choice.get("finish_reason")))}
        return write_json(whole)


def _part(before: str, text: str) -> str:
    return PARAGRAPH if before and not (before[-1:].isspace() or text[:1].isspace()) else ""
