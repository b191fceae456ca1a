"""All settings but those of policies and attachments. Docstrings below them are their descriptions in proxy.yaml."""

import ipaddress
import re
import ssl
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from os.path import isfile
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import SplitResult, urlsplit

from msgspec.structs import astuple, replace
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from proxy.config.faults import REMOVED_POLICIES
from proxy.config.policies import (
    DEFAULT,
    Attachment,
    Occasion,
    Policy,
    RolloutChoice,
    shipped_policies,
)
from proxy.config.state_url import parse_state_url
from proxy.config.values import (
    ALL_PERCENT,
    Amount,
    ConfigModel,
    Days,
    MaybeSecret,
    Mib,
    Percent,
    Seconds,
    Secret,
    SecretReference,
    check_strength,
    is_field_value,
    refuse_if,
    reveal,
    suggest,
)
from proxy.shorten.economics import PriceCliff, TokenPrices, Window
from proxy.wire import redaction
from proxy.wire.http_head import ApiPath, is_credential

SUBSCRIPTION = "subscription"
"""Nothing is paid by the token: pages and metrics show tokens, and no money."""


class ModelPrices(ConfigModel):
    """Dollars per million tokens. A price that is not set is that of the price list."""

    input: float | None = Field(None, ge=0)
    """Input tokens."""
    cached: float | None = Field(None, ge=0)
    """Input tokens that are read from the cache."""
    written: float | None = Field(None, ge=0)
    """Input tokens that are written to the cache."""
    output: float | None = Field(None, ge=0)
    """Output tokens."""
    discount: Percent = 0.0
    """Percentage off all of these prices, listed ones included."""

    def price(self, window: Window) -> Window:
        own = (self.input, self.cached, self.written, self.output)
        listed = window.prices or TokenPrices(0.0, None, None, None)
        if window.prices is None and self.input is None:
            return window
        cliffs: tuple[PriceCliff, ...] = ()
        if own == (None, None, None, None):
            cliffs = tuple(replace(cliff, prices=self._reduce(cliff.prices)) for cliff in window.cliffs)
        prices = [mine if mine is not None else theirs for mine, theirs in zip(own, astuple(listed), strict=True)]
        return replace(window, prices=self._reduce(TokenPrices(*prices)), cliffs=cliffs)

    def _reduce(self, prices: TokenPrices) -> TokenPrices:
        share = 1 - self.discount / ALL_PERCENT
        reduced = [None if price is None else price * share for price in astuple(prices)]
        return TokenPrices(reduced[0] or 0.0, *reduced[1:])


def _read_prices(value: object) -> object:
    """Read one of two types, so that a fault is that of the type that is meant."""
    if value == SUBSCRIPTION or isinstance(value, ModelPrices):
        return value
    if not isinstance(value, Mapping | None):
        why = "must be `subscription`, or a mapping of prices, such as `{input: 2}`"
        raise ValueError(why)  # noqa: TRY004 (pydantic would pass a TypeError on)
    return ModelPrices.model_validate(value)


Prices = Mapping[str, Annotated[ModelPrices | Literal["subscription"], BeforeValidator(_read_prices)]]
"""By model (glob); the first that matches counts."""


def find_prices(prices: Prices, model: str) -> ModelPrices | Literal["subscription"] | None:
    for pattern, model_prices in prices.items():
        if fnmatchcase(model, pattern):
            return model_prices
    return None


def describe_prices(prices: Prices, window: Window, model: str) -> tuple[str, str]:
    """Return the prices of a model, whose *window* has them, in a sentence, and where they are from."""
    own_prices = find_prices(prices, model)
    if own_prices == SUBSCRIPTION:
        return "none: tokens only", SUBSCRIPTION
    if window.prices is None:
        return "not known: its money is in no sum", "set `prices` of the upstream"
    origin = "the price list" if own_prices is None else "`prices` of the upstream, else the price list"
    names = ("input", "cached", "written", "output")
    values = (window.prices.input, window.prices.cached, window.prices.fresh, window.prices.output)
    texts = [f"{name} {value:g}" for name, value in zip(names, values, strict=True) if value is not None]
    return ", ".join(texts), origin


BUCKET_URL = re.compile(r"(s3|gs|az)://([^/]+)/?(.*)")
FIELD_NAME = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]*$"
NO_URL = "must begin with https:// or http://, as in https://api.openai.com/v1 or http://localhost:8000"
TEAM_NAME = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$"


def _describe_no_url(url: str) -> str:
    """Quote the URL if it only lacks its scheme: a text of another form may be a key in the wrong line."""
    address = (
        r"(?:localhost|(?:\d{1,3}\.){3}\d{1,3}|[a-z0-9-]{1,30}(?=:)|(?:[a-z0-9-]{1,30}\.){1,5}[a-z]{2,12})(:\d{1,5})?"
    )
    match = re.fullmatch(rf"{address}(?:/[\w./-]{{0,60}})?", url)
    if match is None:
        return NO_URL
    is_own = match[1] or url.startswith("localhost") or url[0].isdigit()
    return f"{url!r} has no scheme: write {'http' if is_own else 'https'}://{url}"


def _split_url(url: str) -> SplitResult:
    """Raise ValueError, which quotes nothing of the URL, if no client can read its host and port."""
    try:
        parts = urlsplit(url)
        _ = parts.port, (parts.hostname or "").encode("idna")
    except ValueError:
        raise ValueError("its host or port cannot be read: write it as http://localhost:8000") from None
    return parts


def _check_http_url(url: str) -> str:
    parts = _split_url(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(NO_URL)
    return url


def _normalize_base_url(url: str) -> str:
    parts = _split_url(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(_describe_no_url(url))
    if parts.username or parts.password:
        raise ValueError("credentials do not belong into a URL: use key")
    if parts.query or parts.fragment:
        raise ValueError("a query does not belong here: use query")
    # People copy it from the example of a request.
    api_path = rf"({'|'.join(ApiPath)}|(?<=/v1)/(?:completions|embeddings|models))$"
    if ending := re.search(api_path, parts.path.rstrip("/")):
        raise ValueError(f"the paths of requests are appended to it: leave out {ending[1]} at its end")
    if not parts.path.strip("/"):
        return url.rstrip("/") + "/v1"
    return url.rstrip("/")


def _check_state_url(value: Secret | str) -> Secret | str:
    if isinstance(value, Secret):
        if not value.value:
            raise ValueError("it is empty or missing, and the shared state cannot be reached without it")
        parse_state_url(value.value)
    elif value:
        url = parse_state_url(value)
        if url.password or url.options.get("sentinel_password"):
            raise ValueError("a secret is named, not written: write env:NAME or file:PATH for a URL with a password")
    return value


def _check_hook_url(url: Secret | str) -> Secret | str:
    text = reveal(url)
    is_unread = isinstance(url, Secret) and not text  # by a command that needs no secrets
    if not is_unread:
        _check_http_url(text)
    return url


def _check_headers(headers: Mapping[str, Secret | str]) -> Mapping[str, Secret | str]:
    secret_headers = ("authorization", "api-key", "x-api-key", "x-goog-api-key", "cookie")
    for name, value in headers.items():
        if not name or not re.fullmatch(FIELD_NAME, name):
            raise ValueError("one of the names is not the name of a header")
        if isinstance(value, str) and name.lower() in secret_headers:
            raise ValueError(f"{name}: a secret is named, not written: write env:NAME or file:PATH")
        if isinstance(value, str) and not is_field_value(value):
            raise ValueError(f"{name}: holds characters that no header can carry")
    return headers


def _check_not_empty(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Pydantic's own rule would also complain about a list with a wrong entry."""
    if not values:
        raise ValueError("there must be at least one")
    return values


def _check_file(path: str | None) -> str | None:
    if path is not None and not isfile(path):  # noqa: PTH113 (a path raises if it is too long, as a pasted key is)
        raise ValueError("there is no such file")
    return path


def _check_certificates(path: str | None) -> str | None:
    if _check_file(path) is not None:
        try:
            ssl.create_default_context(cafile=path)
        except OSError:
            raise ValueError("there are no certificates (PEM) in it") from None
    return path


def _load_certificate(certificate: str | None, key: str | None = None) -> str | None:
    if _check_file(certificate) is not None:
        try:
            ssl.create_default_context().load_cert_chain(str(certificate), key, password="")
        except OSError:
            raise ValueError("no certificate (PEM) with its private key, unlocked, is there") from None
    return certificate


def _find_host_fault(host: str) -> str | None:
    if "/" not in host and host.count(":") != 1:
        return None
    url = host if "//" in host else f"//{host}"
    return f"a host name has no scheme, port or path: write {urlsplit(url).hostname or 'NAME'}"


def _refuse_credential(names: str, example: str) -> AfterValidator:
    """Refuse the header of a key as one that names a team or a person."""
    why = f"is the header of a key, which names {names}: write another, such as {example}"
    return refuse_if(lambda header: why if is_credential(header) else None)


def _check_network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise ValueError("not an address or a network such as 10.0.0.0/8") from None
    return text


ReadableFile = Annotated[str | None, AfterValidator(_check_file)]
TrustedFile = Annotated[str | None, AfterValidator(_check_certificates)]
HttpUrl = Annotated[str, AfterValidator(lambda url: url and _check_http_url(url))]
Headers = Annotated[Mapping[str, MaybeSecret], AfterValidator(_check_headers)]
HostName = Annotated[str, refuse_if(_find_host_fault)]


class Listen(ConfigModel):
    """Address, limits and TLS of the proxy's own server."""

    host: str = "127.0.0.1"
    """Address to listen on. Any address but a loopback one opens the proxy to the network: set up `teams` first."""
    port: int = Field(8800, ge=0, le=65535)
    """TCP port to listen on; 0 picks a free one."""
    workers: int = Field(1, ge=1, le=256)
    """Processes that share the port. Raise it to use more CPU cores; the limits below are for each of them."""
    tls_cert: ReadableFile = None
    """Certificate chain (PEM) to serve HTTPS with."""
    tls_key: ReadableFile = None
    """Private key (PEM) of `tls_cert`. Both are read again when they change."""
    client_ca: TrustedFile = None
    """Certificates (PEM) of authorities: only clients with one of theirs may connect (mutual TLS)."""
    max_body_mib: float = Field(32, gt=0, le=65_536)
    """Largest chat request in MiB, also after decompression; larger ones get a 413."""
    body_silence_seconds: Seconds = Field(60, gt=0)
    """Seconds without a byte after which a request body is refused with a 408."""
    max_in_flight: Amount = Field(0, ge=0)
    """Requests that each worker handles at once before new ones get a 503; 0 is no limit."""
    heartbeat_seconds: Seconds = Field(10, gt=0)
    """Seconds of silence in a stream after which a comment is sent, so that load balancers keep it open. For so long at
    most the beginning of an answer is held back to see whether it is a refusal."""
    drain_seconds: Seconds = Field(30, ge=0)
    """Seconds that open requests may still take after SIGTERM."""

    @model_validator(mode="after")
    def _tls_is_a_pair(self) -> Self:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together: set both or none")
        if self.client_ca is not None and self.tls_cert is None:
            raise ValueError("client_ca needs tls_cert and tls_key: without TLS no client can show a certificate")
        _load_certificate(self.tls_cert, self.tls_key)
        return self


class Upstream(ConfigModel):
    """An API of OpenAI's or Anthropic's form. The first upstream whose `models` match serves a request."""

    name: str = Field("default", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    """Name in logs, metrics and other settings."""
    base_url: Annotated[str, AfterValidator(_normalize_base_url)] = "https://api.openai.com/v1"
    """URL that replaces the client's /v1. `{model}` in it becomes the request's model, as Azure deployments need."""
    models: Annotated[tuple[str, ...], AfterValidator(_check_not_empty)] = ("*",)
    """Models that this upstream serves, as globs."""
    key: SecretReference = None
    """API key, as env:NAME or file:PATH. Without one, the client's own key is forwarded."""
    key_header: Literal["authorization", "api-key", "x-api-key"] = "authorization"
    """Header of the key: `authorization` (bearer token), `api-key` (Azure) or `x-api-key` (Anthropic)."""
    headers: Headers = Field({})
    """Headers to set on every request. Values may be env:NAME or file:PATH; secrets must be."""
    query: Mapping[str, str] = Field({})
    """Query parameters to add to every request."""
    paths: tuple[str, ...] = ()
    """Paths below /v1, as globs, that clients may call with the configured key, besides those for inference."""
    connect_seconds: Seconds = Field(10, gt=0)
    """Seconds to wait for a connection."""
    silence_seconds: Seconds = Field(600, gt=0)
    """Seconds to wait for the next byte. Raise it for models that think long without streaming."""
    retries: int = Field(1, ge=0, le=10)
    """How often a request is tried again if no connection was made. Clients retry refusals by themselves."""
    policy: str = DEFAULT
    """Policy for its chat requests, unless an attachment or a team names another."""
    window: Amount | None = Field(None, gt=0)
    """Context window of its models in tokens, the answer included. Without it the proxy asks, learns or looks it up."""
    prices: Prices = Field({})
    """Dollars per million tokens by model (glob), in place of the price list, such as `{gpt-5*: {discount: 20}}`; or
    `subscription`, if nothing is paid by the token."""
    ca_file: TrustedFile = None
    """Certificates (PEM) to trust instead of the system's."""
    client_cert: Annotated[str | None, AfterValidator(_load_certificate)] = None
    """Client certificate (PEM, with its key) to present."""

    @cached_property
    def holds_secret(self) -> bool:
        return self.key is not None or any(isinstance(value, Secret) for value in self.headers.values())

    def serves(self, model: str) -> bool:
        return any(fnmatchcase(model, pattern) for pattern in self.models)


class State(ConfigModel):
    """State that the proxy keeps between requests and restarts: blocks, usage and windows it has learned."""

    dir: str = Field("./state", min_length=1)
    """Directory for everything that the proxy writes. A relative one is relative to this file; given by a variable or
    an option, or without a file, to the working directory."""
    url: Annotated[MaybeSecret, AfterValidator(_check_state_url)] = ""
    """Redis that replicas share: redis://HOST:6379/0, redis+sentinel://HOST:26379/SERVICE/0
    (rediss: with TLS), as env:NAME if it holds a password."""
    ca_file: TrustedFile = None
    """Certificates (PEM) to trust for rediss://, besides the system's."""
    store: Literal["sqlite", "memory"] = "sqlite"
    """Without `url`: `sqlite`, a file that workers share and restarts keep, or `memory`."""
    mib: Mib = Field(256, ge=1)
    """MiB of blocks to keep; the least recently used are dropped first."""
    days: Days = Field(7, gt=0)
    """Days to keep a block after its last use."""


class Transcripts(ConfigModel):
    """Copies of conversations as clients sent them, with the answers, saved before anything is shortened."""

    keep: Literal["lossy", "all", "off"] = "lossy"
    """`lossy` saves conversations that are shortened, or would be if their policy did not only observe; `all` every
    conversation, `off` none."""
    dir: str | None = None
    """Directory, or s3://, gs:// or az:// with bucket/prefix. Without it, `originals` in `state.dir`."""
    endpoint: HttpUrl = ""
    """URL of the object store. Without it, AWS_ENDPOINT_URL or the vendor's own."""
    region: str = ""
    """Region of the bucket (s3://). Without it, AWS_REGION or us-east-1."""
    key: SecretReference = None
    """Access key (Azure: account name) as env:NAME. Without it, AWS_ACCESS_KEY_ID or the role of the machine."""
    secret: SecretReference = None
    """Secret of `key` (Google: the JSON of a service account) as env:NAME."""
    token: SecretReference = None
    """Session token of temporary S3 credentials as env:NAME. Without it, AWS_SESSION_TOKEN."""
    ca_file: TrustedFile = None
    """Certificates (PEM) to trust for the object store, besides the system's."""
    upload_seconds: Seconds = Field(5, gt=0)
    """Seconds between two uploads of what is new to the object store."""
    spool_mib: Mib = Field(1024, ge=1)
    """MiB that may wait on the local disk while the object store is unreachable."""
    required: bool = False
    """Refuse a request that is shortened with a 503 while its transcript cannot be saved."""
    redact: bool = True
    """Remove secrets, such as API keys, from transcripts, from what blocks hold in place of messages, and from the
    names of users and sessions in the activity log."""
    patterns: tuple[Annotated[str, refuse_if(redaction.fault)], ...] = ()
    """Regular expressions of further secrets to remove, each with three plain characters first: `corp-[0-9a-f]{32}`.
    Each may hold one repetition (* + {n,}), and match in 100 ways (each x? doubles them, and a|b|c has three); without
    one, in 1,000."""
    days: Days = Field(30, ge=0)
    """Days to keep a conversation after its last message; 0 is for ever."""
    mib: Mib = Field(4096, ge=0)
    """MiB to keep in all; the oldest are removed first; 0 is no limit."""
    fsync: Literal["never", "always"] = "never"
    """`always`: data counts as written only when it has reached the disk; `never` leaves that to the system."""

    @property
    def is_remote(self) -> bool:
        return (self.dir or "").startswith(("s3://", "gs://", "az://"))

    @model_validator(mode="after")
    def _check_object_store(self) -> Self:
        if self.is_remote and not BUCKET_URL.fullmatch(self.dir or ""):
            raise ValueError("dir: not a place in an object store: write s3://bucket/prefix, gs://… or az://…")
        if self.is_remote and self.key is not None and self.secret is None:
            raise ValueError("`key` is set without `secret`: set both, or neither to use a role's credentials")
        return self


class LogConfig(ConfigModel):
    """The log on standard output. It never holds bodies, headers or queries of requests."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level to write: `debug`, `info`, `warning` or `error`."""
    format: Literal["auto", "json", "text"] = "auto"
    """`text` for people, `json` for machines; `auto` is text on a terminal."""
    color: bool = True
    """Colour the severity of text lines on a terminal. The variable `NO_COLOR` turns it off."""


class OtelConfig(ConfigModel):
    """OpenTelemetry: spans sent to a collector by OTLP over HTTP. Needs the extra `otel`."""

    endpoint: HttpUrl = ""
    """URL of the collector's OTLP/HTTP receiver. Each request, call of a model and summary is a span. Empty: nothing is
    sent."""
    headers: Headers = Field({})
    """Headers for the collector; secrets as env:NAME or file:PATH."""
    service: str = "compaction-proxy"
    """Name of this service (`service.name`)."""
    sample: Percent = ALL_PERCENT
    """Percent of the traces begun here that are sent; below 1 with its sign, as 0.5%."""


class Access(ConfigModel):
    """Access to the proxy: with `teams`, only for clients with a team key; without, for all that reach it."""

    team_header: Annotated[str, Field(pattern=FIELD_NAME), _refuse_credential("no team", "x-team")] = ""
    """Header in which a gateway in front of the proxy names the team."""
    trusted: tuple[Annotated[str, AfterValidator(_check_network)], ...] = ("127.0.0.0/8", "::1/128")
    """Networks whose `team_header` is believed, and whose `x-forwarded-for` names the client in logs."""
    hosts: tuple[HostName, ...] = ()
    """Public names of the proxy, and of web sites whose pages may call it. Needed only with an upstream's key and
    without teams."""
    tenant_headers: tuple[Annotated[str, Field(pattern=FIELD_NAME, min_length=1)], ...] = ()
    """Headers that tell clients apart, such as x-forwarded-user, besides credentials."""


class Team(ConfigModel):
    """A group of people with keys of their own (`compaction-proxy keys create --team NAME`)."""

    policy: str = ""
    """Policy for their requests if no attachment matches. Empty: the upstream's."""
    upstream: str = ""
    """Upstream for all their requests. Empty: the first that serves the model."""
    key: SecretReference = None
    """API key for that upstream, as env:NAME or file:PATH. Without one, the upstream's own."""


class AdminConfig(ConfigModel):
    """The admin pages below /admin/ and their API."""

    enabled: bool = True
    """Serve them."""
    key: Annotated[SecretReference, AfterValidator(check_strength)] = None
    """Key to open them, as env:NAME or file:PATH. Without one, a key is made at the first start and kept in `admin.key`
    in the state directory."""
    hosts: tuple[HostName, ...] = ()
    """Host names by which browsers reach them, besides localhost and the address of `listen.host`."""
    user_header: Annotated[str, Field(pattern=FIELD_NAME), _refuse_credential("nobody", "x-auth-user")] = ""
    """Header in which a proxy with single sign-on names the person, for the audit log. It counts only beside the admin
    key, so that proxy has to add both and replace the header that browsers send."""


class HookConfig(ConfigModel):
    """A URL that receives events as JSON, without any text of conversations."""

    events: tuple[
        Literal[
            "compaction-started",
            "original-saved",
            "compaction-ended",
            "summary-ended",
            "refused-for-size",
        ],
        ...,
    ] = ("compaction-ended",)
    """Events to send: `compaction-started`, `original-saved`, `compaction-ended`, `summary-ended`,
    `refused-for-size`."""
    url: Annotated[MaybeSecret, AfterValidator(_check_hook_url)]
    """URL to post the event to, as env:NAME if it holds a secret."""
    seconds: Seconds = Field(10.0, gt=0)
    """Longest time of the call in seconds."""


class Config(ConfigModel):
    """Everything that can be set."""

    listen: Listen = Listen()
    upstreams: Annotated[tuple[Upstream, ...], AfterValidator(_check_not_empty)] = (Upstream(),)
    policies: Mapping[str, Policy] = {DEFAULT: Policy()}
    """Policies by name, besides the shipped ones (`compaction-proxy explain`)."""
    attachments: tuple[Attachment, ...] = ()
    """Which policy applies to which requests. The first attachment that matches decides."""
    access: Access = Access()
    teams: Mapping[Annotated[str, Field(pattern=TEAM_NAME)], Team] = {}
    """Teams by name. As soon as there is one, clients need a team key."""
    admin: AdminConfig = AdminConfig()
    state: State = State()
    transcripts: Transcripts = Transcripts()
    log: LogConfig = LogConfig()
    otel: OtelConfig = OtelConfig()
    hooks: tuple[HookConfig, ...] = ()
    """URLs to call when something happens."""

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        faults = [*self._check_inheritance()]
        upstreams = {upstream.name: upstream for upstream in self.upstreams}
        if len(upstreams) < len(self.upstreams):
            faults.append("upstreams: two of them have the same name")
        names: dict[str, Mapping[str, object]] = {"policy": self.all_policies, "upstream": upstreams}
        for path, kind, name in self._list_references():
            if name not in names[kind]:
                advice = REMOVED_POLICIES.get(name, "") if kind == "policy" else ""
                advice = advice or suggest(name, names[kind])
                faults.append(f"{path}.{kind}: there is no {kind} {name!r}{advice}")
        for name, team in self.teams.items():
            if team.key and not team.upstream:
                faults.append(f"teams.{name}.key: a key is for one upstream: say which in teams.{name}.upstream")
        if not faults:
            faults += self._check_policies_without_text()
        if faults:
            raise ValueError("\n".join(faults))
        return self

    def _check_policies_without_text(self) -> Iterator[str]:
        for name, own in self.policies.items():
            policy = self.policy(name)
            if policy.store_text:
                continue
            if own.transcripts and "transcripts" in own.model_fields_set:
                advice = "leave it out, or write `store_text: true`"
                yield f"policies.{name}.transcripts: true contradicts `store_text: false`: {advice}"
            if policy.without_originals == "never":
                why = "`never` waits for originals, and `store_text: false` saves none"
                yield f"policies.{name}.without_originals: {why}: write `always`"

    def _check_inheritance(self) -> Iterator[str]:
        for name in self.policies:
            try:
                self.lineage(name)
            except KeyError as missing:
                advice = REMOVED_POLICIES.get(missing.args[0], "")
                yield f"policies.{name}: inherits from {missing}, and there is no such policy{advice}"
            except ValueError as circle:
                yield f"policies.{name}: {circle}"

    def _list_references(self) -> Iterator[tuple[str, Literal["policy", "upstream"], str]]:
        for number, upstream in enumerate(self.upstreams):
            yield f"upstreams.{number}", "policy", upstream.policy
        for name, team in self.teams.items():
            if team.policy:
                yield f"teams.{name}", "policy", team.policy
            if team.upstream:
                yield f"teams.{name}", "upstream", team.upstream
        for number, attachment in enumerate(self.attachments):
            yield f"attachments.{number}", "policy", attachment.policy
        for name, policy in self.policies.items():
            if policy.summary.upstream:
                yield f"policies.{name}.summary", "upstream", policy.summary.upstream

    def with_start_settings_of(self, started: "Config") -> tuple["Config", tuple[str, ...]]:
        """Keep the values of *started* for settings that are read only at the start. Return which of them wait."""
        groups: dict[str, Any] = {}
        waiting = []
        # The content of certificates is read again when it changes.
        read_at_start = (
            "state", "transcripts", "log", "hooks",
            "listen.host", "listen.port", "listen.workers", "listen.tls_cert", "listen.tls_key", "listen.client_ca",
            "otel.endpoint", "otel.headers", "otel.service",
        )  # fmt: skip
        for path in read_at_start:
            group, _, setting = path.partition(".")
            new_value, value = groups.get(group, getattr(self, group)), getattr(started, group)
            if setting:
                value = new_value.model_copy(update={setting: getattr(value, setting)})
            if value != new_value:
                waiting.append(path)
            groups[group] = value
        # The pages show what the activity log has recorded, which it does only if they were enabled at the start.
        if self.admin.enabled and not started.admin.enabled:
            groups["admin"] = self.admin.model_copy(update={"enabled": False})
            waiting.append("admin.enabled")
        return self.model_copy(update=groups), tuple(waiting)

    @property
    def originals(self) -> Path:
        if self.transcripts.is_remote:
            return Path(self.state.dir) / "spool"
        return Path(self.transcripts.dir or Path(self.state.dir) / "originals")

    @property
    def all_policies(self) -> Mapping[str, Policy]:
        return {DEFAULT: Policy(), **shipped_policies(), **self.policies}

    def policy(self, name: str, mode: str = "") -> Policy:
        policies, policy = self.all_policies, Policy()
        for ancestor in reversed(self.lineage(name)):
            policy = policy.override(policies[ancestor])
        if not policy.store_text:
            policy = policy.model_copy(update={"transcripts": False})
        return policy.model_copy(update={"mode": mode}) if mode else policy

    def lineage(self, name: str) -> list[str]:
        """Return a policy and its ancestors, by name. Raise KeyError or ValueError if they do not end in `default`."""
        policies, line = self.all_policies, [name]
        while line[-1] != DEFAULT:
            parent = policies[line[-1]].inherit
            if parent in line:
                raise ValueError(f"inherits from itself: {' -> '.join([*line, parent])}")
            line.append(parent)
        return line

    def knows_team(self, name: str) -> bool:
        """If a gateway names teams and none are configured, every valid name may call."""
        if not self.teams and self.access.team_header:
            return re.fullmatch(TEAM_NAME, name) is not None
        return name in self.teams

    def choices(self, occasion: Occasion) -> tuple[RolloutChoice, ...]:
        """Return the policies that share the conversations of an occasion, each up to its percentage of them."""
        choices = []
        rollout = 0.0
        for number, attachment in enumerate(self.attachments):
            if attachment.rollout > rollout and attachment.fits(occasion):
                rollout = attachment.rollout
                place = ("attachments", number)
                choices.append(RolloutChoice(attachment.policy, attachment.mode, rollout, place, attachment.holdout))
                if rollout == ALL_PERCENT:
                    return tuple(choices)
        team = self.teams.get(occasion.team)
        if team is not None and team.policy:
            return (*choices, RolloutChoice(team.policy, place=("teams", occasion.team, "policy")))
        number = [upstream.name for upstream in self.upstreams].index(occasion.upstream)
        return (*choices, RolloutChoice(self.upstreams[number].policy, place=("upstreams", number, "policy")))

    def list_policies_of_team(self, name: str) -> list[str]:
        """Return the policies that may apply to requests of a team in `teams`."""
        policies = []
        for attachment in self.attachments:
            if fnmatchcase(name, attachment.team):
                policies.append(attachment.policy)
            if attachment.covers(Attachment(team=name)):
                return policies
        team = self.teams[name]
        if team.policy:
            return [*policies, team.policy]
        return policies + [upstream.policy for upstream in self.upstreams if team.upstream in ("", upstream.name)]

    def upstream_for(self, model: str | None, team: str = "") -> Upstream | None:
        own = self.teams[team].upstream if team in self.teams else ""
        for upstream in self.upstreams:
            if own and upstream.name == own:
                return upstream
            if not own and (model is None or upstream.serves(model)):
                return upstream
        return None
