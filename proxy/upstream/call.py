"""A call to an upstream: what the client asked for, and the URL, headers and key that it is sent with.

Nothing here does I/O: a call and the settings of an upstream in, a URL and headers out.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from multidict import CIMultiDict
from yarl import URL

from proxy.config import Secret, Upstream
from proxy.errors import BadRequest
from proxy.wire import trace_context
from proxy.wire.caller import UNIDENTIFIED, Caller
from proxy.wire.headers import ACCOUNTS, CREDENTIALS, Headers, find_header, select_for_upstream
from proxy.wire.trace_context import Trace

Body = bytes | AsyncIterator[bytes] | None


@dataclass(frozen=True, slots=True)
class Call:
    """A request to forward. `path` is below /v1 and in its normal form."""

    method: str
    path: str
    query: str
    headers: Headers
    body: Body
    caller: Caller = UNIDENTIFIED
    credential: Secret | None = None
    """The upstream key of the caller's team, instead of the upstream's own."""
    request_id: str = ""
    """Of the request in the log, for events about what is done for it."""
    trace: Trace | None = None
    """None: a `traceparent` of the client is forwarded as it came."""


_ACCOUNT_HEADERS = CREDENTIALS | ACCOUNTS


@dataclass(frozen=True, slots=True)
class Address:
    """URL, headers and proxy of an upstream: what its settings add to each call, worked out once."""

    settings: Upstream
    query: str
    added: CIMultiDict[str]
    proxy: str | None

    @classmethod
    def of(cls, settings: Upstream) -> "Address":
        return cls(settings, urlencode(settings.query), _list_added_headers(settings), _find_proxy(settings.base_url))

    def url(self, call: Call, model: str | None) -> URL:
        base = self.settings.base_url
        if not call.query:
            return _build_plain_url(base, call.path, self.query, model)
        query = call.query
        if self.query:
            query = f"{query}&{self.query}"
        return _build_url(base, call.path, query, model)

    def at_server_root(self, call: Call) -> URL:
        """The URL of a page at the server's root, outside the API's base path."""
        return URL(self.settings.base_url).origin().with_path(call.path)

    def headers(self, call: Call) -> CIMultiDict[str]:
        """The headers to send: the client's, without those to drop, and with those of the settings."""
        headers = CIMultiDict(select_for_upstream(call.headers, without=_list_dropped_headers(self.settings, call)))
        headers.update(self.added)
        if call.credential is not None:
            headers.update(_make_key_header(self.settings, call.credential))
        if call.trace is not None:
            headers[trace_context.HEADER] = call.trace.traceparent
        # A body that is streamed keeps its framing: the client's length if there is one, else chunks.
        if not isinstance(call.body, bytes):
            length = find_header(call.headers, "content-length")
            if length:
                headers["Content-Length"] = length
        return headers


def _build_url(base: str, path: str, query: str, model: str | None) -> URL:
    if "{model}" in base:
        base = base.replace("{model}", _quote_model(model))
    url = base + path
    if query:
        url = f"{url}?{query}"
    return URL(url, encoded=True)


def _quote_model(model: str | None) -> str:
    """A model's name as one segment of a path. Dots and slashes in it could lead the configured key elsewhere."""
    if not model or "/" in model or "\\" in model or not model.strip("."):
        raise BadRequest(
            "missing or unsuitable `model`: this upstream's URL contains the model's name, so the request must name a "
            "model without slashes"
        )
    return quote(model, safe="", errors="replace")


# Cached because parsing a URL costs as much as the rest of the header work, and paths without a query are few.
_build_plain_url = lru_cache(maxsize=256)(_build_url)


def _list_added_headers(settings: Upstream) -> CIMultiDict[str]:
    added = CIMultiDict({"Accept-Encoding": "identity"})
    for name, value in settings.headers.items():
        if isinstance(value, Secret):
            added[name] = value.value
        else:
            added[name] = value
    if settings.key:
        added.update(_make_key_header(settings, settings.key))
    return added


def _make_key_header(settings: Upstream, key: Secret) -> dict[str, str]:
    if settings.key_header == "authorization":
        return {"authorization": f"Bearer {key.value}"}
    return {settings.key_header: key.value}


def _list_dropped_headers(settings: Upstream, call: Call) -> frozenset[str]:
    """Headers of the client that are not sent: with a configured key, those that name the client's own account."""
    if settings.key is None and call.credential is None:
        return frozenset()
    return _ACCOUNT_HEADERS


def _find_proxy(url: str) -> str | None:
    """The HTTP proxy for a URL, from HTTPS_PROXY and the like. aiohttp's `trust_env` would also read `.netrc`."""
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)
