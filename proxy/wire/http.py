"""HTTP as this proxy reads and writes it: headers, credentials, the caller, paths, the model of a body, encodings."""

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from itertools import chain
from typing import Any
from urllib.parse import parse_qsl, unquote

import brotli
import msgspec
import zstandard

from proxy.wire.lenient import read_object

# --- headers ----------------------------------------------------------------------------------------------------------
# Header hygiene after RFC 9110: what belongs to a connection stays on that connection.
#
# Header lists are tuples of pairs, in the order and the spelling they came in: names repeat, and some
# clients care.

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
# Set again by this proxy: the host is another, the length is counted again, `Expect` was answered here, and
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
# Accounts of the client's own: beside a key of the proxy they would name another account.
ACCOUNTS = frozenset({"openai-organization", "openai-project"})

# The message of aiohttp's error for a head with more headers than `max_headers`: the error has no class of its own.
TOO_MANY_HEADERS = "Too many headers received"

INVALID_STATUSES = (400, 422)

# Control characters, tabs aside, are forbidden, and aiohttp writes none: but it reads those of an upstream.
_UNWRITABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")

_KEEP_ALIVE = frozenset({"keep-alive"})
_TO_UPSTREAM = HOP_BY_HOP | SET_ANEW | OWN_HEADERS
# An Alt-Svc would lead the client past the proxy.
_TO_CLIENT = HOP_BY_HOP | {"alt-svc"}
# Only this proxy says these; from an upstream they would come before its own.
_OWN_PREFIX = "x-compaction"
_CROSS_ORIGIN = "access-control-"


def find(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    """The first value of a header, whatever its spelling."""
    for key, value in headers:
        if key.lower() == name:
            return value
    return None


def remove(headers: Headers, *names: str) -> Headers:
    """The headers without those of these names, whatever their spelling."""
    return tuple(pair for pair in headers if pair[0].lower() not in names)


def read_own(headers: Headers) -> dict[str, str]:
    """The words to this proxy, each as it was first said."""
    return {name: value for spelt, value in reversed(headers) if (name := spelt.lower()) in OWN_HEADERS}


def to_upstream(headers: Headers, *, without: frozenset[str] = frozenset()) -> Headers:
    """The headers of a request that are forwarded to the upstream."""
    names = [name.lower() for name, _ in headers]
    kept = _drop(headers, names, _TO_UPSTREAM | without if without else _TO_UPSTREAM)
    return kept if len(set(names)) == len(names) else _unify_spelling(kept)


def to_client(headers: Headers, *, cross_origin: bool = True) -> Headers:
    """The headers of an answer that are forwarded to the client. A value that cannot be written again is dropped.

    `cross_origin`: whether the upstream may allow pages of other sites to read it.
    """
    names = [name.lower() for name, _ in headers]
    prefixes = _OWN_PREFIX if cross_origin else (_OWN_PREFIX, _CROSS_ORIGIN)
    refused = [name for name in names if name.startswith(prefixes)]
    kept = _drop(headers, names, _TO_CLIENT.union(refused) if refused else _TO_CLIENT)
    if codings := _transfer_codings(headers, names):
        kept = (*kept, ("Content-Encoding", ", ".join(codings)))
    return kept if are_text(kept) else tuple(filter(_is_text, kept))


def are_text(headers: Headers) -> bool:
    """True where all headers can be written again: bytes that are not UTF-8 were read as lone surrogates."""
    text = "".join(chain.from_iterable(headers))
    return (text.isascii() and text.isprintable()) or all(map(_is_text, headers))


def _is_text(pair: tuple[str, str]) -> bool:
    return _UNWRITABLE.search("".join(pair)) is None


def _drop(headers: Headers, names: list[str], dropped: frozenset[str]) -> Headers:
    if "connection" in names and not (named := _connection_options(headers, names)) <= dropped:
        dropped |= named
    return tuple([pair for pair, name in zip(headers, names, strict=True) if name not in dropped])


def _transfer_codings(headers: Headers, names: list[str]) -> list[str]:
    """The codings below the chunks of a body, which stays as it came: its reader must learn of them."""
    values = [value for (_, value), name in zip(headers, names, strict=True) if name == "transfer-encoding"]
    if values in ([], ["chunked"]):
        return []
    codings = (coding.strip().lower() for coding in ",".join(values).split(","))
    return [coding for coding in codings if coding not in ("", "chunked", "identity")]


def _unify_spelling(headers: Headers) -> Headers:
    """A name that repeats keeps its first spelling: the HTTP client takes another spelling for a correction."""
    first: dict[str, str] = {}
    for name, _ in headers:
        first.setdefault(name.lower(), name)
    return tuple((first[name.lower()], value) for name, value in headers)


def _connection_options(headers: Headers, names: list[str]) -> frozenset[str]:
    values = [value for (_, value), name in zip(headers, names, strict=True) if name == "connection"]
    named = ",".join(values).lower()
    return _KEEP_ALIVE if named == "keep-alive" else frozenset([token.strip() for token in named.split(",")])


# --- credentials ------------------------------------------------------------------------------------------------------
# Credentials of a client: which headers and query parameters carry one, and which values a request shows.
#
# Clients that show different credentials are different tenants, whatever header they use for it: gateways, clouds and
# self-made servers each have their own. So beside the known names everything counts that is named like a credential.
# One header too many costs little (it is the same in every request of a client); one too few lets two clients meet.

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
# Set by balancers, bot checks and statistics, some with every answer: they name a connection, not a client. Where one
# of them counted, a client that stores cookies would be another one with each request.
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
    return len(name) <= _NAME_MAX_CHARACTERS and _is_named_like_one(name)


def find_credentials(headers: Headers, query: str = "") -> Headers:
    """The credentials that a request shows, as pairs of lower-case name and value, sorted; empty ones show nothing."""
    shown = {(name.lower(), _significant(name, value)) for name, value in headers if is_credential(name)}
    if query:
        shown |= {(f"?{name.lower()}", value) for name, value in _parameters(query) if _is_parameter(name)}
    return tuple(sorted(pair for pair in shown if pair[1]))


def _is_named_like_one(name: str) -> bool:
    name = name.replace("_", "-")
    return _NAMED_LIKE_ONE.fullmatch(name) is not None and _NO_CREDENTIAL.fullmatch(name) is None


def _is_parameter(name: str) -> bool:
    return name.lower() in _QUERY_ONLY or is_credential(name)


def _parameters(query: str) -> list[tuple[str, str]]:
    return parse_qsl(query, errors="surrogateescape")


def _significant(name: str, value: str) -> str:
    """The part of a header's value that tells clients apart: all of it; of cookies, those about the client."""
    if name.lower() != "cookie":
        return value
    cookies = (cookie.strip() for cookie in value.split(";"))
    return "; ".join(sorted(each for each in cookies if each and not _is_infrastructure(each.partition("=")[0])))


def _is_infrastructure(cookie: str) -> bool:
    return _INFRASTRUCTURE_COOKIE.fullmatch(cookie.strip()) is not None


# --- caller -----------------------------------------------------------------------------------------------------------
# The caller of a request, as `access.authentication` found it: a team, or a client known by its credentials.

NO_TEAM = ""


@dataclass(frozen=True, slots=True)
class Caller:
    team: str = NO_TEAM
    key_id: str = ""
    """The public part of its team key; empty where a trusted gateway spoke for it, and where there are no teams."""
    tag: str = ""
    """What it says this call is for."""
    halted: bool = False
    """An operator has switched compaction off for it: no new block is made, existing ones are applied."""
    identified_by: Headers = field(default=(), repr=False)
    """What the headers of `access.tenant_headers` say, by which the operator tells clients apart."""

    @property
    def tenant(self) -> str:
        """The tenant of a team. The dot keeps it apart from the hash of any credential."""
        return f"team.{self.team}" if self.team else ""


UNIDENTIFIED = Caller()

# --- paths ------------------------------------------------------------------------------------------------------------
# Request paths: normal forms, the part below `/v1`, and what may be called with a key that is not the client's.
#
# A path is normalised before anything is decided about it, and the normal form is what is forwarded: a list
# of allowed paths that looks at one spelling while the upstream reads another protects nothing.

CHAT = "/chat/completions"
RESPONSES = "/responses"
MESSAGES = "/messages"
COUNT_TOKENS = "/messages/count_tokens"
COMPACTED = frozenset({CHAT, RESPONSES, MESSAGES, COUNT_TOKENS})
# Ours: the shortened messages themselves.
COMPACT = "/chat/completions/compact"
# Known histories that pass through as they are; a client should learn that they were not compacted.
NOT_COMPACTED = frozenset({"/responses/compact"})

_WITH_HISTORY = COMPACTED | NOT_COMPACTED | {COMPACT}

# Streams of these say when they are finished, in every dialect.
WITH_FINISH_REASON = frozenset({CHAT, "/completions", RESPONSES, MESSAGES})

# What an injected key may be used for: to ask a model, and to see which models there are. Files, batches,
# fine-tuning, administration, what was stored of earlier answers: all that acts on the account of the owner of
# the key, and is refused unless the configuration lists it.
ASKED = (
    CHAT,
    COMPACT,
    "/completions",
    "/embeddings",
    RESPONSES,
    "/responses/compact",
    "/responses/input_tokens",
    MESSAGES,
    COUNT_TOKENS,
    "/audio/speech",
    "/audio/transcriptions",
    "/audio/translations",
    "/images/generations",
    "/images/edits",
    "/images/variations",
    "/moderations",
    "/rerank",
    "/score",
    "/tokenize",
    "/detokenize",
)
SEEN = ("/models", "/models/*")
_INFERENCE = {"POST": ASKED, "GET": SEEN, "HEAD": SEEN}

_ORIGIN = re.compile(r"\Ahttps?://[^/?#]*/?", re.IGNORECASE)
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# Printable, and no percent sign without its two digits: once an escape is undone, it could become part of another.
_SAFE = re.compile(r"(?:[\x21-\x24\x26-\x7e]|%[0-9A-Fa-f]{2})*")


def remove_origin(target: str) -> str:
    """The path and query of a request's target, without the scheme and host that some clients write before them."""
    return _ORIGIN.sub("/", target)


@lru_cache(maxsize=256)
def normalize(path: str) -> str | None:
    """The one spelling of a path: dots resolved, slashes single, needless escapes undone. None: no path at all."""
    if not path.startswith("/") or "\\" in path or not _SAFE.fullmatch(path):
        return None
    kept: list[str] = []
    segments = _ESCAPE.sub(_undo_needless, path).split("/")
    for segment in segments:
        if segment == "..":
            kept = kept[:-1]
        elif segment not in ("", "."):
            kept.append(segment)
    trailing = "/" if kept and segments[-1] in ("", ".", "..") else ""
    return "/" + "/".join(kept) + trailing


def below_v1(path: str) -> str | None:
    """`/chat/completions` for `/v1/chat/completions`; None for what is not an API path.

    A slash behind a path that holds a history is left out: some clients put it behind the URL they were given.
    """
    if not path.startswith("/v1/"):
        return None
    below = path[3:]
    return below[:-1] if below[:-1] in _WITH_HISTORY and below.endswith("/") else below


def has_v1_twice(below: str) -> bool:
    """True where `/v1/v1` was asked for a path that holds a history: the client's base URL has one `/v1` too many."""
    return below_v1(below) in _WITH_HISTORY


def is_inference(method: str, path: str, listed: tuple[str, ...]) -> bool:
    """True for paths that may be called with a key that the client does not own; never for one escaped twice."""
    spelled = unquote(path).rstrip("/")
    if ".." in spelled or "%" in spelled:
        return False
    return any(fnmatchcase(spelled, pattern) for pattern in (*_INFERENCE.get(method, ()), *listed))


def _undo_needless(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    return character if character in _UNRESERVED else escape[0].upper()


# --- routing ----------------------------------------------------------------------------------------------------------
# Model of a request: the one value in a body that decides which upstream it goes to.


class _Named(msgspec.Struct):
    model: str | None = None


_decoder = msgspec.json.Decoder(_Named)


def find_model(body: bytes) -> str | None:
    """The model a request names, if it names one that can be read."""
    try:
        return _decoder.decode(body).model
    except (msgspec.DecodeError, RecursionError):  # clients send lone surrogates, NaN and byte order marks
        model = (read_object(body) or {}).get("model")
        return model if isinstance(model, str) else None


# --- bodies -----------------------------------------------------------------------------------------------------------
# Compressed request bodies, opened under a limit.
#
# A client may compress what it sends; whether its upstream could have opened that must not depend on whether
# the proxy had something to shorten, so a chat request always leaves opened. A small body that grows without
# end (a bomb) is stopped while it grows, not after.

# 200 to 1 is far beyond text; 64 KiB may always come out, however small the body was.
MOST_GROWTH_RATIO = 200
ALWAYS_ALLOWED_BYTES = 64 * 1024
# Encoders that write in members (bgzip, pigz, one zstd frame per flush) write some KiB into each. An empty member is 2
# to 20 bytes long and still needs a decompressor of its own, so their number is bounded, not only their bytes.
MEMBERS_MAX = 10_000
_PIECE_MAX_BYTES = 64 * 1024
# Compressed bytes given to a decompressor at once. Each library copies what it did not use of them, so a whole body at
# once would be copied for every piece that comes out. Zstandard has no bound for its output: from so little input, even
# a bomb's next piece stays small.
_FEED_BYTES = 512


class TooLarge(ValueError):
    """A body that grew beyond its limit."""


class UndecodableBody(ValueError):
    """A body that is not what its Content-Encoding says."""


def decode(body: bytes, encoding: str, limit: int) -> bytes:
    """The body without its encodings, the last one applied first. KeyError: an encoding we do not know."""
    for name in reversed(_names(encoding)):
        if name and name != "identity":
            body = _join_within(
                _OPENERS[name](body), min(limit, max(len(body) * MOST_GROWTH_RATIO, ALWAYS_ALLOWED_BYTES))
            )
    return body


def is_known(encoding: str) -> bool:
    return all(name in _OPENERS or name in ("", "identity") for name in _names(encoding))


def find_encoding(headers: Iterable[tuple[str, str]]) -> str:
    """The encodings of a body, in the order they were applied; empty for none, which some servers call `identity`."""
    given = (name for header, value in headers if header.lower() == "content-encoding" for name in _names(value))
    return ",".join(name for name in given if name not in ("", "identity"))


def _names(encoding: str) -> list[str]:
    return [part.strip().lower() for part in encoding.split(",")]


def _join_within(pieces: Iterator[bytes], limit: int) -> bytes:
    kept: list[bytes] = []
    size = 0
    try:
        for piece in pieces:
            size += len(piece)
            if size > limit:
                raise TooLarge
            kept.append(piece)
    except (zlib.error, brotli.error, zstandard.ZstdError, EOFError) as fault:
        raise UndecodableBody(str(fault)) from fault
    return b"".join(kept)


def _read_members(body: bytes, open_member: Callable[[], Any], *piece_limit: int) -> Iterator[bytes]:
    """The pieces of all members of a body, each read with a decompressor of its own."""
    at = members = 0
    while at < len(body):
        if members >= MEMBERS_MAX:
            raise EOFError(f"it has more than {MEMBERS_MAX} members")
        members += 1
        opener = open_member()
        while not opener.eof:
            fed = body[at : at + _FEED_BYTES]
            piece = opener.decompress(fed, *piece_limit)
            if not (fed or piece):
                raise EOFError("it ends too early")
            at += len(fed) - len(opener.unconsumed_tail) - len(opener.unused_data)
            yield piece


def _zlib(body: bytes, window: int) -> Iterator[bytes]:
    return _read_members(body, partial(zlib.decompressobj, window), _PIECE_MAX_BYTES)


def _gzip(body: bytes) -> Iterator[bytes]:
    return _zlib(body, zlib.MAX_WBITS | 16)


def _deflate(body: bytes) -> Iterator[bytes]:
    """`deflate` means zlib; some clients send it without its header, which all servers accept."""
    # A zlib header names its method, which is always DEFLATED, and both bytes together are a multiple of 31.
    wrapped = len(body) > 1 and body[0] & 0x0F == zlib.DEFLATED and int.from_bytes(body[:2], "big") % 31 == 0
    return _zlib(body, zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)


def _zstd(body: bytes) -> Iterator[bytes]:
    return _read_members(body, zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj)


def _brotli(body: bytes) -> Iterator[bytes]:
    opener = brotli.Decompressor()
    at = 0
    while not opener.is_finished():
        fed = body[at : at + _FEED_BYTES] if opener.can_accept_more_data() else b""
        piece = opener.process(fed, output_buffer_limit=_PIECE_MAX_BYTES)
        if not (fed or piece) and opener.can_accept_more_data() and not opener.is_finished():
            raise EOFError("it ends too early")
        at += len(fed)
        yield piece


_OPENERS: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstd,
    "br": _brotli,
}


def is_event_stream(headers: Headers) -> bool:
    """Return True for the headers of an event stream that can be read along: it is not compressed."""
    kind = find(headers, "content-type") or ""
    return kind.startswith("text/event-stream") and not find_encoding(headers)
