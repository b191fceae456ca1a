"""The URL of the state that replicas share, parsed without redis-py."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

from msgspec import Struct


class StateUrl(Struct, frozen=True):
    tls: bool
    nodes: tuple[tuple[str, int], ...]
    """Host and port of the server, or of each Sentinel."""
    service: str = ""
    """The primary's name among the Sentinels; empty if there are none."""
    database: int = 0
    user: str = ""
    password: str = ""
    options: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"StateUrl({str(self)!r})"

    def __str__(self) -> str:
        """Return the URL without credentials."""
        scheme = "redis" + "s" * self.tls
        nodes = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.nodes]
        if self.service:
            return f"{scheme}+sentinel://{','.join(nodes)}/{self.service}/{self.database}"
        return f"{scheme}://{','.join(nodes)}/{self.database}"

    def remove_credentials(self, words: str) -> str:
        """Return words of a server without the names of users, or an empty text if a part of a password is in them.

        A server, or a proxy in front of it, may repeat a command in any form: cut, quoted, with escapes.
        """
        words = words[:1_000]  # only the beginning is told
        plain_words = unquote(re.sub(r"\\x([0-9a-fA-F]{2})", r"%\1", words)).replace("\\", "")
        for password in (self.password, self.options.get("sentinel_password", "")):
            if _share_part(words, password) or _share_part(plain_words, password.replace("\\", "")):
                return ""
        for user in filter(None, (self.user, self.options.get("sentinel_username"))):
            spellings = "|".join(map(re.escape, (user, quote(user, safe=""))))
            words = re.sub(rf"(?<!\w)(?:{spellings})(?!\w)", "…", words, flags=re.IGNORECASE)
        words_max = 200
        return words if len(words) <= words_max else f"{words[: words_max - 1]}…"


def _share_part(words: str, password: str) -> bool:
    """Return whether any four characters of a password, or all of a shorter one, stand in the words."""
    part_length = min(4, len(password))
    parts = [password[end - part_length : end].casefold() for end in range(part_length, len(password) + 1)]
    return any(part and part in words.casefold() for part in parts)


def parse_state_url(url: str) -> StateUrl:
    """Parse the URL. A ValueError quotes nothing of it, because any part may be half a password."""
    try:
        return _parse(urlsplit(url))
    except _Refusal:
        raise
    except ValueError:
        why = "not a URL of the form redis://HOST:6379/0 or redis+sentinel://HOST:26379/SERVICE/0"
        raise ValueError(why) from None


class _Refusal(ValueError):
    """A URL that cannot be used, with a sentence on it that may be shown."""


def _parse(parts: SplitResult) -> StateUrl:
    """Raise a ValueError without a text if the URL has another form."""
    scheme, plus, kind = parts.scheme.partition("+")
    if kind == "cluster":
        why = "the state fits one server, with Sentinels if it must not fail"
        raise _Refusal(f"a Redis Cluster is not supported any more: {why}")
    if scheme not in ("redis", "rediss") or (plus and kind != "sentinel") or parts.fragment:
        raise ValueError
    path = unquote(parts.path).removeprefix("/").split("/")
    service, default_port = "", 6379
    if kind:
        service, default_port = path.pop(0), 26379
    (database,) = path or ("",)
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    nodes = []
    for text in hosts.split(","):
        node = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+)(?::(\d{1,5}))?", text)
        port = int(node[2] or default_port) if node else 0
        if node is None or not 0 < port < 1 << 16:
            raise ValueError
        nodes.append((node[1].strip("[]"), port))
    if (kind and not service) or (len(nodes) > 1 and not kind) or (database and not database.isdecimal()):
        raise ValueError
    return StateUrl(
        tls=scheme == "rediss",
        nodes=tuple(nodes),
        service=service,
        database=int(database or 0),
        user=unquote(user),
        password=unquote(password),
        options=MappingProxyType(_read_options(parts.query, kind)),
    )


def _read_options(query: str, kind: str) -> dict[str, str]:
    """Read options, which have the names of redis-py: https://redis.readthedocs.io/en/stable/connections.html."""
    if not query:
        return {}
    names = ["ssl_cert_reqs", "ssl_certfile", "ssl_keyfile"]
    if kind == "sentinel":
        names += ["sentinel_username", "sentinel_password"]
    options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True))
    if not options.keys() <= set(names):
        raise _Refusal(f"an option of this URL is not known; known are {', '.join(names)}")
    if options.get("ssl_cert_reqs", "none") not in ("none", "optional", "required"):
        raise _Refusal("the value of ssl_cert_reqs cannot be used; write none, optional or required")
    return options
