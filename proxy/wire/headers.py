"""Header hygiene after RFC 9110: what belongs to a connection stays on that connection.

Header lists are tuples of pairs, in the order and the spelling they came in: names repeat, and some
clients care.
"""

from collections.abc import Iterable
from itertools import chain

Headers = tuple[tuple[str, str], ...]

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# Ours to set anew: the host is another, the length is counted again, `Expect` was answered here, and
# whatever the client could unpack, the proxy must be able to read what the upstream says.
SET_ANEW = frozenset({"host", "content-length", "expect", "accept-encoding"})
# Words to this proxy alone.
OWN_HEADERS = frozenset({"x-compaction", "x-compaction-focus", "x-compaction-tag", "x-conversation-id"})
# With a key of our own none of these goes to the upstream: it would name another account than the key does.
CREDENTIALS = frozenset(
    {
        "authorization",
        "api-key",
        "x-api-key",
        "x-goog-api-key",
        "cookie",
        "ocp-apim-subscription-key",
        "cf-aig-authorization",
        "x-litellm-api-key",
        "x-portkey-api-key",
        "helicone-auth",
    }
)
# Accounts of the client's own: with a key of ours they would name somebody else's.
ACCOUNTS = frozenset({"openai-organization", "openai-project"})

_TO_UPSTREAM = HOP_BY_HOP | SET_ANEW | OWN_HEADERS
# An Alt-Svc would lead the client past the proxy.
_TO_CLIENT = HOP_BY_HOP | {"alt-svc"}
# Only this proxy says these; from an upstream they would stand before its own.
_OWN_PREFIX = "x-compaction"
_CROSS_ORIGIN = "access-control-"


def find(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    """The first value of a header, whatever its spelling."""
    for key, value in headers:
        if key.lower() == name:
            return value
    return None


def read_own(headers: Headers) -> dict[str, str]:
    """The words to this proxy, each as it was first said."""
    return {name: value for spelt, value in reversed(headers) if (name := spelt.lower()) in OWN_HEADERS}


def to_upstream(headers: Headers, *, without: frozenset[str] = frozenset()) -> Headers:
    """The headers of a request that are forwarded to the upstream."""
    names = [name.lower() for name, _ in headers]
    kept = _drop(headers, names, _TO_UPSTREAM | without if without else _TO_UPSTREAM)
    return kept if len(set(names)) == len(names) else _unify_spelling(kept)


def to_client(headers: Headers, *, cross_origin: bool = True) -> Headers:
    """The headers of an answer that are forwarded to the client. A value that is not UTF-8 would be altered: dropped.

    `cross_origin`: whether the upstream may allow pages of other sites to read it.
    """
    names = [name.lower() for name, _ in headers]
    refused = _OWN_PREFIX if cross_origin else (_OWN_PREFIX, _CROSS_ORIGIN)
    kept = _drop(headers, names, _TO_CLIENT | {name for name in names if name.startswith(refused)})
    return kept if are_text(kept) else tuple(filter(_is_text, kept))


def are_text(headers: Headers) -> bool:
    """True where all headers can be written again: bytes that are not UTF-8 were read as lone surrogates."""
    return "".join(chain.from_iterable(headers)).isascii() or all(map(_is_text, headers))


def _is_text(pair: tuple[str, str]) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in "".join(pair))


def _drop(headers: Headers, names: list[str], dropped: frozenset[str]) -> Headers:
    if "connection" in names:
        dropped |= _connection_options(headers, names)
    return tuple([pair for pair, name in zip(headers, names, strict=True) if name not in dropped])


def _unify_spelling(headers: Headers) -> Headers:
    """A name that repeats keeps its first spelling: the HTTP client takes another spelling for a correction."""
    first: dict[str, str] = {}
    for name, _ in headers:
        first.setdefault(name.lower(), name)
    return tuple((first[name.lower()], value) for name, value in headers)


def _connection_options(headers: Headers, names: list[str]) -> frozenset[str]:
    values = [value for (_, value), name in zip(headers, names, strict=True) if name == "connection"]
    return frozenset([token.strip().lower() for token in ",".join(values).split(",")])
