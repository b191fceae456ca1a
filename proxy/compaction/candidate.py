"""A summary on its way: being made, ready to be used, or asked for in vain.

It is kept in the store under the chain link of what it covers, so that every worker sees how far it is. It becomes part
of a promise only when a request that used it was accepted.
"""

import json
from dataclasses import dataclass
from secrets import token_hex
from typing import Literal

from proxy.compaction.facts import Identity

DAY_SECONDS = 24 * 3600.0
FAILED_SECONDS = 600.0
GIVEN_UP = 2
"""After this many in a row that came to nothing, the model is not asked again."""
FORMAT = 1

State = Literal["making", "ready", "failed"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A summary of `body[:covers]`, and how far it is."""

    state: State
    text: str = ""
    """The summary; while it is being made, by whom."""
    times: int = 0
    """How many in a row came to nothing."""
    covers: int = 0
    """Not stored: the key that it was found under says it."""

    def to_bytes(self) -> bytes:
        return json.dumps([FORMAT, self.state, self.text, self.times]).encode()

    @classmethod
    def from_bytes(cls, value: bytes, covers: int = 0) -> "Candidate | None":
        """None for one of another format: what cannot be read is not known."""
        version, state, text, times = json.loads(value)
        return cls(state, text, times, covers) if version == FORMAT else None

    @classmethod
    def making(cls) -> "Candidate":
        """A worker's claim to be making it. No two are alike: one that has run out must not undo the next worker's."""
        return cls("making", token_hex(8))


def summary_key(identity: Identity, covers: int) -> str:
    return f"{identity.tenant}/summary/{identity.links[covers].hex()}"
