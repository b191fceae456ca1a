"""What is remembered of a conversation between two requests, as values and as the bytes that a store keeps.

Keys begin with the tenant. Everything here may be lost: a missing or unreadable value means "unknown", never an error.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from proxy.core.calibration import Calibration
from proxy.core.rules import Anchor

FORMAT = 4
DAY_SECONDS = 24 * 3600.0
FAILED_SECONDS = 600.0
MOST_FAILURES = 2
"""After this many in a row that came to nothing, the model is not asked again."""
SUMMARY_FORMAT = 1

State = Literal["making", "ready", "failed"]


@dataclass(frozen=True, slots=True)
class Identity:
    """A history as the store knows it: its owner, the links of its chain, and who counts its tokens."""

    tenant: str
    links: Sequence[bytes]
    counter: str
    """Upstream and family of models: what one counts says nothing about another."""
    head: str = ""
    """The digest of its head: summaries are kept under it."""

    @property
    def conversation(self) -> str:
        return self.links[1].hex()[:16] if len(self.links) > 1 else ""

    def anchor_key(self, link: bytes) -> str:
        return f"{self.tenant}/anchor/{link.hex()}"

    @property
    def scale_key(self) -> str:
        return f"{self.tenant}/scale/{self.counter}"


@dataclass(frozen=True, slots=True)
class LastRequest:
    """The last time a history was forwarded: when, what the upstream counted (0: it did not say), and how it counts."""

    anchor: Anchor
    forwarded_at: float
    counter: str
    calibration: Calibration
    useless_blocks: int = 0
    """How many blocks in a row did not help."""
    requests_since_block: int = 0
    """How many requests ago a block was last made because of the window."""

    def to_bytes(self) -> bytes:
        anchor, scale = self.anchor, self.calibration
        links = anchor.link.hex(), anchor.tokens, anchor.basis.hex()
        return json.dumps(
            [
                FORMAT,
                *links,
                self.forwarded_at,
                self.counter,
                scale.ratio,
                scale.observations,
                self.useless_blocks,
                self.requests_since_block,
            ]
        ).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> "LastRequest | None":
        """None for one of another format: what cannot be read is not known."""
        version, *told = json.loads(value)
        if version != FORMAT:
            return None
        link, tokens, basis, at, counter, ratio, seen, vain, lasted = told
        anchor = Anchor(bytes.fromhex(link), tokens, bytes.fromhex(basis))
        return cls(anchor, at, counter, Calibration(ratio, seen), vain, lasted)


@dataclass(frozen=True, slots=True)
class SummaryCandidate:
    """A summary of `body[:covers]`, and how far it is."""

    state: State
    text: str = ""
    """The summary; while it is being made, by whom."""
    failures: int = 0
    """How many in a row came to nothing."""
    covers: int = 0
    """Not stored: the key that it was found under says it."""

    def to_bytes(self) -> bytes:
        return json.dumps([SUMMARY_FORMAT, self.state, self.text, self.failures]).encode()

    @classmethod
    def from_bytes(cls, value: bytes, covers: int = 0) -> "SummaryCandidate | None":
        """None for one of another format: what cannot be read is not known."""
        version, state, text, times = json.loads(value)
        return cls(state, text, times, covers) if version == SUMMARY_FORMAT else None

    @classmethod
    def claim(cls, owner: str) -> "SummaryCandidate":
        """A worker's claim to be making it. No two are alike: one that has run out must not undo the next worker's."""
        return cls("making", owner)


def summary_key(identity: Identity, covers: int) -> str:
    """A summary is found again under the head that its model had read, and under no other."""
    return f"{identity.tenant}/summary/{identity.links[covers].hex()}.{identity.head}"
