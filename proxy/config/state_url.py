"""The URL of the state that replicas share. It is parsed here so that `check` needs no redis-py."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pydantic import Field, TypeAdapter, ValidationError

from proxy.config.values import Amount, Seconds

FORM = "not a URL of the form redis://HOST:6379/0 or redis+sentinel://HOST:26379/SERVICE/0"
NO_CLUSTER = "a Redis Cluster is not supported any more: the state fits one server, with Sentinels if it must not fail"
REDIS_PORT, SENTINEL_PORT = 6379, 26379
_SCHEME = re.compile(r"redis(s?)(?:\+(sentinel|cluster))?")
_NODE = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+)(?::(\d{1,5}))?")
_PATH = {
    "standalone": re.compile(r"/?()(\d*)"),
    "sentinel": re.compile(r"/([^/]+)/?(\d*)"),
}

Topology = Literal["standalone", "sentinel"]
Option = str | int | float | bool

_Positive = Annotated[Seconds, Field(gt=0)]
OPTIONS: Mapping[str, Any] = {
    "db": int,
    "max_connections": Annotated[Amount, Field(gt=0)],
    "sentinel_password": str,
    "sentinel_username": str,
    "socket_connect_timeout": _Positive,
    "socket_timeout": _Positive,
    "ssl_ca_certs": str,
    "ssl_cert_reqs": Literal["none", "optional", "required"],
    "ssl_certfile": str,
    "ssl_check_hostname": bool,
    "ssl_keyfile": str,
}
"""Options by the names of redis-py (https://redis.readthedocs.io/en/stable/connections.html), and their types."""


@dataclass(frozen=True, slots=True)
class StateUrl:
    topology: Topology
    tls: bool
    nodes: tuple[tuple[str, int], ...]
    """Host and port: of the server, or of each Sentinel."""
    service: str = ""
    """The name by which the Sentinels know the primary."""
    database: int = 0
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    options: Mapping[str, Option] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        scheme = "rediss" if self.tls else "redis"
        nodes = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.nodes]
        if self.topology == "sentinel":
            return f"{scheme}+sentinel://{','.join(nodes)}/{self.service}/{self.database}"
        return f"{scheme}://{','.join(nodes)}/{self.database}"

    @property
    def has_password(self) -> bool:
        return bool(self.password or self.options.get("sentinel_password"))


def parse_state_url(url: str) -> StateUrl:
    """Parse the URL. The message of the ValueError quotes nothing of it: any part may be half a password."""
    try:
        return _parse(urlsplit(url))
    except _Refusal:
        raise
    except ValueError:
        raise ValueError(FORM) from None


class _Refusal(ValueError):
    """A sentence on a URL that cannot be used."""


def _parse(parts: SplitResult) -> StateUrl:
    scheme = _SCHEME.fullmatch(parts.scheme)
    if scheme is None:
        raise ValueError(FORM)
    if scheme[2] == "cluster":
        raise _Refusal(NO_CLUSTER)
    topology: Topology = scheme[2] or "standalone"  # type: ignore[assignment]
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    path = _PATH[topology].fullmatch(unquote(parts.path))
    if path is None or parts.fragment:
        raise ValueError(FORM)
    options = _read_options(parts.query, topology)
    database = int(options.pop("db", path[2] or 0))
    if database < 0:
        raise ValueError(FORM)
    default_port = SENTINEL_PORT if topology == "sentinel" else REDIS_PORT
    nodes = tuple(_parse_node(host, default_port) for host in hosts.split(","))
    if len(nodes) > 1 and topology == "standalone":
        raise ValueError(FORM)
    return StateUrl(
        topology=topology,
        tls=bool(scheme[1]),
        nodes=nodes,
        service=path[1],
        database=database,
        user=unquote(user),
        password=unquote(password),
        options=MappingProxyType(options),
    )


def _parse_node(text: str, default_port: int) -> tuple[str, int]:
    match = _NODE.fullmatch(text)
    if match is None:
        raise ValueError(FORM)
    port = int(match[2] or default_port)
    if not 0 < port < 1 << 16:
        raise ValueError(FORM)
    return match[1].strip("[]"), port


def _read_options(query: str, topology: Topology) -> dict[str, Option]:
    """Read the options with their types. A name is quoted only if it is known: it may be half a password."""
    options: dict[str, Option] = {}
    if not query:
        return options
    names = [name for name in OPTIONS if topology == "sentinel" or not name.startswith("sentinel_")]
    for name, text in parse_qsl(query, keep_blank_values=True, strict_parsing=True):
        if name not in names:
            raise _Refusal(f"an option of this URL is not known; known are {', '.join(names)}")
        try:
            options[name] = TypeAdapter(OPTIONS[name]).validate_python(text)
        except ValidationError as invalid:
            if invalid.errors()[0]["type"] == "greater_than":
                raise _Refusal(f"{name} must be greater than 0") from None
            raise _Refusal(f"the value of {name} cannot be used") from None
    return options
