"""Where a call goes, and what is shown there: URL, headers, keys. Worked out once for each upstream."""

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

from multidict import CIMultiDict
from yarl import URL

from proxy.config import Secret, Upstream
from proxy.errors import BadRequest
from proxy.upstream.call import Call
from proxy.wire import headers as wire_headers


@dataclass(frozen=True, slots=True)
class Address:
    """What the settings of an upstream add to each call."""

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
        headers = CIMultiDict(wire_headers.to_upstream(call.headers, without=self.dropped))
        headers.update(self.added)
        if call.credential is not None:
            headers.update(_key_header(self.settings, call.credential))
        if not isinstance(call.body, bytes) and (length := wire_headers.find(call.headers, "content-length")):
            headers["Content-Length"] = length
        return headers


def _url(base: str, path: str, query: str, model: str | None) -> URL:
    if "{model}" in base:
        base = base.replace("{model}", _model_segment(model))
    return URL(f"{base}{path}?{query}" if query else base + path, encoded=True)


def _model_segment(model: str | None) -> str:
    """A model in a path is one name. Dots and slashes in it could lead the configured key elsewhere."""
    if not model or "/" in model or "\\" in model or not model.strip("."):
        raise BadRequest(
            "the upstream's address holds the model's name, and this request names none that can stand there"
        )
    return quote(model, safe="", errors="replace")


# Parsing a URL costs as much as the rest of the header work; paths without a query are few.
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
    """With a key of ours, nothing that names the client's own account goes along."""
    return wire_headers.CREDENTIALS | wire_headers.ACCOUNTS if settings.key else frozenset()


def _proxy_for(url: str) -> str | None:
    """HTTPS_PROXY and its kin. Asked for once; aiohttp's own way would also read `.netrc` for passwords."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
