r"""The canonical form of a message: the bytes that it is known by, however a client writes its JSON.

A gateway or another version of a client may write a message with other spaces, another order of keys or other escapes,
and clients move their cache markers every turn:

    {"content": [{"text": "gr\u00fc\u00df", "type": "text", "cache_control": {}}], "role": "user"}
    {"role":"user","content":"grüß"}

The first becomes the second. What cannot be read as JSON stays as it is. Changing this form changes the keys of all
that is stored: `CHAIN_VERSION` in `chain.py` must change with it.
"""

import json
import re
from itertools import islice
from typing import Any

from proxy.history import splice
from proxy.history.messages import Message

MARKERS = frozenset({"cache_control", "prompt_cache_breakpoint"})
"""`cache_control` is Anthropic's: https://platform.claude.com/docs/en/build-with-claude/prompt-caching."""
_MARKER_NAME_PART = b"cache_"
# The order of keys in which most clients write a message; other keys follow by name.
_ORDER = ("role", "tool_call_id", "content", "tool_calls", "id", "type", "function", "name", "arguments")
_RANKS = {key: rank for rank, key in enumerate(_ORDER)}
_CONTENT = b'"content"'
_CONTENT_KEY = re.compile(_CONTENT + rb"\s*:\s*")
# An escape follows an odd number of backslashes. Control characters without a short form can be written in one way.
_ESCAPE = re.compile(rb"(?<!\\)(\\++)u(?!00(?:0[0-7be-f]|1[0-9a-f]))")
# Its quotes are no escaped ones, and the brace behind it is the last of the element: it is a member of the element.
_LAST_MARKER = re.compile(rb'\s*,\s*"cache_control"\s*:\s*\{\s*"type"\s*:\s*"ephemeral"\s*\}(?=\s*\}\Z)')
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_PARSED_WHOLE_BYTES = 1_024


def canonicalize(message: Message) -> bytes:
    """Return a message in canonical form."""
    raw = message.raw
    if len(raw) <= _PARSED_WHOLE_BYTES or _MARKER_NAME_PART in raw or message.content[:1] != b'"':
        return _rewrite(raw)
    return _rewrite_around(message)


def keep_as_written(message: Message) -> bytes:
    """Return a message as its client writes it, without cache markers: canonical if the client writes that form."""
    raw = remove_cache_marker(message.raw)
    if message.content[:1] == b"[":
        return _unwrap_text(raw)
    return raw


def has_ambiguous_escape(raw: bytes) -> bool:
    r"""Whether a `\u` stands for a character that could be written in another way."""
    return b"\\u" in raw and any(len(escape[1]) % 2 for escape in _ESCAPE.finditer(raw))


def remove_cache_marker(raw: bytes) -> bytes:
    """Return a message without the cache markers on it, on the parts of its content and on its calls."""
    if _MARKER_NAME_PART not in raw:
        return raw
    raw = splice.remove_members(raw, MARKERS)
    for key in ("content", "tool_calls"):
        member = splice.find_member(raw, key)
        if member is not None and raw[member.start : member.start + 1] == b"[":
            raw = splice.replace_elements(raw, member.start, _strip_markers)
    return raw


def remove_wrapping(content: bytes) -> bytes:
    """Return the content of a message without cache markers, and without the list that a single text needs for them.

    A client moves its marker with each turn: what is compared or measured must not change by that.
    """
    if content[:1] != b"[":
        return content
    if _MARKER_NAME_PART in content:
        content = splice.replace_elements(content, 0, _strip_markers)
    text = _find_only_text(content, 0)
    if text is None:
        return content
    return text


def _rewrite_around(message: Message) -> bytes:
    """Return a message with a long text in canonical form: the text itself is parsed only if it holds escapes."""
    raw, text = message.raw, message.content
    name = _CONTENT_KEY.search(raw)
    if name is None or not raw.startswith(text, name.end()):
        return _rewrite(raw)
    start = name.end()
    outer = raw[:start] + b"0" + raw[start + len(text) :]
    before, separator, after = _rewrite(outer).partition(_CONTENT + b":0")
    if not separator:
        return _rewrite(raw)
    if has_ambiguous_escape(text):
        text = _rewrite(text)
    return b"".join((before, _CONTENT, b":", text, after))


def _rewrite(raw: bytes) -> bytes:
    try:
        value = _sort_keys(_remove_markers(json.loads(raw)))
        return _ENCODER.encode(value).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return raw


def _remove_markers(message: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the message without cache markers and the wrapping that they need."""
    if not isinstance(message, dict):
        return message
    unmarked = _drop_markers(message)
    for key in ("content", "tool_calls"):
        parts = unmarked.get(key)
        if isinstance(parts, list):
            unmarked[key] = [_drop_markers(part) for part in parts]
    match unmarked.get("content"):
        case [{"type": "text", "text": str(text), **other_keys}] if not other_keys:
            unmarked["content"] = text
    return unmarked


def _drop_markers(value: Any) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(value, dict):
        return value
    return {key: member for key, member in value.items() if key not in MARKERS}


def _sort_keys(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {key: _sort_keys(value[key]) for key in sorted(value, key=_rank_key)}
    if isinstance(value, list):
        return [_sort_keys(element) for element in value]
    return value


def _rank_key(key: str) -> tuple[int, str]:
    return _RANKS.get(key, len(_RANKS)), key


def _strip_markers(element: bytes) -> bytes:
    """Return an element without its markers. Most clients write one, last, which is cut off without a parser."""
    if element[:1] != b"{" or _MARKER_NAME_PART not in element:
        return element
    if element.count(_MARKER_NAME_PART) == 1:
        last_member = _LAST_MARKER.search(element)
        if last_member is not None:
            return element[: last_member.start()] + element[last_member.end() :]
    return splice.remove_members(element, MARKERS)


def _unwrap_text(raw: bytes) -> bytes:
    """Return the message with a single text part written as plain text: both are the same words."""
    content = splice.find_member(raw, "content")
    if content is None:
        return raw
    text = _find_only_text(raw, content.start)
    if text is None:
        return raw
    return splice.replace_bytes(raw, content.start, content.stop, text)


def _find_only_text(raw: bytes, start: int) -> bytes | None:
    """Return the text in the list at *start*, as JSON, if that list is one part of text and nothing else."""
    parts = list(islice(splice.iterate_elements(raw, start), 2))
    if len(parts) != 1:
        return None
    part_start = parts[0][0]
    if raw[part_start : part_start + 1] != b"{":
        return None
    members = {member.key: raw[member.start : member.stop] for member in splice.iterate_members(raw, part_start)}
    if members.keys() != {"type", "text"} or members["type"] != b'"text"':
        return None
    return members["text"]
