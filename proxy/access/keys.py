"""Team keys: `cp-<id>-<secret>`. The id is public and finds the key; of the whole only a hash is kept.

The secret has 192 random bits, so a plain hash is enough: there is nothing to guess from a dictionary, and it is
compared on every request.
"""

import hmac
import re
import secrets
from dataclasses import dataclass
from hashlib import blake2b

PREFIX = "cp-"
_SHAPE = re.compile(r"cp-([0-9a-f]{10})-[A-Za-z0-9_-]{32}")
_ID_BYTES = 5
_SECRET_BYTES = 24


@dataclass(frozen=True, slots=True)
class TeamKey:
    """A key as it is kept. Times are seconds since 1970; 0 is never."""

    id: str
    team: str
    digest: str
    created: float
    expires: float = 0.0
    revoked: float = 0.0
    label: str = ""

    def why_invalid(self, now: float) -> str:
        """Why the key is not valid any more; empty where it is."""
        if self.revoked:
            return "revoked"
        return "expired" if self.expires and self.expires <= now else ""

    def matches(self, text: str) -> bool:
        return hmac.compare_digest(self.digest, digest(text))


def create_key(team: str, now: float, *, expires: float = 0.0, label: str = "") -> tuple[str, TeamKey]:
    """A new key: its text, which is shown once, and what is kept of it."""
    public = secrets.token_hex(_ID_BYTES)
    text = f"{PREFIX}{public}-{secrets.token_urlsafe(_SECRET_BYTES)}"
    return text, TeamKey(public, team, digest(text), now, expires, label=label)


def public_id(text: str) -> str | None:
    """The id in a text that has the shape of a team key."""
    found = _SHAPE.fullmatch(text)
    return found[1] if found else None


def public_id_or_text(text: str) -> str:
    """The public id of a whole key; any other text is taken for an id. A whole key must not be printed again."""
    return public_id(text) or text


def digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32, person=b"cp-team-key").hexdigest()
