"""A call to an upstream: what the client asked for, and the URL, headers and key that it is sent with.

Separate from `client.py` because nothing here does I/O: a call and an upstream's settings in, a URL and headers out.
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
from proxy.wire import headers as wire_headers
from proxy.wire.caller import ANYBODY, Caller
from proxy.wire.headers import Headers

Body = bytes | AsyncIterator[bytes] | None


@dataclass(frozen=True, slots=True)
class Call:
    """A request to forward. `path` is below /v1 and in its normal form."""

    method: str
    path: str
    query: str
    headers: Headers
    body: Body
    caller: Caller = ANYBODY
    credential: Secret | None = None
    """The upstream key of the caller's team, in place of the upstream's own."""


@dataclass(frozen=True, slots=True)
class Address:
    """URL, headers and proxy of an upstream: what its settings add to each call, worked out once."""

    settings: Upstream
    query: str
    added: CIMultiDict[str]
    dropped: frozenset[str]
    proxy: str | None

    @classmethod
    def of(cls, settings: Upstream) -> "Address":
        query, proxy = urlencode(settings.query), _proxy_for(settings.base_url)
        return cls(settings, query, _headers_to_add(settings), _headers_to_drop(settings), proxy)

    def url(self, call: Call, model: str | None) -> URL:
        base = self.settings.base_url
        if not call.query:
            return _plain_url(base, call.path, self.query, model)
        return _url(base, call.path, f"{call.query}&{self.query}" if self.query else call.query, model)

    def at_server_root(self, call: Call) -> URL:
        """The URL of a page at the server's root, outside the API's base path."""
        return URL(self.settings.base_url).origin().with_path(call.path)

    def headers(self, call: Call) -> CIMultiDict[str]:
        """The headers to send: the client's, without those to drop, and with those of the settings."""
        headers = CIMultiDict(wire_headers.to_upstream(call.headers, without=self.dropped))
        headers.update(self.added)
        if call.credential is not None:
            headers.update(_key_header(self.settings, call.credential))
        # A body that is streamed keeps its framing: the client's length where it gave one, else chunks.
        if not isinstance(call.body, bytes) and (length := wire_headers.find(call.headers, "content-length")):
            headers["Content-Length"] = length
        return headers


def _url(base: str, path: str, query: str, model: str | None) -> URL:
    if "{model}" in base:
        base = base.replace("{model}", _model_segment(model))
    return URL(f"{base}{path}?{query}" if query else base + path, encoded=True)


def _model_segment(model: str | None) -> str:
    """A model's name as one segment of a path. Dots and slashes in it could lead the configured key elsewhere."""
    if not model or "/" in model or "\\" in model or not model.strip("."):
        raise BadRequest(
            "missing or unsuitable `model`: this upstream's URL contains the model's name, so the request must name a "
            "model without slashes"
        )
    return quote(model, safe="", errors="replace")


# Cached because parsing a URL costs as much as the rest of the header work, and paths without a query are few.
_plain_url = lru_cache(maxsize=256)(_url)


def _headers_to_add(settings: Upstream) -> CIMultiDict[str]:
    added = CIMultiDict({"Accept-Encoding": "identity"})
    for name, value in settings.headers.items():
        added[name] = value.value if isinstance(value, Secret) else value
    if settings.key:
        added.update(_key_header(settings, settings.key))
    return added


def _key_header(settings: Upstream, key: Secret) -> dict[str, str]:
    bearer = "Bearer " if settings.key_header == "authorization" else ""
    return {settings.key_header: bearer + key.value}


def _headers_to_drop(settings: Upstream) -> frozenset[str]:
    """Headers of the client that are not sent: with a configured key, all that names the client's own account."""
    return wire_headers.CREDENTIALS | wire_headers.ACCOUNTS if settings.key else frozenset()


def _proxy_for(url: str) -> str | None:
    """The HTTP proxy for a URL, from HTTPS_PROXY and the like. aiohttp's `trust_env` would also read `.netrc`."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
