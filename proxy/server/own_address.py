"""Upstreams at the proxy's own address: each request would be forwarded to the proxy itself, again and again.

They are refused before anything is forwarded: by `serve`, at start and at a reload, and by `check`. It is decided
without DNS, which may be slow or absent then. So a loop through another name, or through a second proxy, is not found:
only a mark in the requests would show it, and the relay adds no header to a request.
"""

import socket
from contextlib import suppress
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
    if faults := [
        Fault(
            f"upstreams.{place}.base_url",
            loaded.origin("upstreams", place, "base_url"),
            f"port {port} of this host is the proxy's own address (`listen`), so each request would come "
            "back to it without end: name the address of the API",
        )
        for place, upstream in enumerate(config.upstreams)
        for port in {listen.port for listen in listeners if _is_own(upstream.base_url, listen)}
    ]:
        raise InvalidConfig(faults)


def _is_own(base_url: str, listen: Listen) -> bool:
    parts = urlsplit(base_url)
    host, own = (parts.hostname or "").rstrip("."), listen.host.lower()
    with suppress(ValueError):  # a port that is no number of a port: connecting will fail
        if (parts.port or _PORTS.get(parts.scheme)) != listen.port:
            return False
        return host == own or any(_listens_at(own, address) for address in _find_addresses(host))
    return False


def _listens_at(own: str, address: Address) -> bool:
    """True where a socket that is bound to the host `own` accepts connections to this address."""
    listening = _parse_address(own)
    if own and (listening is None or not listening.is_unspecified):
        return address in _find_addresses(own)
    return (address.version == 4 or own == "::") and _is_of_this_machine(address)  # noqa: PLR2004 (IPv4)


def _find_addresses(host: str) -> tuple[Address, ...]:
    """Addresses that a host has without DNS: of a literal address, of a name of this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return _LOOPBACK
    address = _parse_address(host)
    if address is None:
        return _LOOPBACK if host == socket.gethostname().lower() else ()
    if address.is_unspecified:  # connecting to 0.0.0.0 leads to this machine
        return tuple(each for each in _LOOPBACK if each.version == address.version)
    return (address,)


def _parse_address(host: str) -> Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


def _is_of_this_machine(address: Address) -> bool:
    """True for addresses of this machine: a connection to one of them begins at the same address.

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
