"""What can be set. The models here and beside (policies, teams, hooks) are the only place a setting is defined.

Every setting has a default, so no file is needed.
"""

import re
import ssl
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from proxy.config import shipped
from proxy.config.faults import suggest
from proxy.config.hooks import Hook
from proxy.config.model import ConfigModel
from proxy.config.policies import DEFAULT, Policy, lineage, resolved
from proxy.config.secrets import FIELD_VALUE, MaybeSecret, Secret, SecretReference
from proxy.config.state_url import parse_state_url
from proxy.config.teams import Access, Admin, Attachment, Choice, Occasion, Team, TeamName, choices, is_team
from proxy.wire import redaction

_REMOTE = ("s3://", "gs://", "az://")
_BUCKET = re.compile(r"(s3|gs|az)://([^/]+)(/.*)?")
_OF_AWS = {
    "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "key": ("AWS_ACCESS_KEY_ID",),
    "secret": ("AWS_SECRET_ACCESS_KEY",),
    "token": ("AWS_SESSION_TOKEN",),
}
# Their values are never written into a configuration, only named.
_SECRET_HEADERS = frozenset({"authorization", "api-key", "x-api-key", "x-goog-api-key", "cookie"})
_FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _base_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an http(s) URL")
    if parts.username or parts.password:
        raise ValueError("credentials do not belong into a URL: use key")
    if parts.query or parts.fragment:
        raise ValueError("a query does not belong here: use query")
    return url.rstrip("/") + ("" if parts.path.strip("/") else "/v1")


def _state_url(value: Secret | str) -> Secret | str:
    if not value:
        return value
    url = parse_state_url(value.value if isinstance(value, Secret) else value)
    if url.has_password and isinstance(value, str):
        raise ValueError("a secret is named, not written: say env:NAME or file:PATH for a URL with a password")
    return value


def _headers(headers: Mapping[str, Secret | str]) -> Mapping[str, Secret | str]:
    for name, value in headers.items():
        if not _FIELD_NAME.fullmatch(name):
            raise ValueError("one of the names is not the name of a header")
        if isinstance(value, str) and name.lower() in _SECRET_HEADERS:
            raise ValueError(f"{name}: a secret is named, not written: say env:NAME or file:PATH")
        if isinstance(value, str) and not FIELD_VALUE.fullmatch(value):
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
StateUrl = Annotated[MaybeSecret, AfterValidator(_state_url)]
Headers = Annotated[Mapping[str, MaybeSecret], AfterValidator(_headers)]


class Listen(ConfigModel):
    """Where clients reach the proxy, and what it accepts."""

    host: str = Field("127.0.0.1", description="Address to bind; anything but loopback opens the proxy to the network.")
    port: int = Field(8800, ge=0, le=65535, description="Port to bind; 0 takes a free one.")
    workers: int = Field(1, ge=1, le=256, description="Processes that share the port.")
    tls_cert: ReadableFile = Field(None, description="Certificate chain (PEM) to serve TLS with.")
    tls_key: ReadableFile = Field(None, description="Private key (PEM) of that certificate.")
    max_body_mib: float = Field(
        32, gt=0, description="Largest body that is read whole (chat requests), also when unpacked; more gets a 413."
    )
    body_silence_seconds: float = Field(
        60,
        gt=0,
        description="Seconds without a byte after which a request body that is still coming is given up with a 408.",
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


class Upstream(ConfigModel):
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

    @property
    def holds_secret(self) -> bool:
        """Whether it is called with a credential of the configuration, whoever asks."""
        return self.key is not None or any(isinstance(value, Secret) for value in self.headers.values())

    def serves(self, model: str) -> bool:
        return any(fnmatchcase(model, pattern) for pattern in self.models)


class State(ConfigModel):
    """What is kept between requests and restarts."""

    dir: str = Field("./state", min_length=1, description="Directory for everything the proxy keeps.")
    url: StateUrl = Field(
        "",
        description="State that replicas share: redis://HOST:6379/0, redis+sentinel://HOST:26379/SERVICE/0 or"
        " redis+cluster://HOST:6379 (rediss for TLS), as env:NAME if it holds a password.",
    )
    ca_file: TrustedFile = Field(None, description="Certificates (PEM) to trust for rediss:// instead of the system's.")
    store: Literal["sqlite", "memory"] = Field(
        "sqlite",
        description="Without a url: in a file that all workers share, or in memory until the next start.",
    )
    mib: int = Field(256, ge=1, description="How much of them is kept; what was used longest ago goes first.")
    days: float = Field(7, gt=0, description="How long a block is kept after its last use.")


class Transcripts(ConfigModel):
    """The originals: messages as clients sent them, kept before anything of them is folded away, and the answers."""

    keep: Kept = Field(
        "lossy",
        description="lossy keeps what is about to be folded away, with all around it; all keeps every chat; off, none.",
    )
    dir: str | None = Field(
        None,
        description="Directory, or s3://, gs:// or az:// with bucket/prefix; none: `originals` in the state directory.",
    )
    endpoint: str = Field("", description="URL of the object store; empty: the vendor's own, or AWS_ENDPOINT_URL.")
    region: str = Field("us-east-1", description="For s3://: the region; AWS_REGION is heeded where none is set.")
    key: SecretReference = Field(
        None, description="Access key (Azure: account) as env:NAME; none: AWS_ACCESS_KEY_ID or a role."
    )
    secret: SecretReference = Field(
        None,
        description="Its secret (Google: service account) as env:NAME; none: see `key`.",
    )
    token: SecretReference = Field(None, description="Session token of temporary S3 keys; none: AWS_SESSION_TOKEN.")
    ca_file: TrustedFile = Field(
        None, description="Certificates (PEM) of the object store to trust beside the system's."
    )
    upload_seconds: float = Field(5, gt=0, description="Seconds after which a file is sent to the object store.")
    spool_mib: int = Field(1024, ge=1, description="MiB that may wait on this disk while the object store is away.")
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

    @property
    def is_remote(self) -> bool:
        """Whether they are kept in an object store."""
        return (self.dir or "").startswith(_REMOTE)

    @model_validator(mode="before")
    @classmethod
    def _fill_from_aws_variables(cls, values: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 (whatever a file holds)
        """For s3://: what is not set is taken from where AWS's own tools look."""
        if not isinstance(values, Mapping) or not str(values.get("dir") or "").startswith("s3://"):
            return values
        environ = info.context or {}
        found = {setting: name for setting, names in _OF_AWS.items() for name in names[::-1] if environ.get(name)}
        named = {
            setting: f"env:{name}" if setting in ("key", "secret", "token") else environ[name]
            for setting, name in found.items()
        }
        return {**named, **{name: value for name, value in values.items() if value not in ("", None)}}

    @model_validator(mode="after")
    def _check_object_store(self) -> Self:
        if self.is_remote and not _BUCKET.fullmatch(self.dir or ""):
            raise ValueError("dir: not a place in an object store: write s3://bucket/prefix, gs://… or az://…")
        if self.is_remote and self.key is not None and self.secret is None:
            raise ValueError("`key` is set without `secret`: set both, or neither to use a role's credentials")
        return self


class Log(ConfigModel):
    """What is written about requests. Bodies, headers and queries never are."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least important level that is written."
    )
    format: Literal["auto", "json", "text"] = Field(
        "auto", description="auto is text on a terminal and JSON anywhere else."
    )


class Config(ConfigModel):
    """Everything that can be set."""

    listen: Listen = Listen()
    upstreams: Annotated[tuple[Upstream, ...], AfterValidator(_some)] = (Upstream(),)
    policies: Mapping[str, Policy] = Field({DEFAULT: Policy()}, description="By name, beside the shipped ones.")
    attachments: tuple[Attachment, ...] = Field((), description="Where policies apply; the first that fits decides.")
    access: Access = Access()
    teams: Mapping[TeamName, Team] = Field({}, description="By name; once there is one, only team keys open.")
    admin: Admin = Admin()
    state: State = State()
    transcripts: Transcripts = Transcripts()
    log: Log = Log()
    hooks: tuple[Hook, ...] = Field(
        (), description="Commands that are run and URLs that are called when something happens."
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """What is wrong between settings, all of it at once: a line for each, and each begins with its place."""
        if faults := [*self._of_upstreams(), *self._of_policies(), *self._of_teams()]:
            raise ValueError("\n".join(faults))
        return self

    def _of_upstreams(self) -> Iterator[str]:
        names = [upstream.name for upstream in self.upstreams]
        if len(set(names)) < len(names):
            yield "upstreams: two of them have the same name"

    def _of_policies(self) -> Iterator[str]:
        names = {upstream.name for upstream in self.upstreams}
        for name in self.policies:
            try:
                asked = self.policy(name).summary.upstream
            except KeyError as missing:
                yield f"policies.{name}: inherits from {missing}, and there is no such policy"
            except ValueError as circle:
                yield f"policies.{name}: {circle}"
            else:
                if asked and asked not in names:
                    yield f"policies.{name}.summary.upstream: there is no upstream {asked!r}{suggest(asked, names)}"
        for where, name in self._policies_named():
            if name not in self.all_policies:
                yield f"{where}: there is no policy {name!r}{suggest(name, self.all_policies)}"

    def _policies_named(self) -> Iterator[tuple[str, str]]:
        yield from ((f"upstreams.{place}.policy", each.policy) for place, each in enumerate(self.upstreams))
        yield from ((f"teams.{name}.policy", team.policy) for name, team in self.teams.items() if team.policy)
        yield from ((f"attachments.{place}.policy", each.policy) for place, each in enumerate(self.attachments))

    def _of_teams(self) -> Iterator[str]:
        names = {upstream.name for upstream in self.upstreams}
        for name, team in self.teams.items():
            if team.upstream and team.upstream not in names:
                yield f"teams.{name}.upstream: there is no upstream {team.upstream!r}{suggest(team.upstream, names)}"
            if team.key and not team.upstream:
                yield f"teams.{name}.key: a key is for one upstream: say which in teams.{name}.upstream"

    @property
    def originals(self) -> Path:
        """Where the transcripts are, or where they wait for the object store."""
        if self.transcripts.is_remote:
            return Path(self.state.dir) / "spool"
        return Path(self.transcripts.dir or Path(self.state.dir) / "originals")

    @property
    def all_policies(self) -> Mapping[str, Policy]:
        return {DEFAULT: Policy(), **shipped.policies(), **self.policies}

    def policy(self, name: str, mode: str = "") -> Policy:
        """A policy with everything it inherits, in another mode if one is given."""
        found = resolved(name, self.all_policies)
        return found.model_copy(update={"mode": mode}) if mode else found

    def lineage(self, name: str) -> list[str]:
        """A policy and all it inherits from, nearest first."""
        return lineage(name, self.all_policies)

    def knows_team(self, name: str) -> bool:
        return is_team(name, self.teams, self.access)

    def choices(self, occasion: Occasion) -> tuple[Choice, ...]:
        """The policies that may apply, in the order in which they are asked."""
        upstream = next(each for each in self.upstreams if each.name == occasion.upstream)
        fallback = Choice(upstream.policy, place=("upstreams", self.upstreams.index(upstream), "policy"))
        return tuple(choices(self.attachments, occasion, self.teams.get(occasion.team), fallback))

    def upstream_for(self, model: str | None, team: str = "") -> Upstream | None:
        """The upstream of a team, if it has one; else the one that serves a model; without a model, the first one."""
        if team in self.teams and (own := self.teams[team].upstream):
            return next(upstream for upstream in self.upstreams if upstream.name == own)
        if model is None:
            return self.upstreams[0]
        return next((upstream for upstream in self.upstreams if upstream.serves(model)), None)
