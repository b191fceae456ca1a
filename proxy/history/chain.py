"""The chain of a history: one keyed hash per message, each over the one before it.

Two requests share a link only if they share everything up to it. So after a rewind, an edit or a fork, the longest
known link finds the block; tenants and siblings are kept apart without a lock.

    h(0) = hash(tenant, user, x-conversation-id)
    h(n) = hash(h(n - 1), canonical form of message n)

- Nothing of another tenant can ever match: the first link holds the tenant.
- The head is left out, as system prompts carry dates. Summaries are bound to it by `head_digest.py`.
- The key is secret and shared by all workers: a forged collision would hand out the summary of another tenant.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b

from proxy.history.canonical import canonicalize, has_ambiguous_escape, keep_as_written
from proxy.history.messages import HEAD, RESULTS, Message
from proxy.history.request import Request

CHAIN_VERSION = b"c1"
"""It must change with the canonical form."""
LINK_BYTES = 20
_ROLES = frozenset({*HEAD, *RESULTS, "user", "assistant"})

CanonicalForm = Callable[[Message], bytes]
"""The bytes that a message is hashed as."""
MessageKind = tuple[str, bool]
"""The role of a message, and whether it holds calls."""


def compute_chain(request: Request, tenant: str, secret: bytes, conversation: str = "") -> tuple[bytes, ...]:
    """Return the links h(0) .. h(n) of a request with n messages after its head."""
    origin, body = _compute_origin(request, tenant, secret, conversation), request.body

    def continue_chain(links: Sequence[bytes]) -> Iterator[bytes]:
        link = origin
        if links:
            link = links[-1]
        forms = _choose_forms(request, len(links))
        for message, form in zip(body[len(links) :], forms, strict=True):
            link = compute_link(link, message, secret, form=form)
            yield link

    return origin, *request.columns.links(origin, secret, len(body), continue_chain)


def compute_beginning(request: Request, tenant: str, secret: bytes, conversation: str = "") -> bytes:
    """Return h(1), which identifies a conversation from its first message on; h(0) if it has none."""
    origin = _compute_origin(request, tenant, secret, conversation)
    if not request.body:
        return origin

    def compute_first(_: Sequence[bytes]) -> tuple[bytes]:
        return (compute_link(origin, request.body[0], secret),)

    return request.columns.links(origin, secret, 1, compute_first)[0]


def compute_link(link: bytes, message: Message, secret: bytes, *, form: CanonicalForm = canonicalize) -> bytes:
    """Return the link after this one."""
    digest = blake2b(link, digest_size=LINK_BYTES, key=secret)
    digest.update(form(message))
    return digest.digest()


def _choose_forms(request: Request, start: int) -> Iterator[CanonicalForm]:
    """Choose how each message from *start* on is brought into canonical form.

    Parsing every message would cost more than hashing it. One client writes all its JSON in one way, so the first
    message of each kind tells whether that way is canonical. It is part of every prefix that holds others of its kind.
    Escapes are looked for in every message.
    """
    body = request.body

    def compare_first(values: Sequence[Mapping[MessageKind, bool]]) -> Iterator[Mapping[MessageKind, bool]]:
        is_canonical: Mapping[MessageKind, bool] = {}
        if values:
            is_canonical = values[-1]
        for message in body[len(values) :]:
            kind = message.role, bool(message.calls)
            if kind not in is_canonical and message.role in _ROLES:
                is_canonical = {**is_canonical, kind: canonicalize(message) == keep_as_written(message)}
            yield is_canonical

    usual_forms = request.columns.usual_forms(len(body), compare_first)
    for message, is_canonical in zip(body[start:], usual_forms[start:], strict=True):
        if is_canonical.get((message.role, bool(message.calls))) and not has_ambiguous_escape(message.raw):
            yield keep_as_written
        else:
            yield canonicalize


def _compute_origin(request: Request, tenant: str, secret: bytes, conversation: str) -> bytes:
    content = CHAIN_VERSION
    for name in (tenant, request.user, conversation):
        encoded = name.encode("utf-8", "surrogatepass")
        content += len(encoded).to_bytes(8, "big") + encoded
    return blake2b(content, digest_size=LINK_BYTES, key=secret).digest()
