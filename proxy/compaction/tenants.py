"""Tenants: the owner of a conversation, from its team or a keyed hash of its credentials.

Every key of the store begins with the tenant.
"""

from hashlib import blake2b

from proxy.upstream import Call
from proxy.wire.credentials import find_credentials
from proxy.wire.headers import Headers

ANONYMOUS = "anonymous"
TENANT_BYTES = 12
# Version 0.1 knew these three and hashed the value alone. Who shows one of them and nothing else keeps that tenant, or
# an upgrade would lose the blocks of every conversation.
_HASHED_ALONE = frozenset({"authorization", "api-key", "x-api-key"})


def tenant_of(call: Call, secret: bytes) -> str:
    """The team, or a keyed hash of all credentials that the request shows. They themselves are kept nowhere."""
    if call.caller.tenant:
        return call.caller.tenant
    shown = identity_of(call)
    if not shown:
        return ANONYMOUS
    if len(shown) == 1 and shown[0][0] in _HASHED_ALONE:
        return blake2b(_encode_text(shown[0][1]), key=secret, digest_size=TENANT_BYTES).hexdigest()
    hashed = blake2b(key=secret, digest_size=TENANT_BYTES, person=b"credentials")
    for text in (text for pair in shown for text in pair):
        encoded = _encode_text(text)
        hashed.update(len(encoded).to_bytes(8, "big") + encoded)
    return hashed.hexdigest()


def identity_of(call: Call) -> Headers:
    """All by which a client without a team key is told from others: its credentials, and what the operator names."""
    return (*find_credentials(call.headers, call.query), *call.caller.identified_by)


def _encode_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
