"""Upstreams at the proxy's own address: each request would be forwarded to the proxy itself, again and again.

They are refused before anything is forwarded: by `serve`, at start and at a reload, and by `check`. DNS may be slow or
absent at that time and is not asked, so a loop through another name, or through a second proxy, is not found: only a
mark in the requests would show it, and the relay adds no header to a request.
"""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from proxy.config import Fault, InvalidConfig, Listen, Loaded

Address = IPv4Address | IPv6Address

_LOOPBACK: tuple[Address, ...] = (IPv4Address("127.0.0.1"), IPv6Address("::1"))
_PORTS = {"http": 80, "https": 443}


def check_upstreams(loaded: Loaded, started: Listen | None = None) -> None:
    """Raise InvalidConfig if the proxy itself listens at the address of an upstream.

    `started`: where it listens until its next start, whatever the file says now.
    """
    config = loaded.config
    listeners = (config.listen,) if started is None else (config.listen, started)
    faults = []
    for number, upstream in enumerate(config.upstreams):
        ports = {listen.port for listen in listeners if _is_own(upstream.base_url, listen)}
        for port in sorted(ports):
            why = (
                f"port {port} of this host is the proxy's own address (`listen`), so each request would come "
                "back to it without end: name the address of the API"
            )
            origin = loaded.origin("upstreams", number, "base_url")
            faults.append(Fault(f"upstreams.{number}.base_url", origin, why))
    if faults:
        raise InvalidConfig(faults)


def _is_own(base_url: str, listen: Listen) -> bool:
    parts = urlsplit(base_url)
    host = (parts.hostname or "").rstrip(".")
    own_host = listen.host.lower()
    try:
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # not a port: connecting will fail
        return False
    if port != listen.port:
        return False
    return host == own_host or any(_listens_at(own_host, address) for address in _find_addresses(host))


def _listens_at(own_host: str, address: Address) -> bool:
    """Tell if a socket that is bound to *own_host* accepts connections to this address."""
    own_address = _parse_address(own_host)
    if own_host and (own_address is None or not own_address.is_unspecified):
        return address in _find_addresses(own_host)
    return (address.version == 4 or own_host == "::") and _is_of_this_machine(address)  # noqa: PLR2004 (IPv4)


def _find_addresses(host: str) -> tuple[Address, ...]:
    """Return the addresses of a host that are known without DNS."""
    if host == "localhost" or host.endswith(".localhost"):
        return _LOOPBACK
    address = _parse_address(host)
    if address is None:
        if host == socket.gethostname().lower():
            return _LOOPBACK
        return ()
    if address.is_unspecified:  # connecting to 0.0.0.0 leads to this machine
        return tuple(loopback for loopback in _LOOPBACK if loopback.version == address.version)
    return (address,)


def _parse_address(host: str) -> Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address


def _is_of_this_machine(address: Address) -> bool:
    """Tell if a connection to this address would begin at the same address.

    Connecting a datagram socket sends nothing. Binding would not tell: some machines may bind addresses of others.
    """
    if address.is_loopback:
        return True
    family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((str(address), 9))
        except OSError:
            return False
        return ip_address(sock.getsockname()[0].partition("%")[0]) == address
