"""Checks for requests that a web page may have made a browser send.

Where the proxy holds the upstream's key and asks its callers for none, all who reach its port can spend that key, and
every page that a person visits reaches the ports of that person's machine. A browser sends such a request without
asking (`text/plain` needs no preflight), or believes that a name of the attacker's, pointed here by DNS, is the page's
own site. So sites whose pages may call, and public names of the proxy, must be listed. Programs send no Origin, and
call the proxy by an address or a local name: for them nothing changes.
"""

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from proxy.errors import ForeignOrigin, HostNotAllowed, NotJson
from proxy.wire.http import Headers, find

# Below these no public DNS holds a name, so no attacker can own one.
_PRIVATE_SUFFIXES = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".test", ".svc", ".svc.cluster.local")
# With these a form, or a script without a preflight, can send any text. Files come as multipart/form-data.
_SENT_BY_ANY_FORM = frozenset({"text/plain", "application/x-www-form-urlencoded"})
_OF_WEB_SITES = frozenset({"http", "https", ""})


def check_page(headers: Headers, hosts: frozenset[str]) -> None:
    """Raise a ProxyError for a request that a page of another site may have caused.

    `hosts`: names of the proxy, and of sites whose pages may call it.
    """
    host = host_of(find(headers, "host") or "")
    if not (is_private(host) or host in hosts):
        raise HostNotAllowed(
            "the proxy spends a key of its own and does not know this name of itself: add it to `access.hosts`, or "
            "set up `teams`, so that callers show a key"
        )
    if _is_foreign(headers, hosts):
        raise ForeignOrigin(
            "the proxy spends a key of its own, and this request comes from a page of another site: add the site's "
            "name to `access.hosts`, or set up `teams`, so that callers show a key"
        )
    kind = (find(headers, "content-type") or "").partition(";")[0].strip().lower()
    if kind in _SENT_BY_ANY_FORM:
        raise NotJson("send the body as `content-type: application/json`: the proxy spends a key of its own")


def host_of(netloc: str) -> str:
    """The name without the port, in lower case; `[::1]:8800` is `::1`."""
    name = netloc.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return (name.rpartition(":")[0] if name.count(":") == 1 else name).removesuffix(".")


def lower_case(hosts: Iterable[str]) -> frozenset[str]:
    """Names of hosts, as `host_of` gives them."""
    return frozenset(host.lower() for host in hosts)


def is_private(host: str) -> bool:
    """True for hosts that an attacker's DNS cannot point here: addresses, names without dots, private zones."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith(_PRIVATE_SUFFIXES)
    return True


def _is_foreign(headers: Headers, hosts: frozenset[str]) -> bool:
    """True for requests sent by a page of another site; apps and browser extensions have other schemes."""
    origin = find(headers, "origin")
    if origin is None:
        return (find(headers, "sec-fetch-site") or "").lower() == "cross-site"
    try:
        page = urlsplit(origin)
    except ValueError:
        return True
    if page.scheme.lower() not in _OF_WEB_SITES:
        return False
    own = (find(headers, "host") or "").strip().lower()
    return not page.netloc or not (page.netloc.lower() == own or host_of(page.netloc) in hosts)
