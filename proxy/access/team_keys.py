"""Team keys: `cp-<id>-<secret>`, shown once, kept as a hash.

The id is public and finds the key; of the whole text only a hash is kept. The secret has 192 random bits, so a plain
hash is enough: no dictionary holds it, and the hash is computed for every request.
"""

import hmac
import re
import secrets
from hashlib import blake2b
from typing import Annotated

import msgspec

DAY_SECONDS = 24 * 3600
YEAR_9999 = 253_402_300_799.0
"""The last second that a date can show."""
_KEY = re.compile(r"cp-([0-9a-f]{10})-[A-Za-z0-9_-]{32}")
_ID_BYTES = 5
_SECRET_BYTES = 24

Seconds = Annotated[float, msgspec.Meta(ge=0, le=YEAR_9999)]
"""A time, in seconds since 1970."""


class TeamKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key as it is kept: `digest` is its hash. A time of 0 means never."""

    id: str
    team: str
    digest: str
    created: Seconds
    expires: Seconds = 0.0
    revoked: Seconds = 0.0
    label: str = ""

    def why_invalid(self, now: float) -> str:
        """Return "revoked" or "expired"; empty if the key is valid."""
        if self.revoked:
            return "revoked"
        if self.expires and self.expires <= now:
            return "expired"
        return ""

    def matches(self, text: str) -> bool:
        """Compare the hash of *text* with the key's, in constant time."""
        return hmac.compare_digest(self.digest.encode(), compute_digest(text).encode())


def create_team_key(team: str, now: float, *, days: float = 0.0, label: str = "") -> tuple[str, TeamKey]:
    """Return the text of a new key, and the key as it is kept. With 0 days it never expires."""
    key_id = secrets.token_hex(_ID_BYTES)
    text = f"cp-{key_id}-{secrets.token_urlsafe(_SECRET_BYTES)}"
    expires = now + days * DAY_SECONDS if days else 0.0
    return text, TeamKey(key_id, team, compute_digest(text), now, expires, label=label)


def find_public_id(text: str) -> str | None:
    """Return the id in *text* if it has the form of a team key."""
    match = _KEY.fullmatch(text)
    return match[1] if match else None


def compute_digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32, person=b"cp-team-key").hexdigest()
