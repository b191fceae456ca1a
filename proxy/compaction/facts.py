"""What `decide()` must know beside the history itself: whose it is, when it was last forwarded, what its tokens cost.

Keys of the store begin with the tenant. Every fact may be lost: then it is unknown, and that is all.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from proxy.core.economics import Prices
from proxy.core.rules import Anchor
from proxy.tokenizer import Calibration
from proxy.upstream import Call
from proxy.windows import Window
from proxy.wire.headers import find

ANONYMOUS = "anonymous"
FORMAT = 4
_CREDENTIALS = ("authorization", "api-key", "x-api-key")
_PLAIN = Prices()


@dataclass(frozen=True, slots=True)
class Identity:
    """A history as the store knows it: its owner, the links of its chain, and who counts its tokens."""

    tenant: str
    links: Sequence[bytes]
    counter: str
    """Upstream and family of models: what one counts says nothing about another."""

    @property
    def conversation(self) -> str:
        return self.links[1].hex()[:16] if len(self.links) > 1 else ""

    def anchor_key(self, link: bytes) -> str:
        return f"{self.tenant}/anchor/{link.hex()}"

    @property
    def scale_key(self) -> str:
        return f"{self.tenant}/scale/{self.counter}"


def tenant_of(call: Call, secret: bytes) -> str:
    """The team, or a keyed hash of the client's credential. The credential itself is kept nowhere."""
    if call.caller.tenant:
        return call.caller.tenant
    credential = next(filter(None, (find(call.headers, name) for name in _CREDENTIALS)), None)
    if credential is None:
        return ANONYMOUS
    return blake2b(credential.encode("utf-8", "surrogatepass"), key=secret, digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class LastTime:
    """The last time a history was forwarded: when, what the upstream counted (0: it did not say), and how it counts."""

    anchor: Anchor
    at: float
    counter: str
    calibration: Calibration
    vain: int = 0
    """How many blocks in a row did not help."""
    lasted: int = 0
    """How many requests ago a block was last made because of the window."""

    def to_bytes(self) -> bytes:
        anchor, scale = self.anchor, self.calibration
        links = anchor.link.hex(), anchor.tokens, anchor.basis.hex()
        return json.dumps(
            [FORMAT, *links, self.at, self.counter, scale.ratio, scale.seen, self.vain, self.lasted]
        ).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> "LastTime | None":
        """None for one of another format: what cannot be read is not known."""
        version, *told = json.loads(value)
        if version != FORMAT:
            return None
        link, tokens, basis, at, counter, ratio, seen, vain, lasted = told
        anchor = Anchor(bytes.fromhex(link), tokens, bytes.fromhex(basis))
        return cls(anchor, at, counter, Calibration(ratio, seen), vain, lasted)


def prices_of(window: Window) -> Prices:
    """The model's own prices relative to its plain input price, and the sizes at which they jump."""
    cliffs = tuple(cliff.above for cliff in window.cliffs)
    told = window.prices
    if told is None or not told.input:
        return Prices(cliffs=cliffs)
    read = _PLAIN.read if told.cache_read is None else told.cache_read / told.input
    write = 1.0 if told.cache_write is None else told.cache_write / told.input
    return Prices(read=read, write=write, cliffs=cliffs)
