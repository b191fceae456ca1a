"""Identity of a conversation: a chain of keyed hashes that tells how much of a history was seen before.

The client sends its whole history every time and gives it no name. So a history is known by a chain: one keyed hash
per message, each over the one before it. Two requests share a link only if they share everything up to it. So after a
rewind, an edit or a fork, the longest known link finds the block; tenants and siblings are kept apart without a
lock.

- The first link holds the tenant, the `user` of the request and the `x-conversation-id`. Nothing of another tenant
  can ever match.
- The head is left out: system prompts carry dates. What a model wrote is bound to it beside the chain (`head.py`).
- Cache markers are left out: clients move them every turn, and wrap a text into parts to have somewhere to put them.
- The key is secret and shared by all workers: a forged collision would hand out the summary of another tenant.
- It begins with a version, which must change with the canonical form below.
"""

import re
from hashlib import blake2b

from proxy.core.model import splice
from proxy.core.model.messages import Message, Request

VERSION = b"c1"
SIZE = 20
MARKERS = frozenset({"cache_control", "prompt_cache_breakpoint"})
_MARK = re.compile("|".join(f'"{name}"' for name in sorted(MARKERS)).encode())


def chain(request: Request, tenant: str, key: bytes, conversation: str = "") -> tuple[bytes, ...]:
    """The links h(0) .. h(n) of a request with n messages after its head."""
    link = _origin(request, tenant, key, conversation)
    links = [link]
    marked = _MARK.search(request.source) is not None
    for message in request.body:
        link = follow(link, message, key, marked=marked)
        links.append(link)
    return tuple(links)


def beginning(request: Request, tenant: str, key: bytes, conversation: str = "") -> bytes:
    """The link h(1), which identifies a conversation from its first message on; h(0) where it has none."""
    link = _origin(request, tenant, key, conversation)
    return follow(link, request.body[0], key) if request.body else link


def _origin(request: Request, tenant: str, key: bytes, conversation: str) -> bytes:
    names = (tenant, request.user, conversation)
    told = VERSION + b"".join(len(name).to_bytes(8, "big") + name for name in map(_encode, names))
    return blake2b(told, digest_size=SIZE, key=key).digest()


def follow(link: bytes, message: Message, key: bytes, *, marked: bool = True) -> bytes:
    """The link after this one: of the message, over all that came before it."""
    step = blake2b(link, digest_size=SIZE, key=key)
    step.update(canonical(message, marked=marked))
    return step.digest()


def block_key(tenant: str, link: bytes) -> str:
    """The key under which a block is stored. The tenant comes first, so that a store can keep tenants apart as well."""
    return f"{tenant}/block/{link.hex()}"


def bound_key(tenant: str, link: bytes, head: str) -> str:
    """The key under which a block stands where a summary of another head stands under the link's own."""
    return f"{block_key(tenant, link)}.{head}"


def canonical(message: Message, *, marked: bool = True) -> bytes:
    """The bytes a message is known by: its own, without cache markers and the wrapping that they need."""
    raw = without_cache_marker(message.raw) if marked and _MARK.search(message.raw) else message.raw
    return _unwrap_text(raw) if message.content[:1] == b"[" else raw


def without_cache_marker(raw: bytes) -> bytes:
    """A message without the cache markers on it, on the parts of its content and on its calls."""
    raw = splice.without(raw, MARKERS)
    for key in ("content", "tool_calls"):
        place = splice.member(raw, key)
        if place is not None and raw[place.start : place.start + 1] == b"[":
            raw = splice.replace_elements(raw, place.start, _strip_markers)
    return raw


def _strip_markers(element: bytes) -> bytes:
    return splice.without(element, MARKERS) if element[:1] == b"{" else element


def _unwrap_text(raw: bytes) -> bytes:
    """The message with a single text part written as plain text: both are the same words."""
    content = splice.member(raw, "content")
    parts = [] if content is None else list(splice.elements(raw, content.start))
    if content is None or len(parts) != 1 or raw[parts[0][0] : parts[0][0] + 1] != b"{":
        return raw
    found = {each.key: raw[each.start : each.stop] for each in splice.members(raw, parts[0][0])}
    if found.keys() != {"type", "text"} or found["type"] != b'"text"':
        return raw
    return splice.replace_bytes(raw, content.start, content.stop, found["text"])


def _encode(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")
