r"""The chain of a history: one keyed hash per message, over its canonical form and the hash before it.

Two requests share a link only if they share everything up to it. So the longest known link finds the block, after a
rewind, an edit or a fork too, and tenants are kept apart.

    h(0) = hash(tenant, user, x-conversation-id)
    h(n) = hash(h(n - 1), canonical form of message n)

- The head is left out, as system prompts carry dates. Summaries are bound to it in `identity.py`.
- The key is secret and shared by all workers: a forged collision would hand out the summary of another tenant.

The canonical form does not depend on a client's way of writing JSON, nor on its cache markers:

    {"content": [{"text": "gr\u00fc\u00df", "type": "text", "cache_control": {}}], "role": "user"}
    {"role":"user","content":"grüß"}

The first becomes the second. A text that is not JSON stays.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any

from proxy.history import splice
from proxy.history.messages import HEAD, RESULTS, Message
from proxy.history.request import Request

LINK_BYTES = 20
_ROLES = frozenset({*HEAD, *RESULTS, "user", "assistant"})

CanonicalForm = Callable[[Message], bytes]
CanonicalKinds = Mapping[tuple[str, bool], bool]
"""Whether the client writes messages of a role, with or without calls, in canonical form."""

MARKERS = frozenset({"cache_control", "prompt_cache_breakpoint"})
"""The first is Anthropic's: https://platform.claude.com/docs/en/build-with-claude/prompt-caching."""
_MARKER_NAME_PART = b"cache_"
# The order of keys in which most clients write a message; other keys follow by name.
_ORDER = ("role", "tool_call_id", "content", "tool_calls", "id", "type", "function", "name", "arguments")
# An escape follows an odd number of backslashes. Control characters without a short form can be written in one way.
_ESCAPE = re.compile(rb"(?<!\\)(\\++)u(?!00(?:0[0-7be-f]|1[0-9a-f]))")
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def canonicalize(message: Message) -> bytes:
    """Write a message in the canonical form. A long text is parsed only if it holds escapes."""
    raw, long_bytes = message.raw, 1_024
    if len(raw) <= long_bytes or _MARKER_NAME_PART in raw or not message.is_text:
        return _rewrite(raw)
    text = message.content
    key, _, rest = raw.partition(text)
    if not key.rstrip(b" \t\r\n:").endswith(b'"content"'):  # the same text stands in another member before
        return _rewrite(raw)
    before, separator, after = _rewrite(key + b"0" + rest).partition(b'"content":0')
    if not separator:
        return _rewrite(raw)
    if has_ambiguous_escape(text):
        text = _rewrite(text)
    return b"".join((before, b'"content":', text, after))


def keep_as_written(message: Message) -> bytes:
    """Return a message without cache marks: the canonical form, but for escapes, if its client writes that."""
    raw = remove_cache_marker(message.raw)
    if not message.has_parts:
        return raw
    content = splice.find_member(raw, "content")
    if content is None:
        return raw
    return splice.replace_bytes(raw, content.start, content.stop, remove_wrapping(raw[content.start : content.stop]))


def has_ambiguous_escape(raw: bytes) -> bool:
    r"""Return whether a `\u` stands for a character that could be written in another way."""
    if b"\\u" not in raw:
        return False
    return any(len(escape[1]) % 2 for escape in _ESCAPE.finditer(raw))


def remove_cache_marker(raw: bytes) -> bytes:
    if _MARKER_NAME_PART not in raw:
        return raw
    raw = splice.remove_members(raw, MARKERS)
    for key in ("content", "tool_calls"):
        member = splice.find_member(raw, key)
        if member is not None and raw[member.start : member.start + 1] == b"[":
            raw = splice.replace_elements(raw, member.start, _strip_markers)
    return raw


def remove_wrapping(content: bytes) -> bytes:
    """Remove cache marks, and the list that a single text needs for them: clients move both with each turn."""
    if content[:1] != b"[":
        return content
    if _MARKER_NAME_PART in content:
        content = splice.replace_elements(content, 0, _strip_markers)
    if content.count(b'"text"') < 2:  # noqa: PLR2004 (the value of `type`, and a key)
        return content
    parts = list(islice(splice.iterate_elements(content), 2))
    if len(parts) != 1:
        return content
    start = parts[0][0]
    if content[start : start + 1] != b"{":
        return content
    members = {member.key: content[member.start : member.stop] for member in splice.iterate_members(content, start)}
    if members.keys() != {"type", "text"} or members["type"] != b'"text"':
        return content
    return members["text"]


def _rewrite(raw: bytes) -> bytes:
    """Write JSON in the canonical form. A text that cannot be read stays."""
    try:
        value = _sort_keys(_remove_markers(json.loads(raw)))
        return _ENCODER.encode(value).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return raw


def _remove_markers(message: Any) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(message, dict):
        return message
    unmarked_message = _drop_markers(message)
    for key in ("content", "tool_calls"):
        parts = unmarked_message.get(key)
        if isinstance(parts, list):
            unmarked_message[key] = list(map(_drop_markers, parts))
    match unmarked_message.get("content"):
        case [{"type": "text", "text": str(text), **other_keys}] if not other_keys:
            unmarked_message["content"] = text
    return unmarked_message


def _drop_markers(value: Any) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(value, dict):
        return value
    return {key: member for key, member in value.items() if key not in MARKERS}


def _sort_keys(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        ordered_keys = [*filter(value.__contains__, _ORDER), *sorted(value.keys() - _ORDER)]
        return {key: _sort_keys(value[key]) for key in ordered_keys}
    if isinstance(value, list):
        return list(map(_sort_keys, value))
    return value


def _strip_markers(element: bytes) -> bytes:
    if element[:1] != b"{" or _MARKER_NAME_PART not in element:
        return element
    return splice.remove_members(element, MARKERS)


def compute_chain(request: Request, tenant: str, secret: bytes, conversation: str = "") -> tuple[bytes, ...]:
    """Compute the links h(0) .. h(n) of a request with n messages after its head.

    Parsing costs more than hashing, and a client writes all its JSON in one way: the first message of each kind tells
    whether that is canonical. Escapes are looked for in every message.
    """
    origin, body = _compute_origin(request, tenant, secret, conversation), request.body

    def compare_first(values: Sequence[CanonicalKinds]) -> Iterator[CanonicalKinds]:
        is_canonical: CanonicalKinds = values[-1] if values else {}
        for message in body[len(values) :]:
            kind = message.role, bool(message.calls)
            if kind not in is_canonical and message.role in _ROLES:
                is_canonical = {**is_canonical, kind: canonicalize(message) == keep_as_written(message)}
            yield is_canonical

    def continue_chain(links: Sequence[bytes]) -> Iterator[bytes]:
        link = links[-1] if links else origin
        canonical_kinds = request.known.column("canonical kinds", compare_first)
        for message, is_canonical in zip(body[len(links) :], canonical_kinds[len(links) :], strict=True):
            form = canonicalize
            if is_canonical.get((message.role, bool(message.calls))) and not has_ambiguous_escape(message.raw):
                form = keep_as_written
            link = compute_link(link, message, secret, form=form)
            yield link

    return origin, *request.known.column("links", continue_chain, origin, secret)


def compute_beginning(request: Request, tenant: str, secret: bytes, conversation: str = "") -> bytes:
    """Compute h(1), which identifies a conversation; h(0) if it has no message."""
    origin = _compute_origin(request, tenant, secret, conversation)
    if not request.body:
        return origin
    return compute_link(origin, request.body[0], secret)


def compute_link(link: bytes, message: Message, secret: bytes, *, form: CanonicalForm = canonicalize) -> bytes:
    digest = blake2b(link, digest_size=LINK_BYTES, key=secret)
    digest.update(form(message))
    return digest.digest()


def _compute_origin(request: Request, tenant: str, secret: bytes, conversation: str) -> bytes:
    content = b"c1"  # a version, which must change with the canonical form
    for name in (tenant, request.user, conversation):
        name_bytes = name.encode("utf-8", "surrogatepass")
        content += len(name_bytes).to_bytes(8, "big") + name_bytes
    return blake2b(content, digest_size=LINK_BYTES, key=secret).digest()
