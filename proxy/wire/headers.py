"""Headers that are forwarded: those that belong to a connection stay on that connection (RFC 9110, section 7.6.1).

Header lists are tuples of pairs, in the order and the spelling they came in: names repeat, and some clients care.
"""

import re
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
# Set by this proxy: the host is another, the length is counted again, `Expect` was answered here, and the proxy must be
# able to read the answer, whatever the client could unpack.
SET_BY_PROXY = frozenset({"host", "content-length", "expect", "accept-encoding"})
OWN_HEADERS = frozenset({"x-compaction", "x-compaction-focus", "x-compaction-tag", "x-conversation-id"})
# None of these is sent beside a key of the proxy: it would name another account than the key does.
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
# Nor are these: <https://platform.openai.com/docs/api-reference/authentication>.
ACCOUNTS = frozenset({"openai-organization", "openai-project"})

TOO_MANY_HEADERS = "Too many headers received"
"""The message of aiohttp's error for a head with more headers than `max_headers`; it has no class of its own."""
# Control characters, tabs aside, are forbidden (RFC 9110, section 5.5). aiohttp writes none, but reads them.
_UNWRITABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")

_KEEP_ALIVE = frozenset({"keep-alive"})
_NOT_FOR_UPSTREAM = HOP_BY_HOP | SET_BY_PROXY | OWN_HEADERS
# An Alt-Svc (RFC 7838) would lead the client past the proxy.
_NOT_FOR_CLIENT = HOP_BY_HOP | {"alt-svc"}
# Of this proxy's answers only; those of an upstream would come before them.
_OWN_PREFIX = "x-compaction"
_CROSS_ORIGIN = "access-control-"


def find_header(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    """The first value of a header, whatever its spelling."""
    for spelling, value in headers:
        if spelling.lower() == name:
            return value
    return None


def remove_headers(headers: Headers, *names: str) -> Headers:
    """The headers without those of these names, whatever their spelling."""
    return tuple(pair for pair in headers if pair[0].lower() not in names)


def read_own_headers(headers: Headers) -> dict[str, str]:
    """The headers for this proxy, by name; of one that repeats, the first value."""
    values: dict[str, str] = {}
    for spelling, value in headers:
        name = spelling.lower()
        if name in OWN_HEADERS:
            values.setdefault(name, value)
    return values


def select_for_upstream(headers: Headers, *, without: frozenset[str] = frozenset()) -> Headers:
    """The headers of a request that are forwarded to the upstream."""
    names = [name.lower() for name, _ in headers]
    removed_names = _NOT_FOR_UPSTREAM
    if without:
        removed_names |= without
    forwarded_headers = _drop(headers, names, removed_names)
    if len(set(names)) == len(names):
        return forwarded_headers
    return _unify_spelling(forwarded_headers)


def select_for_client(headers: Headers, *, cross_origin: bool = True) -> Headers:
    """The headers of an answer that are forwarded to the client. A value that cannot be written again is dropped.

    `cross_origin`: whether the upstream may allow pages of other sites to read the answer.
    """
    names = [name.lower() for name, _ in headers]
    prefixes: tuple[str, ...] = (_OWN_PREFIX,)
    if not cross_origin:
        prefixes = (_OWN_PREFIX, _CROSS_ORIGIN)
    removed_names = _NOT_FOR_CLIENT
    refused_names = [name for name in names if name.startswith(prefixes)]
    if refused_names:
        removed_names = removed_names.union(refused_names)
    forwarded_headers = _drop(headers, names, removed_names)
    codings = _find_transfer_codings(headers, names)
    if codings:
        forwarded_headers = (*forwarded_headers, ("Content-Encoding", ", ".join(codings)))
    if are_writable(forwarded_headers):
        return forwarded_headers
    return tuple(filter(_is_writable, forwarded_headers))


def are_writable(headers: Headers) -> bool:
    """True if all headers can be written again: bytes that are not UTF-8 were read as lone surrogates."""
    text = "".join(chain.from_iterable(headers))
    return (text.isascii() and text.isprintable()) or all(map(_is_writable, headers))


def _is_writable(pair: tuple[str, str]) -> bool:
    return _UNWRITABLE.search("".join(pair)) is None


def _drop(headers: Headers, names: list[str], removed_names: frozenset[str]) -> Headers:
    if "connection" in names:
        removed_names |= _list_connection_options(headers, names)
    return tuple([pair for pair, name in zip(headers, names, strict=True) if name not in removed_names])


def _list_connection_options(headers: Headers, names: list[str]) -> frozenset[str]:
    """The headers that belong to this connection by RFC 9110, section 7.6.1."""
    values = [value for (_, value), name in zip(headers, names, strict=True) if name == "connection"]
    options = ",".join(values).lower()
    if options == "keep-alive":
        return _KEEP_ALIVE
    return frozenset([option.strip() for option in options.split(",")])


def _find_transfer_codings(headers: Headers, names: list[str]) -> list[str]:
    """The codings of a body beside its chunks (RFC 9112, section 7): it stays as it came, so its reader must know."""
    values = [value for (_, value), name in zip(headers, names, strict=True) if name == "transfer-encoding"]
    if values in ([], ["chunked"]):
        return []
    return [coding for coding in list_codings(",".join(values)) if coding not in ("", "chunked", "identity")]


def _unify_spelling(headers: Headers) -> Headers:
    """A name that repeats keeps its first spelling: aiohttp's client takes another spelling for a correction."""
    first_spelling: dict[str, str] = {}
    for name, _ in headers:
        first_spelling.setdefault(name.lower(), name)
    return tuple((first_spelling[name.lower()], value) for name, value in headers)


def find_encoding(headers: Iterable[tuple[str, str]]) -> str:
    """The encodings of a body, in the order they were applied; empty for none, which some servers call `identity`."""
    encodings: list[str] = []
    for header, value in headers:
        if header.lower() == "content-encoding":
            encodings += list_codings(value)
    return ",".join(name for name in encodings if name not in ("", "identity"))


def list_codings(value: str) -> list[str]:
    """The codings in a list of them, such as `gzip, chunked`."""
    return [coding.strip().lower() for coding in value.split(",")]


def is_event_stream(headers: Headers) -> bool:
    """True for the headers of an event stream that can be read along: it is not compressed."""
    kind = find_header(headers, "content-type") or ""
    return kind.startswith("text/event-stream") and not find_encoding(headers)
