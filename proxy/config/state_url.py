"""The URL of a state that replicas share: which Redis servers, how they are arranged, and as whom to come.

    redis://user:password@host:6379/0                       one server
    redis+sentinel://host:26379,host:26379/mymaster/0       the primary that Redis Sentinel names
    redis+cluster://host:7000,host:7001                     a Redis Cluster

With `rediss` in place of `redis` every connection is encrypted. Options have the names that redis-py gives them.
It stands here and not in the store, because a configuration is checked also where redis-py is not installed.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

FORM = "not a URL of the form redis://HOST:6379/0, redis+sentinel://HOST:26379/SERVICE/0 or redis+cluster://HOST:6379"
REDIS_PORT, SENTINEL_PORT = 6379, 26379

Topology = Literal["standalone", "sentinel", "cluster"]
Option = str | int | float | bool

_SCHEMES: Mapping[str, tuple[Topology, bool]] = {
    "redis": ("standalone", False),
    "rediss": ("standalone", True),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}
_NODE = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+)(?::(\d{1,5}))?")
_PATH = {
    "standalone": re.compile(r"/?()(\d*)"),
    "sentinel": re.compile(r"/([^/]+)/?(\d*)"),
    "cluster": re.compile(r"/?()(0?)"),
}


def _boolean(text: str) -> bool:
    return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]


def _certificate_check(text: str) -> str:
    if text not in ("none", "optional", "required"):
        raise ValueError(text)
    return text


OPTIONS: Mapping[str, Callable[[str], Option]] = {
    "client_name": str,
    "db": int,
    "health_check_interval": int,
    "max_connections": int,
    "sentinel_password": str,
    "sentinel_username": str,
    "socket_connect_timeout": float,
    "socket_keepalive": _boolean,
    "socket_timeout": float,
    "ssl_ca_certs": str,
    "ssl_cert_reqs": _certificate_check,
    "ssl_certfile": str,
    "ssl_check_hostname": _boolean,
    "ssl_keyfile": str,
}
_POSITIVE = {"max_connections", "socket_connect_timeout", "socket_timeout"}


@dataclass(frozen=True, slots=True)
class StateUrl:
    """Address of the shared state. As text it shows no credential and no option."""

    topology: Topology
    tls: bool
    nodes: tuple[tuple[str, int], ...]
    """Host and port: of the server, of each Sentinel, or of some nodes of the Cluster."""
    service: str = ""
    """The name under which the Sentinels know the primary."""
    database: int = 0
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    options: Mapping[str, Option] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        scheme = next(name for name, kind in _SCHEMES.items() if kind == (self.topology, self.tls))
        nodes = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.nodes)
        path = {"standalone": f"/{self.database}", "sentinel": f"/{self.service}/{self.database}", "cluster": ""}
        return f"{scheme}://{nodes}{path[self.topology]}"

    @property
    def has_password(self) -> bool:
        return bool(self.password or self.options.get("sentinel_password"))


def parse_state_url(url: str) -> StateUrl:
    """The URL, or a ValueError that quotes nothing of it: any part may be half a password."""
    try:
        return _parse(urlsplit(url))
    except (KeyError, ValueError) as fault:
        raise ValueError(fault.args[0] if isinstance(fault, _BadOption) else FORM) from None


class _BadOption(ValueError):
    """An option of a URL cannot be used."""


def _parse(parts: SplitResult) -> StateUrl:
    topology, tls = _SCHEMES[parts.scheme]
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    path = _PATH[topology].fullmatch(unquote(parts.path))
    if path is None or parts.fragment:
        raise ValueError(parts.scheme)
    options = _options(parts.query, topology)
    database = int(options.pop("db", path[2] or 0))
    if database < 0 or (database and topology == "cluster"):
        raise ValueError(parts.scheme)
    port = SENTINEL_PORT if topology == "sentinel" else REDIS_PORT
    nodes = tuple(_node(host, port) for host in hosts.split(","))
    if len(nodes) > 1 and topology == "standalone":
        raise ValueError(parts.scheme)
    return StateUrl(
        topology, tls, nodes, path[1], database, unquote(user), unquote(password), MappingProxyType(options)
    )


def _node(text: str, port: int) -> tuple[str, int]:
    found = _NODE.fullmatch(text)
    if found is None or not 0 < int(found[2] or port) < 1 << 16:
        raise ValueError(FORM)
    return found[1].strip("[]"), int(found[2] or port)


def _options(query: str, topology: Topology) -> dict[str, Option]:
    """The options with their types. A name is quoted only where it is known, because it may be half a password."""
    pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    known = [name for name in OPTIONS if topology == "sentinel" or not name.startswith("sentinel_")]
    options: dict[str, Option] = {}
    for name, text in pairs:
        if name not in known:
            raise _BadOption(f"an option of this URL is not known; known are {', '.join(known)}")
        try:
            options[name] = OPTIONS[name](text)
        except (KeyError, ValueError):
            raise _BadOption(f"the value of {name} cannot be used") from None
        if name in _POSITIVE and float(options[name]) <= 0:
            raise _BadOption(f"{name} must be greater than 0")
    return options
