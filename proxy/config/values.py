"""Types of settings: the model of a group, secrets that are named and not written, and the URL of a shared state.

The parser of that URL is here and not in the store, because a configuration is checked also where redis-py is not
installed.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

SIMILARITY_MIN_RATIO = 0.6
FIELD_VALUE = re.compile(r"[\t\x20-\x7e]*")
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Many API keys are names of variables, too (`hf_...`): one in capitals is no key.
PLAIN_VARIABLE_NAME = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
SHORTEST_KEY_CHARS = 16
# Placeholders that people forget to replace, with anything around them.
WEAK = (
    "password", "changeme", "change-me", "secret", "admin", "letmein", "12345", "abcdef", "qwerty", "asdf", "example",
    "default", "compaction", "replace",
)  # fmt: skip
FORM = "not a URL of the form redis://HOST:6379/0, redis+sentinel://HOST:26379/SERVICE/0 or redis+cluster://HOST:6379"
_SCHEME = re.compile(r"redis(s?)(?:\+(sentinel|cluster))?")
_NODE = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+)(?::(\d{1,5}))?")
_PATH = {
    "standalone": re.compile(r"/?()(\d*)"),
    "sentinel": re.compile(r"/([^/]+)/?(\d*)"),
    "cluster": re.compile(r"/?()(0?)"),
}


class ExactModel(BaseModel):
    """A model that takes no boolean for a number and no number for a boolean: pydantic reads `true` as 1."""

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_conversion(cls, value: object, info: ValidationInfo) -> object:
        kinds = _list_kinds(cls.model_fields[info.field_name or ""].annotation)
        for single in value if isinstance(value, list | tuple) else (value,):
            if isinstance(single, bool) and bool not in kinds and kinds & {int, float}:
                raise PydanticCustomError("float_type" if float in kinds else "int_type", "must be a number")
            if isinstance(single, int | float) and not isinstance(single, bool) and bool in kinds:
                raise PydanticCustomError("bool_type", "must be true or false")
        return value


def _list_kinds(annotation: Any) -> set[Any]:  # noqa: ANN401 (any type a setting has)
    """The plain types that an annotation is made of."""
    if not (parts := get_args(annotation)):
        return {annotation}
    return set().union(*map(_list_kinds, parts[:1] if get_origin(annotation) is Annotated else parts))


class ConfigModel(ExactModel):
    """A group of settings: frozen, and closed to settings that it does not have.

    The docstring below a setting is its sentence in proxy.yaml. Pydantic reads it from the source file; where that is
    missing, `check --defaults` prints the settings without their sentences.

    What can only mean one thing is accepted: `INFO`, one text for a list, nothing for a group. A boolean is no number,
    and a number no boolean: `port: true` is refused.
    """

    @model_validator(mode="before")
    @classmethod
    def _read_plain_spellings(cls, values: Any) -> Any:  # noqa: ANN401 (whatever a file holds)
        if not isinstance(values, Mapping):
            return {} if values is None else values
        return {
            name: _read_spelling(value, cls.model_fields[name]) if name in cls.model_fields else value
            for name, value in values.items()
            if not (value is None and name in cls.model_fields and _is_group(cls.model_fields[name].annotation))
        }

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )


def _is_group(annotation: Any) -> bool:  # noqa: ANN401 (any type a setting has)
    return isinstance(annotation, type) and issubclass(annotation, ConfigModel)


def _read_spelling(value: object, field: FieldInfo) -> object:
    """The value that another spelling of it means; one that means nothing plainly stays, and is refused."""
    if isinstance(value, str) and get_origin(field.annotation) is tuple:
        return [value]
    if isinstance(value, str) and get_origin(field.annotation) is Literal:
        return next((choice for choice in get_args(field.annotation) if choice == value.lower()), value)
    return value


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret and the reference to it. As text it is the reference."""

    reference: str
    value: str

    def __repr__(self) -> str:
        return self.reference

    __str__ = __repr__


class WithoutSecrets(dict[str, str]):
    """Environment of a command that uses no secrets: one that is missing is no fault."""


def _suggest_reference(text: str) -> str:
    """How to name the secret. The name of a variable is quoted, where it plainly is one."""
    named = re.fullmatch(rf"\$\{{?({PLAIN_VARIABLE_NAME.pattern})\}}?", text)
    return f"write env:{named[1]}" if named else "write env:NAME for a variable, or file:PATH"


def _read_reference(reference: object, info: ValidationInfo) -> Secret | None:
    if reference is None or isinstance(reference, Secret):
        return reference
    kind, _, name = str(reference).partition(":")
    # Of a Secret in Kubernetes there are variables of other names: one that exists is no key that was pasted here.
    if kind == "env" and not VARIABLE_NAME.fullmatch(name) and name not in (info.context or {}):
        raise ValueError(
            "`env:` is not followed by the name of a variable (letters, digits and _): write the secret itself into a "
            "variable, and the name of the variable here"
        )
    if kind == "env":
        value = (info.context or {}).get(name, "")
    elif kind == "file":
        value = _read_secret(name)
    else:
        raise ValueError(f"a secret is named, not written: {_suggest_reference(str(reference))}")
    where = _describe_source(kind, name)
    if not value.strip() and isinstance(info.context, WithoutSecrets):
        return Secret(str(reference), "")
    if not value.strip():
        raise ValueError(f"{where} is empty or missing")
    if not FIELD_VALUE.fullmatch(value.strip()):
        raise ValueError(f"{where} holds characters that no header can carry")
    return Secret(str(reference), value.strip())


def _describe_source(kind: str, name: str) -> str:
    """The variable or file of a secret. A name is quoted only where it plainly is one: it may be the secret itself."""
    if kind == "env":
        return f"variable {name}" if PLAIN_VARIABLE_NAME.fullmatch(name) else "the variable that it names"
    return f"file {name}" if name.startswith(("/", "./", "../")) else "the file that it names"


def _read_secret(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):  # ValueError: a path that no system has, or bytes that are no text
        return ""


def _read_if_reference(value: object, info: ValidationInfo) -> object:
    named = isinstance(value, str) and value.startswith(("env:", "file:"))
    return _read_reference(value, info) if named else value


def _show_reference(value: Secret | str | None) -> str | None:
    return None if value is None else str(value)


def check_strength(secret: Secret | None) -> Secret | None:
    """Check that a key cannot be guessed: it is long, varied, and no word from a manual."""
    if secret is None or not secret.value:
        return secret
    plain = secret.value.lower()
    if len(plain) < SHORTEST_KEY_CHARS or len(set(plain)) < SHORTEST_KEY_CHARS // 2:
        raise ValueError(f"too weak: it needs {SHORTEST_KEY_CHARS} characters or more that were drawn at random")
    if (word := next((word for word in WEAK if word in plain), None)) is not None:
        raise ValueError(f"too weak: it contains the common word {word!r}; draw it at random (openssl rand -hex 24)")
    return secret


SecretReference = Annotated[
    Secret | None,
    BeforeValidator(_read_reference),
    PlainSerializer(_show_reference),
    WithJsonSchema({"type": ["string", "null"], "pattern": "^(env|file):."}),
]
MaybeSecret = Annotated[
    Secret | str,
    BeforeValidator(_read_if_reference),
    PlainSerializer(_show_reference),
    WithJsonSchema({"type": "string"}),
]

# Bounds far above all that is meant: clocks, stores and JSON of other programs fail at what is larger, or is infinite.
SECONDS_MAX = 31_536_000
DAYS_MAX = 3_650
MIB_MAX = 1_000_000_000
BODY_MIB_MAX = 65_536
AMOUNT_MAX = 10**12

Seconds = Annotated[float, Field(le=SECONDS_MAX)]
Days = Annotated[float, Field(le=DAYS_MAX)]
Mib = Annotated[int, Field(le=MIB_MAX)]
Amount = Annotated[int, Field(le=AMOUNT_MAX)]

ALL_PERCENT = 100.0
_PERCENT = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*")


def _read_percent(value: object) -> object:
    """Read `5` and `0.1%`. Refuse a plain `0.1`, which may be meant as the share that it is in `trigger: 0.1`."""
    signed = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if signed is not None:
        return float(signed[1])
    try:
        number = float(value) if isinstance(value, str | int | float) else 0.0
    except ValueError:
        return value  # refused as no number
    if 0 < number < 1:
        raise ValueError(
            f"is a percentage: write {number * 100:g} for {number * 100:g} %, or {number:g}% for {number:g} %"
        )
    return value


def _write_percent(value: float) -> float | str:
    return f"{value:g}%" if 0 < value < 1 else value


Percent = Annotated[
    float,
    Field(ge=0, le=ALL_PERCENT),
    BeforeValidator(_read_percent),
    PlainSerializer(_write_percent, when_used="json"),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0, "maximum": 100}, {"type": "string", "pattern": "%\\s*$"}]}
    ),
]
"""A percentage, and no share: between 0 and 1 it is written with its sign."""

REDIS_PORT, SENTINEL_PORT = 6379, 26379

Topology = Literal["standalone", "sentinel", "cluster"]
Option = str | int | float | bool


_Positive = Annotated[Seconds, Field(gt=0)]
OPTIONS: Mapping[str, Any] = {
    "client_name": str,
    "db": int,
    "health_check_interval": Annotated[int, Field(le=SECONDS_MAX)],
    "max_connections": Annotated[Amount, Field(gt=0)],
    "sentinel_password": str,
    "sentinel_username": str,
    "socket_connect_timeout": _Positive,
    "socket_keepalive": bool,
    "socket_timeout": _Positive,
    "ssl_ca_certs": str,
    "ssl_cert_reqs": Literal["none", "optional", "required"],
    "ssl_certfile": str,
    "ssl_check_hostname": bool,
    "ssl_keyfile": str,
}
"""Options by the names that redis-py gives them, and their types."""


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
        scheme = f"redis{'s' * self.tls}" + ("" if self.topology == "standalone" else f"+{self.topology}")
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
    except ValueError as fault:
        raise ValueError(fault.args[0] if isinstance(fault, _BadOption) else FORM) from None


class _BadOption(ValueError):
    """An option of a URL cannot be used."""


def _parse(parts: SplitResult) -> StateUrl:
    scheme = _SCHEME.fullmatch(parts.scheme)
    if scheme is None:
        raise ValueError(FORM)
    topology: Topology = scheme[2] or "standalone"  # type: ignore[assignment]
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
        topology, bool(scheme[1]), nodes, path[1], database, unquote(user), unquote(password), MappingProxyType(options)
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
            options[name] = TypeAdapter(OPTIONS[name]).validate_python(text)
        except ValidationError as invalid:
            too_small = invalid.errors()[0]["type"] == "greater_than"
            why = f"{name} must be greater than 0" if too_small else f"the value of {name} cannot be used"
            raise _BadOption(why) from None
    return options


def suggest(wrong: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, where one of the known names is like the wrong one; else nothing."""
    close = get_close_matches(wrong, list(known), n=1, cutoff=SIMILARITY_MIN_RATIO)
    return f"; did you mean {close[0]!r}?" if close else ""


def refuse_if(find_fault: Callable[[str], str | None]) -> AfterValidator:
    """A validator that refuses a text where this function says why."""

    def check(text: str) -> str:
        if why := find_fault(text):
            raise ValueError(why)
        return text

    return AfterValidator(check)
