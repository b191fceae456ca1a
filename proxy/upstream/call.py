"""A call to an upstream: the request that is forwarded."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from proxy.config import Secret
from proxy.wire.caller import UNIDENTIFIED, Caller
from proxy.wire.headers import Headers
from proxy.wire.trace_context import Trace

Body = bytes | AsyncIterator[bytes] | None


@dataclass(frozen=True, slots=True)
class Call:
    """A request to forward. `path` is below /v1 and in its normal form."""

    method: str
    path: str
    query: str
    headers: Headers
    body: Body
    caller: Caller = UNIDENTIFIED
    credential: Secret | None = None
    """The upstream key of the caller's team, instead of the upstream's own."""
    request_id: str = ""
    """Of the request in the log, for events about what is done for it."""
    trace: Trace | None = None
    """None: a `traceparent` of the client is forwarded as it came."""
