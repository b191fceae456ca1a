"""What can be set. The models below are the only place a setting is defined.

Every setting has a default, so no file is needed. Secrets are named, not written: `env:NAME` or `file:PATH`;
only that reference is ever shown.
"""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, ValidationInfo, model_validator

from proxy.config import shipped
from proxy.config.block import Block
from proxy.config.hooks import Hook
from proxy.config.policies import DEFAULT, Policy, lineage, resolved
from proxy.wire import redaction
from proxy.wire.headers import CREDENTIALS

_FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD_VALUE = re.compile(r"[\t\x20-\x7e]*")


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret stands, and what it is. Only the first is ever shown."""

    reference: str
    value: str

    def __repr__(self) -> str:
        return self.reference

    __str__ = __repr__


def _secret(reference: object, info: ValidationInfo) -> Secret | None:
    if reference is None or isinstance(reference, Secret):
        return reference
    kind, _, name = str(reference).partition(":")
    if kind == "env":
        value = (info.context or {}).get(name, "")
    elif kind == "file":
        value = _read_secret(name)
    else:
        raise ValueError("a secret is named, not written: say env:NAME or file:PATH")
    where = f"{'variable' if kind == 'env' else 'file'} {name}"
    if not value.strip():
        raise ValueError(f"{where} is empty or missing")
    if not _FIELD_VALUE.fullmatch(value.strip()):
        raise ValueError(f"{where} holds characters that no header can carry")
    return Secret(str(reference), value.strip())


def _read_secret(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _plain_or_secret(value: object, info: ValidationInfo) -> object:
    named = isinstance(value, str) and value.startswith(("env:", "file:"))
    return _secret(value, info) if named else value


def _shown(value: Secret | str | None) -> str | None:
    return None if value is None else str(value)


def _base_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an http(s) URL")
    if parts.username or parts.password:
        raise ValueError("credentials do not belong into a URL: use key")
    if parts.query or parts.fragment:
        raise ValueError("a query does not belong here: use query")
    return url.rstrip("/") + ("" if parts.path.strip("/") else "/v1")


def _headers(headers: Mapping[str, Secret | str]) -> Mapping[str, Secret | str]:
    for name, value in headers.items():
        if not _FIELD_NAME.fullmatch(name):
            raise ValueError("one of the names is not the name of a header")
        if isinstance(value, str) and name.lower() in CREDENTIALS:
            raise ValueError(f"{name}: a secret is named, not written: say env:NAME or file:PATH")
        if isinstance(value, str) and not _FIELD_VALUE.fullmatch(value):
            raise ValueError(f"{name}: holds characters that no header can carry")
    return headers


def _some(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Not pydantic's own rule: that one would also complain about a list with a wrong entry."""
    if not values:
        raise ValueError("there must be at least one")
    return values


def _readable(path: str | None) -> str | None:
    if path is not None and not Path(path).is_file():
        raise ValueError("there is no such file")
    return path


def _trusted(path: str | None) -> str | None:
    if path is not None:
        try:
            ssl.create_default_context(cafile=path)
        except OSError:
            raise ValueError("there are no certificates (PEM) in it") from None
    return path


def _identity(certificate: str | None, key: str | None = None) -> None:
    if certificate is not None:
        try:
            ssl.create_default_context().load_cert_chain(certificate, key, password="")
        except OSError:
            raise ValueError("no certificate (PEM) with its private key, unlocked, is there") from None


def _presentable(path: str | None) -> str | None:
    _identity(path)
    return path


def _findable(pattern: str) -> str:
    if why := redaction.fault(pattern):
        raise ValueError(why)
    return pattern


Kept = Literal["lossy", "all", "off"]
SecretPattern = Annotated[str, AfterValidator(_findable)]
BaseUrl = Annotated[str, AfterValidator(_base_url)]
ReadableFile = Annotated[str | None, AfterValidator(_readable)]
TrustedFile = Annotated[str | None, AfterValidator(_readable), AfterValidator(_trusted)]
IdentityFile = Annotated[str | None, AfterValidator(_readable), AfterValidator(_presentable)]
SecretReference = Annotated[Secret | None, BeforeValidator(_secret), PlainSerializer(_shown)]
HeaderValue = Annotated[Secret | str, BeforeValidator(_plain_or_secret), PlainSerializer(_shown)]
Headers = Annotated[Mapping[str, HeaderValue], AfterValidator(_headers)]


class Listen(Block):
    """Where clients reach the proxy, and what it accepts."""

    host: str = Field("127.0.0.1", description="Address to bind; anything but loopback opens the proxy to the network.")
    port: int = Field(8800, ge=0, le=65535, description="Port to bind; 0 takes a free one.")
    workers: int = Field(1, ge=1, le=256, description="Processes that share the port.")
    tls_cert: ReadableFile = Field(None, description="Certificate chain (PEM) to serve TLS with.")
    tls_key: ReadableFile = Field(None, description="Private key (PEM) of that certificate.")
    max_body_mib: float = Field(
        32, gt=0, description="Largest body that is read whole (chat requests), also when unpacked; more gets a 413."
    )
    max_in_flight: int = Field(
        0, ge=0, description="Requests at once in each worker before new ones get a 503; 0 is no limit."
    )
    heartbeat_seconds: float = Field(
        10, gt=0, description="Silence on a stream after which a comment keeps the connection open."
    )
    drain_seconds: float = Field(30, ge=0, description="How long open requests may go on after SIGTERM.")

    @model_validator(mode="after")
    def _tls_is_a_pair(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together: set both or none")
        _identity(self.tls_cert, self.tls_key)
        return self


class Upstream(Block):
    """An OpenAI-compatible API behind the proxy. The first one whose `models` match serves a request."""

    name: str = Field("default", pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="How logs and metrics call it.")
    base_url: BaseUrl = Field(
        "https://api.openai.com/v1",
        description="What takes the place of the client's /v1; {model} is the request's model (Azure deployments).",
    )
    models: Annotated[tuple[str, ...], AfterValidator(_some)] = Field(
        ("*",), description="Model names it serves, as globs."
    )
    key: SecretReference = Field(
        None, description="Its API key as env:NAME or file:PATH; without one the client's own key passes through."
    )
    key_header: Literal["authorization", "api-key", "x-api-key"] = Field(
        "authorization", description="Header the key is sent in; authorization sends it as a bearer token."
    )
    headers: Headers = Field({}, description="Headers to set on every request; values may be env:NAME or file:PATH.")
    query: Mapping[str, str] = Field({}, description="Query parameters to add, such as Azure's api-version.")
    paths: tuple[str, ...] = Field(
        (), description="Further paths below /v1 that may be called with the configured key, as globs."
    )
    connect_seconds: float = Field(10, gt=0, description="How long a connection may take.")
    silence_seconds: float = Field(600, gt=0, description="Longest silence to wait for, before or within an answer.")
    retries: int = Field(
        1, ge=0, le=10, description="Further tries, while nothing was sent (no connection) or for retry_statuses."
    )
    retry_statuses: tuple[Annotated[int, Field(ge=400, le=599)], ...] = Field(
        (), description="Answers to try again, such as 429 or 503, after their retry-after; clients do so themselves."
    )
    retry_wait_seconds: float = Field(
        5, ge=0, description="Longest retry-after to wait for; a longer one goes to the client."
    )
    max_connections: int = Field(0, ge=0, description="Connections at once to it in each worker; 0 is no limit.")
    policy: str = Field(DEFAULT, description="The policy for its chat requests.")
    window: int | None = Field(
        None, gt=0, description="Tokens its models can take, answer included; none: learned, asked for, or known."
    )
    ca_file: TrustedFile = Field(None, description="Certificates (PEM) to trust instead of the system's.")
    client_cert: IdentityFile = Field(None, description="Client certificate (PEM, key included) to present.")

    def serves(self, model: str) -> bool:
        return any(fnmatchcase(model, pattern) for pattern in self.models)


class State(Block):
    """What is kept between requests and restarts."""

    dir: str = Field("./state", min_length=1, description="Directory for everything the proxy keeps.")
    store: Literal["sqlite", "memory"] = Field(
        "sqlite",
        description="Where blocks are kept: in a file that all workers share, or in memory until the next start.",
    )
    mib: int = Field(256, ge=1, description="How much of them is kept; what was used longest ago goes first.")
    days: float = Field(7, gt=0, description="How long a block is kept after its last use.")


class Transcripts(Block):
    """The originals: messages as clients sent them, kept before anything of them is folded away, and the answers."""

    keep: Kept = Field(
        "lossy",
        description="lossy keeps what is about to be folded away, with all around it; all keeps every chat; off, none.",
    )
    dir: str | None = Field(None, description="Directory to keep them in; none: `originals` below the state's.")
    required: bool = Field(
        default=False,
        description="Whether a request is refused (503) while what would be folded away of it cannot be written.",
    )
    redact: bool = Field(default=True, description="Whether secrets are taken out before anything is written.")
    patterns: tuple[SecretPattern, ...] = Field(
        (), description="Secrets of your own, beside the shipped kinds; each begins with three plain characters."
    )
    days: float = Field(30, ge=0, description="How long a conversation is kept after its last message; 0 is for ever.")
    mib: int = Field(4096, ge=0, description="How much is kept in all, the oldest goes first; 0 is no bound.")
    rotate_mib: float = Field(64, gt=0, description="Size at which a file is closed and the next one begun.")
    fsync: Literal["never", "rotate", "always"] = Field(
        "rotate",
        description="always: it has reached the disk before it counts as written; rotate: when a file is closed.",
    )


class Log(Block):
    """What is written about requests. Bodies, headers and queries never are."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least important level that is written."
    )
    format: Literal["auto", "json", "text"] = Field(
        "auto", description="auto is text on a terminal and JSON anywhere else."
    )


class Config(Block):
    """Everything that can be set."""

    listen: Listen = Listen()
    upstreams: Annotated[tuple[Upstream, ...], AfterValidator(_some)] = (Upstream(),)
    policies: Mapping[str, Policy] = Field({DEFAULT: Policy()}, description="By name, beside the shipped ones.")
    state: State = State()
    transcripts: Transcripts = Transcripts()
    log: Log = Log()
    hooks: tuple[Hook, ...] = Field(
        (), description="Commands that are run and URLs that are called when something happens."
    )

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [upstream.name for upstream in self.upstreams]
        if len(set(names)) < len(names):
            raise ValueError("upstreams: two of them have the same name")
        return self

    @model_validator(mode="after")
    def _policies_exist(self) -> Self:
        for name in self.policies:
            try:
                resolved(name, self.all_policies)
            except KeyError as missing:
                raise ValueError(f"policies.{name}: inherits from {missing}, and there is no such policy") from None
            except ValueError as circle:
                raise ValueError(f"policies.{name}: {circle}") from None
        names = {upstream.name for upstream in self.upstreams}
        for name in self.policies:
            if (asked := self.policy(name).summary.upstream) and asked not in names:
                raise ValueError(f"policies.{name}.summary.upstream: there is no upstream {asked!r}")
        for upstream in self.upstreams:
            if upstream.policy not in self.all_policies:
                raise ValueError(f"upstreams: {upstream.name}: there is no policy {upstream.policy!r}")
        return self

    @property
    def originals(self) -> Path:
        """Where the transcripts are."""
        return Path(self.transcripts.dir or Path(self.state.dir) / "originals")

    @property
    def all_policies(self) -> Mapping[str, Policy]:
        return {**shipped.policies(), **self.policies}

    def policy(self, name: str) -> Policy:
        """A policy with everything it inherits."""
        return resolved(name, self.all_policies)

    def lineage(self, name: str) -> list[str]:
        """A policy and all it inherits from, nearest first."""
        return lineage(name, self.all_policies)

    def upstream_for(self, model: str | None) -> Upstream | None:
        """The upstream that serves a model; without a model, the first one."""
        if model is None:
            return self.upstreams[0]
        return next((upstream for upstream in self.upstreams if upstream.serves(model)), None)
