"""AWS Signature Version 4, as S3 and all that speak like it want a request signed. Pure: the moment is handed in.

A request is boiled down to one text (the canonical request), and that text is signed with a key that is derived from
the secret for one day, one region and one service. The secret itself never travels.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote

ALGORITHM = "AWS4-HMAC-SHA256"
EMPTY = hashlib.sha256(b"").hexdigest()
"""What stands for the body of a request that has none."""

Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key and its secret; a token where they were lent for a while. None of it is ever shown."""

    key: str = field(repr=False)
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it will travel. `body` is the SHA-256 of what it carries."""

    method: str
    host: str
    path: str
    query: Query = ()
    body: str = EMPTY
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def target(self) -> str:
        query = encoded(self.query)
        return quote(self.path, safe="/-_.~") + (f"?{query}" if query else "")


def signed(asked: Asked, region: str, credentials: Credentials, now: datetime) -> dict[str, str]:
    """The headers to send it with."""
    moment = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": asked.host, "x-amz-content-sha256": asked.body, "x-amz-date": moment, **asked.headers}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    names = ";".join(sorted(headers))
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    said = "\n".join((ALGORITHM, moment, scope, _sha256(_canonical(asked, headers, names))))
    signature = hmac.new(_key(credentials.secret, scope), said.encode(), hashlib.sha256).hexdigest()
    proof = f"Credential={credentials.key}/{scope},SignedHeaders={names},Signature={signature}"
    return {**headers, "authorization": f"{ALGORITHM} {proof}"}


def encoded(query: Query) -> str:
    """A query as it is signed, which is also how it is sent."""
    return "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(query))


def _canonical(asked: Asked, headers: Mapping[str, str], names: str) -> str:
    lines = "".join(f"{name}:{headers[name].strip()}\n" for name in names.split(";"))
    path = quote(asked.path, safe="/-_.~")
    return "\n".join((asked.method, path, encoded(asked.query), lines, names, asked.body))


def _key(secret: str, scope: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
