"""What `decide()` must know beside the history itself, from where it stands: the store, the model table, the clock.

Everything here is keyed by tenant first, may be lost, and says so when it is unknown.
"""

import json
from dataclasses import dataclass
from hashlib import blake2b

from proxy.core.economics import Prices
from proxy.core.rules import Anchor
from proxy.windows import Window
from proxy.wire.headers import Headers, find

ANCHOR_SECONDS = 7 * 24 * 3600.0
ANONYMOUS = "anonymous"
_CREDENTIALS = ("authorization", "api-key", "x-api-key")
_PLAIN = Prices()


def tenant_of(headers: Headers, secret: bytes) -> str:
    """Whose conversation it is: a keyed hash of the client's credential, which itself is kept nowhere."""
    credential = next(filter(None, (find(headers, name) for name in _CREDENTIALS)), None)
    if credential is None:
        return ANONYMOUS
    return blake2b(credential.encode("utf-8", "surrogatepass"), key=secret, digest_size=12).hexdigest()


def anchor_key(tenant: str, link: bytes) -> str:
    return f"{tenant}/anchor/{link.hex()}"


@dataclass(frozen=True, slots=True)
class LastTime:
    """When a history was last forwarded, and what the upstream counted then (0: it did not say)."""

    anchor: Anchor
    at: float

    def to_bytes(self) -> bytes:
        anchor = self.anchor
        return json.dumps([1, anchor.link.hex(), anchor.tokens, anchor.block.hex(), self.at]).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> "LastTime":
        _, link, tokens, block, at = json.loads(value)
        return cls(Anchor(bytes.fromhex(link), tokens, bytes.fromhex(block)), at)


def prices_of(window: Window) -> Prices:
    """The model's own prices relative to its plain input price, and the sizes at which they jump."""
    cliffs = tuple(cliff.above for cliff in window.cliffs)
    told = window.prices
    if told is None or not told.input:
        return Prices(cliffs=cliffs)
    read = _PLAIN.read if told.cache_read is None else told.cache_read / told.input
    write = 1.0 if told.cache_write is None else told.cache_write / told.input
    return Prices(read=read, write=write, cliffs=cliffs)
