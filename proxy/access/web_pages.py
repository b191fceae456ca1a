"""Requests that a page of another site may have caused.

If the proxy holds the upstream's key and asks its callers for none, everyone who reaches its port can spend that key,
and every page that a person visits reaches the ports of that person's machine. A browser sends such a request without
asking (`text/plain` needs no preflight: https://fetch.spec.whatwg.org/#cors-safelisted-request-header), or takes a name
of the attacker's, which DNS points here, for the page's own site. So sites whose pages may call, and public names of
the proxy, must be listed. Programs send no Origin, and call the proxy by an address or a local name.
"""

import ipaddress
import re
from urllib.parse import urlsplit

from proxy.errors import ForeignOrigin, HostNotAllowed, NotJson
from proxy.wire.http_head import Headers, find_header

# No public DNS has names below these, so no attacker can own one.
_PRIVATE_SUFFIXES = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".test", ".svc", ".svc.cluster.local")
# A form, or a script without a preflight, can send any text as these. Files come as multipart/form-data.
_FORM_TYPES = frozenset({"text/plain", "application/x-www-form-urlencoded"})
_WEB_SCHEMES = frozenset({"http", "https", ""})
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]@:]*?)\.?)(?::\d*)?")


def check_page(headers: Headers, hosts: frozenset[str]) -> None:
    """Raise a ProxyError if a page of another site may have caused the request.

    `hosts` are names of the proxy, and of sites whose pages may call it.
    """
    host = find_host(find_header(headers, "host") or "")
    if not is_private(host) and host not in hosts:
        raise HostNotAllowed(
            "the proxy spends a key of its own and does not know this name of itself: add it to `access.hosts`, or "
            "set up `teams`, so that callers show a key"
        )
    if _is_foreign(headers, hosts):
        raise ForeignOrigin(
            "the proxy spends a key of its own, and this request comes from a page of another site: add the site's "
            "name to `access.hosts`, or set up `teams`, so that callers show a key"
        )
    content_type = (find_header(headers, "content-type") or "").partition(";")[0].strip().lower()
    if content_type in _FORM_TYPES:
        raise NotJson("send the body as `content-type: application/json`: the proxy spends a key of its own")


def find_host(netloc: str) -> str:
    """Return the host without its port, in lower case: `::1` of `[::1]:8800`. Return anything else whole."""
    name = netloc.strip().lower()
    match = _HOST.fullmatch(name)
    if match is None:
        return name
    return match[1] or match[2]


def is_private(host: str) -> bool:
    """Tell if an attacker's DNS cannot point this name here: an address, a name without dots, a private zone."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(_PRIVATE_SUFFIXES)
    return True


def _is_foreign(headers: Headers, hosts: frozenset[str]) -> bool:
    """Tell if a page of another site sent the request. Apps and browser extensions have other schemes."""
    origin = find_header(headers, "origin")
    if origin is None:
        return (find_header(headers, "sec-fetch-site") or "").lower() == "cross-site"
    try:
        page = urlsplit(origin)
    except ValueError:
        return True
    if page.scheme.lower() not in _WEB_SCHEMES:
        return False
    if not page.netloc:
        return True
    own_netloc = (find_header(headers, "host") or "").strip().lower()
    return page.netloc.lower() != own_netloc and find_host(page.netloc) not in hosts
