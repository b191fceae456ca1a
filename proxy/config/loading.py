"""Loading: file, environment and command line become one frozen configuration, or a list of all its faults.

1. Read the file: its values and the line of each (`faults.read_file`).
2. Set over them, weakest first: `OPENAI_UPSTREAM`, `COMPACTION_PROXY_...` variables, options of the command line.
   `Loaded.origins` remembers who set each value. If one of these names another server, the credentials that a weaker
   one set for the former server are left out.
3. Validate. Each fault gets the origin of its value. Contradictions are reported once every setting is valid by itself.
4. Folders that the file names are relative to the file: every command finds those of the running proxy.

`find_changes` tells two configurations apart by names of settings and versions of policies, but by no values.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from os.path import isdir
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from pydantic import ValidationError

from proxy.config.faults import (
    Fault,
    FileContent,
    InvalidConfig,
    Place,
    describe_errors,
    parse_place,
    parse_variable,
    read_file,
)
from proxy.config.policies import shipped_policies
from proxy.config.settings import BUCKET_URL, Config, Upstream
from proxy.config.values import ConfigModel

_EMPTY_FILE = "holds no setting: the defaults are in force, with no teams, unless variables or options say otherwise"
_DEFAULT_URL = Upstream.model_fields["base_url"].default


class Loaded(Struct, frozen=True):
    config: Config
    origins: Mapping[Place, str]
    has_file_settings: bool = False
    warnings: Sequence[tuple[str, str]] = ()
    """Paths and messages: each setting that is left out, or that the file is empty."""

    def origin(self, *path: str | int) -> str:
        return _find_origin(self.origins, path)


def load(
    file: Path | None,
    environ: Mapping[str, str],
    options: Mapping[Place, object] | None = None,
) -> Loaded:
    """Raise InvalidConfig with every fault. *options* are those of the command line."""
    content = read_file(file) if file is not None else FileContent(Path())
    faults = content.faults
    has_file_settings = bool(content.values)
    if file is not None and not has_file_settings:
        content.warnings.append((str(file), _EMPTY_FILE))
    upstream_url = environ.get("OPENAI_UPSTREAM")
    if upstream_url is not None and _names_no_upstream(content.values.get("upstreams")):
        _override(content, [(("upstreams", 0, "base_url"), upstream_url, "OPENAI_UPSTREAM")])
    prefix = "COMPACTION_PROXY_"
    variables = []
    # In order, because `UPSTREAMS__1` needs the entry that `UPSTREAMS__0` makes.
    for name in sorted(environ):
        if name.startswith(prefix):
            place = parse_place(name.removeprefix(prefix).lower(), "__")
            variables.append((place, parse_variable(environ[name]), name))
    _override(content, variables)
    _override(content, [(place, value, "command line") for place, value in (options or {}).items()])
    config = Config.model_construct()
    try:
        config = Config.model_validate(content.values, context=environ)
    except ValidationError as invalid:
        for place, message in describe_errors(invalid, Config):
            origin = _find_origin(content.origins, place)
            if origin == "default":
                origins_below = (below for path, below in content.origins.items() if path[: len(place)] == place)
                origin = next(origins_below, str(file or "configuration"))
            faults.append(Fault(".".join(map(str, place)), origin, message))
    if file is not None and not faults:
        config = _place_folders(config, content, file)
    if faults:
        # Faults are reported in the order of lines, then variables, then options.
        order = [*content.origins.values(), *(fault.origin for fault in faults)]
        raise InvalidConfig(sorted(faults, key=lambda fault: order.index(fault.origin)))
    return Loaded(config, content.origins, has_file_settings, content.warnings)


def _place_folders(config: Config, content: FileContent, file: Path) -> Config:
    """Return the configuration with its folders relative to the file, unless a variable or an option names them."""
    parent = Path() if file.is_relative_to("/dev") else file.absolute().parent  # /dev/stdin has no folder
    groups: dict[str, ConfigModel] = {}
    for name, group, setting in (
        ("state", config.state, config.state.dir),
        ("transcripts", config.transcripts, config.transcripts.dir),
    ):
        origin = _find_origin(content.origins, (name, "dir"))
        is_of_file = "dir" not in group.model_fields_set or origin.startswith(f"{file}:")
        if not setting or not is_of_file or BUCKET_URL.match(setting):
            continue
        folder = parent / setting
        # Up to version 0.3 it was relative to the working directory. Without the old state, no team key is valid.
        former_folder = Path(setting).absolute()
        if isdir(former_folder) and not folder.exists():  # noqa: PTH112 (a path raises if it is too long)
            why = (
                f"is relative to this file now, and there is no {folder}: move {former_folder} there, or write its "
                "whole path here; to begin without it, make the new folder"
            )
            content.faults.append(Fault(f"{name}.dir", str(file), why))
        groups[name] = group.model_copy(update={"dir": str(folder)})
    return config.model_copy(update=groups)


# The variable only fills in what the file leaves open: an upstream that is the OpenAI API, without a key.
def _names_no_upstream(upstreams: object) -> bool:
    match upstreams:
        case None | []:
            return True
        case [{**only}]:
            return only.get("base_url", _DEFAULT_URL) == _DEFAULT_URL and not only.get("key")
        case _:
            return False


def _override(content: FileContent, values: Sequence[tuple[Place, object, str]]) -> None:
    """Set the values of one source. Credentials of a weaker one go if these name another server than theirs."""
    earlier_servers = {place: server for place, server, _ in _list_credentials(content.values)}
    for path, value, origin in values:
        _set(content, path, value, origin)
    own_origins = {origin for _, _, origin in values}
    for place, server, addresses in list(_list_credentials(content.values)):
        parts = zip(earlier_servers.get(place, server), server, strict=False)
        if all(earlier_part in (None, part) for earlier_part, part in parts):
            continue
        origins = [_find_origin(content.origins, address) for address in addresses]
        who = next((origin for origin in origins if origin in own_origins), origins[0])
        who = "the command line" if who == "command line" else who
        _leave_out(content, place, own_origins, f"left out: {who} names another server than the one it is for")


Server = tuple[str | int | None, ...]
"""The parts of an address that tell servers apart, such as host and port. None is a part that nothing names."""


def _list_credentials(values: Mapping[str, Any]) -> Iterator[tuple[Place, Server, list[Place]]]:
    """Yield each setting that may hold credentials, the server they are for, and the settings that name it."""
    addresses: dict[str, tuple[Server, Place]] = {}
    # If there are no upstreams, the default is one.
    for number, upstream in _list_groups(values.get("upstreams") or [{}]):
        server = _find_server(upstream.get("base_url", _DEFAULT_URL))
        address: Place = ("upstreams", number, "base_url")
        addresses[str(upstream.get("name", "default"))] = (server, address)
        for setting in ("key", "headers", "query"):
            yield ("upstreams", number, setting), server, [address]
    for name, team in _list_groups(values.get("teams")):
        if str(team.get("upstream")) in addresses:
            server, address = addresses[str(team["upstream"])]
            yield ("teams", name, "key"), server, [address, ("teams", name, "upstream")]
    groups = dict(_list_groups(values))
    otel, transcripts = groups.get("otel", {}), groups.get("transcripts", {})
    if endpoint := otel.get("endpoint"):
        yield ("otel", "headers"), _find_server(endpoint), [("otel", "endpoint")]
    if bucket := BUCKET_URL.match(str(transcripts.get("dir"))):
        endpoint = transcripts.get("endpoint")
        server = (bucket[1], *(_find_server(endpoint) if endpoint else (None,)))
        for setting in ("key", "secret", "token"):
            yield ("transcripts", setting), server, [("transcripts", "endpoint"), ("transcripts", "dir")]


def _list_groups(values: object) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield the entries of a list or mapping that are groups of settings. Others are reported as faults later."""
    entries: Iterable[tuple[Any, object]] = ()
    if isinstance(values, list):
        entries = enumerate(values)
    elif isinstance(values, dict):
        entries = values.items()
    for name, group in entries:
        if isinstance(group, dict):
            yield name, group


def _leave_out(content: FileContent, place: Place, own_origins: Container[str], why: str) -> None:
    """Remove a setting, or the entries of a mapping, but for those that the source sets itself."""
    value: Any = content.values
    for step in place[:-1]:
        value = value[step]
    value = value.get(place[-1])
    entries = [(*place, key) for key in value] if isinstance(value, dict) else [place]
    own_entries = [entry for entry in entries if _find_origin(content.origins, entry) in own_origins]
    if not value or own_entries == entries:
        return
    own_values = [(entry, value[entry[-1]], _find_origin(content.origins, entry)) for entry in own_entries]
    _set(content, place, {} if isinstance(value, dict) else None, why)
    for entry, own_value, origin in own_values:
        _set(content, entry, own_value, origin)
    content.warnings.append((".".join(map(str, place)), f"is {why}"))


def _find_server(url: object) -> Server:
    try:
        parts = urlsplit(str(url))
        return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:  # reported as a fault of the setting
        return (str(url),)


def _set(content: FileContent, path: Place, value: object, origin: str) -> None:
    """Set a value over those of the file, and note a fault if there is no such place."""
    group: Any = content.values
    for step, next_step in pairwise((*path, None)):
        missing: object = [] if isinstance(next_step, int) else {}
        why = ""
        if isinstance(group, dict) and isinstance(step, str):
            group.setdefault(step, missing)
        elif not isinstance(group, list) or not isinstance(step, int):
            why = "there is no such setting"
        elif step > len(group):
            why = f"there is no entry {step - 1} before it"
        elif step == len(group):
            group.append(missing)
        if why:
            content.faults.append(Fault(".".join(map(str, path)), origin, why))
            return
        if next_step is not None:
            group = group[step]
    group[path[-1]] = value
    # A group is replaced as a whole, so the origins of its former settings go.
    for place in list(content.origins):
        if place[: len(path)] == path:
            del content.origins[place]
    content.origins[path] = origin


def _find_origin(origins: Mapping[Place, str], path: Place) -> str:
    for stop in range(len(path), 0, -1):
        if path[:stop] in origins:
            return origins[path[:stop]]
    return "default"


def find_origins(loaded_config: Loaded, policy: str) -> Iterator[tuple[tuple[str, ...], Any, str]]:
    values = loaded_config.config.policy(policy)
    for field, value in values.model_dump(mode="json", exclude={"inherit"}).items():
        if not isinstance(value, dict):
            setting = "store_text" if field == "transcripts" and not values.store_text else field
            yield (field,), value, _describe_setter(loaded_config, policy, (setting,))
            continue
        for part, part_value in value.items():
            yield (field, part), part_value, _describe_setter(loaded_config, policy, (field, part))


def _describe_setter(loaded_config: Loaded, policy: str, path: tuple[str, ...]) -> str:
    for ancestor in loaded_config.config.lineage(policy):
        if not _sets(loaded_config.config.all_policies.get(ancestor), path):
            continue
        if ancestor in loaded_config.config.policies:
            return f"{loaded_config.origin('policies', ancestor, *path)} (policy {ancestor})"
        if ancestor in shipped_policies():
            return f"shipped policy {ancestor}"
    return "default"


def _sets(group: Any, path: tuple[str, ...]) -> bool:  # noqa: ANN401 (any value of a policy)
    for step in path:
        if isinstance(group, Mapping):
            group = group.get(step)
        elif isinstance(group, ConfigModel) and step in group.model_fields_set:
            group = getattr(group, step)
        else:
            return False
    return group is not None


class Changes(Struct, frozen=True):
    settings: tuple[str, ...]
    """The paths of changed settings, such as `upstreams.0.key`."""
    policies: tuple[str, ...]
    """Changed policies, such as `default 1a2b3c4d -> 5e6f7a8b`. `none` is the version of a missing policy."""


# Names alone, because the result is logged and a value may be a secret.
def find_changes(old: Config, new: Config) -> Changes:
    old_versions, new_versions = (
        {name: config.policy(name).version for name in config.all_policies} for config in (old, new)
    )
    versions = []
    for name in sorted({*old_versions, *new_versions}):
        before, after = old_versions.get(name, "none"), new_versions.get(name, "none")
        if before != after:
            versions.append(f"{name} {before} -> {after}")
    return Changes(tuple(_list_changed(old, new, "")), tuple(versions))


def _list_changed(old: object, new: object, place: str) -> Iterator[str]:
    if old == new:
        return
    parts, new_parts = _list_parts(old), _list_parts(new)
    if not parts or not new_parts:
        yield place.removeprefix(".")
        return
    for name in dict.fromkeys([*parts, *new_parts]):
        yield from _list_changed(parts.get(name), new_parts.get(name), f"{place}.{name}")


def _list_parts(value: object) -> Mapping[str, object]:
    """Return the settings of a group, or the entries of a list or table of groups. A single setting has none."""
    if isinstance(value, ConfigModel):
        return {name: getattr(value, name) for name in type(value).model_fields}
    entries: Mapping[str, object] = {}
    if isinstance(value, Mapping):
        entries = value
    elif isinstance(value, Sequence) and not isinstance(value, str):
        entries = {str(number): entry for number, entry in enumerate(value)}
    return entries if all(isinstance(entry, ConfigModel) for entry in entries.values()) else {}
