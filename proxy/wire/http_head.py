"""The head of a request or an answer: headers, path, credentials, trace context.

Headers keep their order, and the spelling of their first occurrence; those of one connection are dropped:
<https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1>. Paths are forwarded in the normal form by which they are allowed
or refused.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain
from typing import Literal
from urllib.parse import parse_qsl, unquote

from msgspec import Struct
from msgspec.structs import replace

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
# The host is another, the length is counted again, `Expect` was answered, and the proxy must read the answer.
_NOT_FOR_UPSTREAM = HOP_BY_HOP | {
    *("x-compaction", "x-compaction-focus", "x-compaction-tag", "x-conversation-id"),
    *("host", "content-length", "expect", "accept-encoding"),
}
# An Alt-Svc (RFC 7838) would lead the client past the proxy.
_NOT_FOR_CLIENT = HOP_BY_HOP | {"alt-svc"}
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
TOO_MANY_HEADERS = "Too many headers received"
"""aiohttp's error for them has no class."""


def find_header(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    """Return the first value of a header, given by its name in lower case, or None."""
    for spelling, value in headers:
        if spelling.lower() == name:
            return value
    return None


def read_headers(headers: Headers) -> dict[str, str]:
    """Return the first value of each header by its name in lower case, for a reader of several headers."""
    return {spelling.lower(): value for spelling, value in reversed(headers)}


def remove_headers(headers: Headers, *names: str) -> Headers:
    return tuple([pair for pair in headers if pair[0].lower() not in names])


def select_for_upstream(headers: Headers, *, without: frozenset[str] = frozenset()) -> Headers:
    """Return the headers that are forwarded, less those whose names are in `without`."""
    removed_names = _NOT_FOR_UPSTREAM | without if without else _NOT_FOR_UPSTREAM
    # If a name repeats in another spelling, aiohttp would replace the first value by the second.
    spellings: dict[str, str] = {}
    forwarded_headers: list[tuple[str, str]] = []
    for spelling, value in _select(headers, removed_names):
        forwarded_headers.append((spellings.setdefault(spelling.lower(), spelling), value))
    return tuple(forwarded_headers)


def select_for_client(headers: Headers, *, cross_origin: bool = True) -> Headers:
    """Return the headers of an answer that the client gets, less those that cannot be written.

    `cross_origin`: pages of other sites may read the answer.
    """
    # Only the proxy itself may set these.
    prefixes = ("x-compaction",) if cross_origin else ("x-compaction", "access-control-")
    forwarded_headers = _select(headers, _NOT_FOR_CLIENT, prefixes)
    # The body is forwarded as it came, so its reader must learn the transfer codings other than `chunked`.
    codings = find_encoding(headers, "transfer-encoding")
    if codings:
        forwarded_headers.append(("Content-Encoding", codings.replace(",", ", ")))
    if not are_writable(forwarded_headers):
        forwarded_headers = [pair for pair in forwarded_headers if _is_writable(pair)]
    return tuple(forwarded_headers)


def _select(
    headers: Headers, removed_names: frozenset[str], removed_prefixes: tuple[str, ...] = ()
) -> list[tuple[str, str]]:
    """Return the headers without these, and without those that `Connection` names."""
    for spelling, value in headers:
        if spelling.lower() == "connection":
            removed_names = removed_names.union(map(str.strip, value.lower().split(",")))
    selected_headers: list[tuple[str, str]] = []
    for pair in headers:
        name = pair[0].lower()
        if name not in removed_names and not name.startswith(removed_prefixes):
            selected_headers.append(pair)
    return selected_headers


def are_writable(headers: Iterable[tuple[str, str]]) -> bool:
    """Return False if aiohttp would refuse to write one; bytes that are not UTF-8 were read as lone surrogates."""
    text = "".join(chain.from_iterable(headers))
    return (text.isascii() and text.isprintable()) or all(map(_is_writable, headers))


def _is_writable(pair: tuple[str, str]) -> bool:
    # Control characters but tabs are forbidden (RFC 9110, section 5.5). aiohttp reads them, and refuses to write them.
    return re.search(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]", "".join(pair)) is None


def find_encoding(headers: Iterable[tuple[str, str]], name: str = "content-encoding") -> str:
    """Return the codings in the order in which they were applied; `identity` is none."""
    codings: list[str] = []
    for spelling, value in headers:
        if spelling.lower() == name:
            new_codings = map(str.strip, value.lower().split(","))
            codings += [coding for coding in new_codings if coding not in ("", "chunked", "identity")]
    return ",".join(codings)


def is_event_stream(headers: Headers) -> bool:
    kind = find_header(headers, "content-type") or ""
    return kind.startswith("text/event-stream") and not find_encoding(headers)


class ApiPath(StrEnum):
    """The paths of requests with a history."""

    CHAT = "/chat/completions"
    RESPONSES = "/responses"
    MESSAGES = "/messages"
    COUNT_TOKENS = "/messages/count_tokens"
    COMPACT = "/chat/completions/compact"
    """Answered by the proxy, with the shortened messages."""
    RESPONSES_COMPACT = "/responses/compact"
    """Answered by the provider, with a sealed item that stands for the history."""
    INPUT_TOKENS = "/responses/input_tokens"


PATHS_WITH_HISTORY = frozenset(ApiPath)

# An injected key may be used to ask a model, and to list models. Files, batches, fine-tuning, administration and stored
# answers act on the account of the key's owner, and are refused unless the configuration lists them.
INFERENCE_PATHS = (
    *ApiPath,
    "/completions",
    "/embeddings",
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


def _undo_needless(escape: re.Match[str]) -> str:
    """Return a letter, a digit or `-._~` unescaped: <https://www.rfc-editor.org/rfc/rfc3986#section-2.3>."""
    character = chr(int(escape[1], 16))
    is_needless = character.isascii() and (character.isalnum() or character in "-._~")
    return character if is_needless else escape[0].upper()


@lru_cache(maxsize=256)
def normalize_path(path: str) -> str | None:
    """Resolve dots, repeated slashes and needless escapes. Return None if it is no path, or one that servers read
    differently.
    """
    # A percent sign without its two digits could become part of another escape.
    if not path.startswith("/") or re.search(r"[^\x21-\x7e]|\\|%(?![0-9A-Fa-f]{2})", path):
        return None
    result_segments: list[str] = []
    segments = re.sub(r"%([0-9A-Fa-f]{2})", _undo_needless, path).split("/")
    for segment in segments:
        if segment == "..":
            result_segments = result_segments[:-1]
        elif segment not in ("", "."):
            result_segments.append(segment)
    trailing = "/" if result_segments and segments[-1] in ("", ".", "..") else ""
    return "/" + "/".join(result_segments) + trailing


def below_v1(path: str) -> str | None:
    """Return the path below `/v1`, or None. Some clients put a slash after the URL that they were given."""
    if not path.startswith("/v1/"):
        return None
    below = path[3:]
    if below.endswith("/") and below[:-1] in PATHS_WITH_HISTORY:
        return below[:-1]
    return below


def is_inference(method: str, path: str, allowed_paths: tuple[str, ...]) -> bool:
    """Return True if a path may be called with a key that the client does not own; never if it is escaped twice."""
    unescaped_path = unquote(path).rstrip("/")
    if ".." in unescaped_path or "%" in unescaped_path:
        return False
    if method == "POST":
        allowed_paths += INFERENCE_PATHS
    elif method in ("GET", "HEAD"):
        allowed_paths += ("/models", "/models/*")
    return any(fnmatchcase(unescaped_path, pattern) for pattern in allowed_paths)


@lru_cache(maxsize=512)
def is_credential(name: str) -> bool:
    name = name.lower()
    if name in CREDENTIALS:
        return True
    if len(name) > 64:  # noqa: PLR2004 (no name in use is longer)
        return False
    name = "-" + name.replace("_", "-")
    # These protect a form, or change with every page or request.
    if re.search(r"-(?:csrf|xsrf|continuation|next|page|sync)-token\Z", name):
        return False
    # The other names that upstreams and gateways read end in one of these words.
    words = r"api-?key|auth|authorization|bearer|token|secret|password|credentials?|jwt|jwt-assertion"
    owners = r"access|client|subscription|virtual|functions|rapidapi|private|service|user|team|project"
    return re.search(rf"[-.](?:{words}|(?:{owners})-key)\Z", name) is not None


def find_credentials(headers: Headers, query: str = "") -> Headers:
    """Return the credentials of a request as sorted pairs of lower-case name and value, without empty ones."""
    credentials: set[tuple[str, str]] = set()
    for name, value in headers:
        if is_credential(name):
            lasting_value = _remove_passing_cookies(value) if name.lower() == "cookie" else value
            if lasting_value:
                credentials.add((name.lower(), lasting_value))
    if query:
        for name, value in parse_qsl(query, errors="surrogateescape"):  # without empty ones
            if name.lower() in {"key", "sig", "signature", "code", "subscription-key"} or is_credential(name):
                credentials.add((f"?{name.lower()}", value))
    return tuple(sorted(credentials))


def _remove_passing_cookies(value: str) -> str:
    # Balancers, bot checks and statistics set these, some with every answer. Without them, a client stays one tenant.
    passing_names = (
        r"(?i)__cf_bm|_cfuvid|cf_clearance|__cflb|awsalb\w*|awselb\w*|arraffinity\w*|applicationgatewayaffinity\w*"
        r"|bigipserver.*|serverid|route|incap_ses_\w+|visid_incap_\w+|nlbi_\w+|ts[0-9a-f]{6,}|ak_bmsc|bm_\w+|_abck"
        r"|datadome|_ga\w*|_gid|_gat\w*|(?:csrf|xsrf)[-_]?token"
    )
    cookies: list[str] = []
    for cookie in map(str.strip, value.split(";")):
        name = cookie.partition("=")[0].strip()
        if cookie and re.fullmatch(passing_names, name) is None:
            cookies.append(cookie)
    return "; ".join(sorted(cookies))


SwitchState = Literal["on", "still-fit", "off", "bypass"]
"""The compaction that operators allow. `on`: all. `still-fit`: new blocks only for requests that would be refused
without one. `off`: no new blocks. `bypass`: none at all if the client's own bytes fit."""


class Caller(Struct, frozen=True):
    """Who calls, by a key of the proxy or by the words of a trusted gateway."""

    team: str = ""
    key_id: str = ""
    """Empty if a trusted gateway spoke for the caller, or there are no teams."""
    tag: str = ""
    switch: SwitchState = "on"
    """The operators' switch for this caller."""
    identified_by: Headers = ()

    def __repr__(self) -> str:
        return f"Caller({self.team!r}, {self.key_id!r}, {self.tag!r})"  # without credentials

    @property
    def tenant(self) -> str:
        """Return the name under which a team's histories are kept. Hashes of credentials have no dot."""
        return f"team.{self.team}" if self.team else ""


class Trace(Struct, frozen=True):
    """The place of a request in a distributed trace."""

    trace_id: str
    parent_id: str
    span_id: str
    call_id: str
    is_sampled: bool

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.call_id}-{int(self.is_sampled):02x}"

    def child(self, span_id: str) -> "Trace":
        """Return the trace of a further call on behalf of this request."""
        return replace(self, parent_id=self.span_id, span_id=span_id, call_id=span_id)


def continue_trace(traceparent: str | None, entropy: str, percent: float) -> Trace:
    """Continue the client's trace, or begin one, of which `percent` are recorded. `entropy`: 64 hex digits."""
    span_id, call_id = entropy[:16], entropy[16:32]
    # <https://www.w3.org/TR/trace-context/#traceparent-header-field-values>
    form = r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
    match = re.fullmatch(form, traceparent or "")
    if match is not None:
        return Trace(match[1], match[2], span_id, call_id, is_sampled=bool(int(match[3], 16) & 1))
    trace_id = entropy[32:64]
    share = int(trace_id[-14:], 16) / 16**14  # the characters before may be a time stamp
    return Trace(trace_id, "", span_id, call_id, is_sampled=share * 100 < percent)
