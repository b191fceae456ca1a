"""Upstreams at the proxy's own address: each request would be forwarded to the proxy itself, again and again.

They are refused before anything is forwarded: by `serve`, at start and at a reload, and by `check`. This finds the
usual mistake, a base URL that was meant for clients. A loop through DNS or through a second proxy is not found.
"""

from urllib.parse import urlsplit

from proxy.config import Fault, InvalidConfig, Listen, Loaded

_LOCAL_HOSTS = frozenset({"", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})  # noqa: S104 (compared with, not bound to)
_PORTS = {"http": 80, "https": 443}


def check_upstreams(loaded: Loaded, started: Listen | None = None) -> None:
    """Raise InvalidConfig if the proxy itself listens at the address of an upstream.

    `started`: the listener until the next start, even if the file names another now.
    """
    listeners = [loaded.config.listen]
    if started is not None:
        listeners.append(started)
    faults = []
    for number, upstream in enumerate(loaded.config.upstreams):
        ports = {listen.port for listen in listeners if _is_own(upstream.base_url, listen)}
        for port in sorted(ports):
            why = (
                f"port {port} of this host is the proxy's own address (`listen`), so each request would come back to "
                "it without end: name the address of the API"
            )
            origin = loaded.origin("upstreams", number, "base_url")
            faults.append(Fault(f"upstreams.{number}.base_url", origin, why))
    if faults:
        raise InvalidConfig(faults)


def _is_own(base_url: str, listen: Listen) -> bool:
    url = urlsplit(base_url)
    try:
        port = url.port or _PORTS.get(url.scheme)
    except ValueError:  # not a port: connecting will fail
        return False
    if port != listen.port:
        return False
    host = (url.hostname or "").rstrip(".")
    own_host = listen.host.lower()
    return host == own_host or (host in _LOCAL_HOSTS and own_host in _LOCAL_HOSTS)
