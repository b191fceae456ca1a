"""Who calls: the credentials that a request shows, and the caller as `access.authentication` found it.

Clients that show different credentials are different tenants, whatever header they use: gateways, clouds and self-made
servers each have their own. So everything counts that is named like a credential, not only the known names. One header
too many costs little (it is the same in every request of a client); one too few lets two clients meet.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import parse_qsl

from proxy.wire.headers import CREDENTIALS, Headers

# The names that upstreams and gateways in use today read, beside those of `CREDENTIALS`, are all matched by this.
_NAMED_LIKE_ONE = re.compile(
    r"(?:^|.*[-_.])(?:api-?key|authorization|auth|bearer|token|secret|password|credentials?|jwt|jwt-assertion"
    r"|(?:access|client|subscription|virtual|functions|rapidapi|private|service|user|team|project)-key)",
    re.IGNORECASE,
)
# These protect a form against another site, and change with every page or request.
_NO_CREDENTIAL = re.compile(r"(?:^|.*[-_])(?:csrf|xsrf|continuation|next|page|sync)-?token", re.IGNORECASE)
_QUERY_ONLY = frozenset({"key", "sig", "signature", "code", "subscription-key"})
_NAME_MAX_CHARACTERS = 64
# Set by balancers, bot checks and statistics, some with every answer: they name a connection, not a client. If one of
# them counted, a client that stores cookies would be another tenant with each request.
_INFRASTRUCTURE_COOKIE = re.compile(
    r"__cf_bm|_cfuvid|cf_clearance|__cflb|awsalb\w*|awselb\w*|arraffinity\w*|applicationgatewayaffinity\w*"
    r"|bigipserver.*|serverid|route|incap_ses_\w+|visid_incap_\w+|nlbi_\w+|ts[0-9a-f]{6,}|ak_bmsc|bm_\w+|_abck"
    r"|datadome|_ga\w*|_gid|_gat\w*|(?:csrf|xsrf)[-_]?token",
    re.IGNORECASE,
)


@lru_cache(maxsize=512)
def is_credential(name: str) -> bool:
    """True for the name of a header that carries a credential."""
    name = name.lower()
    if name in CREDENTIALS:
        return True
    if len(name) > _NAME_MAX_CHARACTERS:
        return False
    name = name.replace("_", "-")
    return _NAMED_LIKE_ONE.fullmatch(name) is not None and _NO_CREDENTIAL.fullmatch(name) is None


def find_credentials(headers: Headers, query: str = "") -> Headers:
    """The credentials that a request shows, as pairs of lower-case name and value, sorted; empty ones show nothing."""
    credentials = {(name.lower(), _find_significant(name, value)) for name, value in headers if is_credential(name)}
    if query:
        for name, value in parse_qsl(query, errors="surrogateescape"):
            if name.lower() in _QUERY_ONLY or is_credential(name):
                credentials.add((f"?{name.lower()}", value))
    return tuple(sorted(pair for pair in credentials if pair[1]))


def _find_significant(name: str, value: str) -> str:
    """The part of a header's value that tells clients apart: all of it; of cookies, those about the client."""
    if name.lower() != "cookie":
        return value
    cookies: list[str] = []
    for cookie in value.split(";"):
        name = cookie.partition("=")[0].strip()
        if cookie.strip() and _INFRASTRUCTURE_COOKIE.fullmatch(name) is None:
            cookies.append(cookie.strip())
    return "; ".join(sorted(cookies))


@dataclass(frozen=True, slots=True)
class Caller:
    team: str = ""
    key_id: str = ""
    """The public part of its team key; empty if a trusted gateway spoke for it, or there are no teams."""
    tag: str = ""
    """The header `x-compaction-tag`."""
    halted: bool = False
    """An operator has switched compaction off for it: no new block is made, existing ones are applied."""
    identified_by: Headers = field(default=(), repr=False)
    """What the headers of `access.tenant_headers` say, by which the operator tells clients apart."""

    @property
    def tenant(self) -> str:
        """The tenant of a team. The dot keeps it apart from the hash of any credential."""
        return f"team.{self.team}" if self.team else ""


UNIDENTIFIED = Caller()
