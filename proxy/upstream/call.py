"""What a client asked for, on its way to an upstream."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from proxy.config import Secret
from proxy.wire.caller import ANYBODY, Caller
from proxy.wire.headers import Headers

Body = bytes | AsyncIterator[bytes] | None


@dataclass(frozen=True, slots=True)
class Call:
    """`path` is below /v1 and in its normal form."""

    method: str
    path: str
    query: str
    headers: Headers
    body: Body
    caller: Caller = ANYBODY
    credential: Secret | None = None
    """The upstream key of the caller's team, in place of the upstream's own."""
