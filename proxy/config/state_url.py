"""The URL of the state that replicas share. It is parsed here so that `check` needs no redis-py."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

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
TLS_OPTIONS = ("ssl_cert_reqs", "ssl_certfile", "ssl_keyfile")
SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password")
"""By the names of redis-py: https://redis.readthedocs.io/en/stable/connections.html"""
_CERTIFICATE_CHECKS = ("none", "optional", "required")


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
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

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
    default_port = SENTINEL_PORT if topology == "sentinel" else REDIS_PORT
    nodes = tuple(_parse_node(host, default_port) for host in hosts.split(","))
    if len(nodes) > 1 and topology == "standalone":
        raise ValueError(FORM)
    return StateUrl(
        topology=topology,
        tls=bool(scheme[1]),
        nodes=nodes,
        service=path[1],
        database=int(path[2] or 0),
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


def _read_options(query: str, topology: Topology) -> dict[str, str]:
    """Read the options. A name is quoted only if it is known: it may be half a password."""
    if not query:
        return {}
    names = TLS_OPTIONS + (SENTINEL_OPTIONS if topology == "sentinel" else ())
    options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True))
    if not options.keys() <= set(names):
        raise _Refusal(f"an option of this URL is not known; known are {', '.join(names)}")
    if options.get("ssl_cert_reqs", "none") not in _CERTIFICATE_CHECKS:
        raise _Refusal(f"the value of ssl_cert_reqs cannot be used; write one of {', '.join(_CERTIFICATE_CHECKS)}")
    return options
