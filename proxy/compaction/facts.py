"""What `decide()` must know beside the history itself: whose it is, when it was last forwarded, what its tokens cost.

Keys of the store begin with the tenant. Every fact may be lost: then it is unknown, and that is all.
"""

from hashlib import blake2b

from proxy.upstream import Call
from proxy.wire.headers import find

ANONYMOUS = "anonymous"
_CREDENTIALS = ("authorization", "api-key", "x-api-key")


def tenant_of(call: Call, secret: bytes) -> str:
    """The team, or a keyed hash of the client's credential. The credential itself is kept nowhere."""
    if call.caller.tenant:
        return call.caller.tenant
    credential = next(filter(None, (find(call.headers, name) for name in _CREDENTIALS)), None)
    if credential is None:
        return ANONYMOUS
    return blake2b(credential.encode("utf-8", "surrogatepass"), key=secret, digest_size=12).hexdigest()
