"""Change the calls of an assistant message inside its bytes: other arguments, or fewer calls."""

from collections.abc import Callable, Collection, Iterator

from proxy.history import splice
from proxy.history.messages import Message, ToolCall, make_literal

_WORDED = {"function": "arguments", "custom": "input"}


def change_arguments(message: Message, change: Callable[[ToolCall], str], made: str) -> Message:
    """Each call with the arguments that `change` gives it; everything else keeps its bytes."""
    changes: list[tuple[int, int, bytes]] = []
    for call, (start, stop) in zip(message.calls, _find_argument_places(message.raw), strict=False):
        text = change(call)
        if text != call.arguments and stop:
            changes.append((start, stop, splice.quote(text)))
    raw = splice.replace_spans(message.raw, sorted(changes))
    return message if raw == message.raw else make_literal(raw, message.start, message.stop, made)


def remove_calls(message: Message, removed: Collection[int], made: str) -> Message | None:
    """The message without the calls at these places; None when nothing would be left of it."""
    raw = message.raw
    listed = splice.find_member(raw, "tool_calls")
    spans = [] if listed is None else list(splice.iterate_elements(raw, listed.start))
    kept = [raw[start:stop] for place, (start, stop) in enumerate(spans) if place not in removed]
    dropped = {"tool_calls"} if spans and not kept else set()
    dropped |= {"function_call"} if len(spans) in removed else set()
    if listed is not None and 0 < len(kept) < len(spans):
        raw = splice.replace_bytes(raw, listed.start, listed.stop, b"[" + b", ".join(kept) + b"]")
    left = make_literal(splice.remove_members(raw, frozenset(dropped)), message.start, message.stop, made)
    return left if left.calls or left.text.strip() else None


def list_argument_texts(call: ToolCall) -> Iterator[str]:
    """The texts inside the arguments; the arguments as one text where they are not JSON."""
    value = call.value
    yield from (call.arguments,) if value is None else iterate_strings(value)


def iterate_strings(value: object) -> Iterator[str]:
    """Every text in a JSON value; the names of members are none."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from iterate_strings(each)


def _find_argument_places(raw: bytes) -> list[tuple[int, int]]:
    """The byte ranges of each call's arguments, in the order of `Message.calls`; (0, 0) for one without."""
    places = []
    listed = splice.find_member(raw, "tool_calls")
    if listed is not None and raw[listed.start : listed.start + 1] == b"[":
        places = [_find_arguments(raw, start) for start, _ in splice.iterate_elements(raw, listed.start)]
    legacy = splice.find_member(raw, "function_call")
    if legacy is not None and raw[legacy.start : legacy.start + 1] == b"{":
        places.append(_find_text(raw, legacy.start, "arguments"))
    return places


def _find_arguments(raw: bytes, start: int) -> tuple[int, int]:
    if raw[start : start + 1] != b"{":
        return 0, 0
    for kind in ("custom", "function"):
        inner = splice.find_member(raw, kind, start)
        if inner is not None and raw[inner.start : inner.start + 1] == b"{":
            return _find_text(raw, inner.start, _WORDED[kind])
    return 0, 0


def _find_text(raw: bytes, start: int, key: str) -> tuple[int, int]:
    found = splice.find_member(raw, key, start)
    return (0, 0) if found is None else (found.start, found.stop)
