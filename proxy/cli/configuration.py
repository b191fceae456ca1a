"""`check` and `explain`: is a configuration valid, and which settings apply to a request, each with its origin."""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from proxy import assembly
from proxy.access.team_keys import find_public_id
from proxy.cli import options
from proxy.cli.options import add_command, parse_path, print_error
from proxy.config import (
    Config,
    InvalidConfig,
    Loaded,
    Occasion,
    RolloutChoice,
    Upstream,
    as_yaml,
    find_origins,
    find_warnings,
)
from proxy.config.schema import as_json_schema
from proxy.config.values import ALL_PERCENT, ConfigModel
from proxy.models.windows import is_known_model, resolve_window
from proxy.server import own_address
from proxy.shorten.window import compute_relative_prices
from proxy.wire.redaction import redaction

_REDACTION = redaction()


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    _add_check(commands)
    _add_explain(commands)


def _add_check(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "check",
        "validate a configuration: prints every fault with its place, exits with 1 on any",
        "check proxy.yaml",
        "check --defaults > proxy.yaml",
        "check --schema > proxy.schema.json    # for editors",
        "check - < proxy.yaml",
    )
    parser.add_argument(
        "config",
        metavar="FILE",
        nargs="?",
        type=parse_path,
        help="configuration file, `-` for standard input (default ./proxy.yaml, or the defaults where there is none)",
    )
    options.add_state(parser)
    options.add_json(parser)
    parser.add_argument(
        "--defaults", action="store_true", help="print every setting with its default, and check nothing"
    )
    parser.add_argument(
        "--schema", action="store_true", help="print a JSON Schema of the file for editors, and check nothing"
    )
    parser.set_defaults(run=_check)


def _check(args: argparse.Namespace) -> int:
    if args.defaults:
        print(as_yaml(), end="")  # noqa: T201
        return 0
    if args.schema:
        options.print_json(as_json_schema())
        return 0
    try:
        loaded = options.load_configuration(args)
        config = loaded.config
        assembly.check_extras(config)
        own_address.check_upstreams(loaded)
    except InvalidConfig as invalid:
        if not args.json:
            raise
        options.print_json({"ok": False, "faults": [asdict(fault) for fault in invalid.faults], "warnings": []})
        return 1
    warnings = list(find_warnings(config, is_known_model))
    if args.json:
        found = [{"path": where, "message": why} for where, why in warnings]
        options.print_json({"ok": True, "faults": [], "warnings": found})
        return 0
    for where, why in warnings:
        print(f"warning: {where}: {why}")  # noqa: T201
    for line in _describe_auto(config):
        print(line)  # noqa: T201
    names = ", ".join(f"{upstream.name} ({upstream.base_url})" for upstream in config.upstreams)
    print(f"OK ({options.find_config_file(args) or 'defaults'}). Upstreams: {names}")  # noqa: T201
    return 0


def _describe_auto(config: Config) -> Iterator[str]:
    """The number that `clear_at_least: auto` is for each model that the file names, if not the usual one."""
    models = [name for upstream in config.upstreams for name in upstream.models if is_known_model(name)]
    for policy in config.policies:
        rules = config.policy(policy).rules(policy)
        for model in dict.fromkeys(models):
            tokens = rules.find_clearing(compute_relative_prices(resolve_window(model)))
            if tokens != rules.clear_tokens:
                yield f"policy {policy}: clear_at_least `auto` is {tokens:,} for {model}"


Row = tuple[str, object, str]
"""Path of a setting, its value as JSON has it, and its origin."""


def _add_explain(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "explain",
        "show the settings that apply, each with its origin",
        "explain",
        "explain --team research --model gpt-5.1",
        "explain --changed",
    )
    options.add_config_and_state(parser)
    parser.add_argument("--team", metavar="T", default="", help="show what applies to this team")
    parser.add_argument("--key", metavar="ID", default="", help="show what applies to the team key with this public id")
    parser.add_argument("--model", metavar="M", help="show the upstream and policy for this model")
    parser.add_argument("--tag", default="", help="value of the x-compaction-tag header")
    parser.add_argument("--policy", metavar="P", help="show this policy instead of the one that applies")
    parser.add_argument("--changed", action="store_true", help="show only what the file, a variable or an option sets")
    options.add_json(parser)
    parser.set_defaults(run=_explain)


def _explain(args: argparse.Namespace) -> int:
    loaded = options.load_configuration(args, needs_secrets=False)
    config = loaded.config
    key = options.read_records(config).current.keys.get(find_public_id(args.key) or args.key)
    if args.key and key is None:
        return print_error("unknown key id: `compaction-proxy keys list` shows all")
    if key is not None and args.team not in ("", key.team):
        return print_error(f"key {key.id} belongs to team {key.team!r}: drop --team, or name that team")
    team = args.team if key is None else key.team
    if team and not config.knows_team(team):
        return print_error(f"unknown team {team!r} (known: {', '.join(config.teams) or 'none'})")
    settings = config.upstream_for(args.model, team)
    if settings is None:
        return print_error(f"no upstream serves {args.model}, so requests for it get 404: add it to `upstreams.models`")
    if args.policy and args.policy not in config.all_policies:
        return print_error(f"unknown policy {args.policy!r} (known: {', '.join(config.all_policies)})")
    public = "" if key is None else key.id
    choices = config.choices(Occasion(team, public, args.model or "", settings.name, args.tag))
    policies = [args.policy] if args.policy else list(dict.fromkeys(choice.policy for choice in choices))
    rows = [*_choice_rows(loaded, choices), *_value_rows(loaded, team, settings, policies)]
    if args.model:
        rows += [row for policy in policies for row in _clearing_rows(config, policy, args.model)]
    if args.changed:
        rows = [row for row in rows if not row[-1].startswith("default")]
    if args.json:
        options.print_json([{"setting": path, "value": value, "origin": origin} for path, value, origin in rows])
    else:
        _print_rows(rows)
    return 0


def _choice_rows(loaded: Loaded, choices: Sequence[RolloutChoice]) -> Iterator[Row]:
    """The policy that applies; several with their shares, while one is being rolled out."""
    taken = 0.0
    for choice in choices:
        share = choice.rollout - taken
        taken = choice.rollout
        applies = "applies" if share == ALL_PERCENT else f"applies to {share:g} % of conversations"
        version = loaded.config.policy(choice.policy, choice.mode).version
        shown = f"{choice.policy}@{version}" + (f" (mode {choice.mode})" if choice.mode else "")
        yield applies, shown, f"{_find_choice_origin(loaded, choice)} ({'.'.join(map(str, choice.place))})"


def _find_choice_origin(loaded: Loaded, choice: RolloutChoice) -> str:
    """The place of the choice in the file; the default where no attachment, team or upstream names a policy."""
    group, at = choice.place[:2]
    is_unset = group == "upstreams" and "policy" not in loaded.config.upstreams[int(at)].model_fields_set
    return "default" if is_unset else loaded.origin(*choice.place)


def _clearing_rows(config: Config, policy: str, model: str) -> Iterator[Row]:
    """The tokens that must go before old results of this model are cleared, as they are in force, and why."""
    rules, prices = config.policy(policy).rules(policy), compute_relative_prices(resolve_window(model))
    tokens, why = rules.find_clearing(prices), "as set"
    if rules.clear_at_least == "auto":
        why = "`auto`" if tokens == rules.clear_tokens else f"`auto`: cached tokens cost {prices.read:g} of others"
    yield f"{model} under {policy}: clear_at_least", tokens, why
    cold_why = "as set"
    if rules.clear_cold_at_least == "auto":
        cold_why = "`auto`" if rules.clear_at_least == "auto" else "`auto`: as clear_at_least"
    yield f"{model} under {policy}: clear_cold_at_least", rules.clear_cold_tokens, cold_why


def _value_rows(loaded: Loaded, team: str, upstream: Upstream, policies: Sequence[str]) -> Iterator[Row]:
    config = loaded.config
    yield from _block_rows(loaded, upstream, ("upstreams", config.upstreams.index(upstream)))
    if team in config.teams:
        yield from _block_rows(loaded, config.teams[team], ("teams", team))
    for name in policies:
        yield from _policy_rows(loaded, name)
    for name in ("listen", "access", "state", "transcripts", "admin", "log", "otel"):
        yield from _block_rows(loaded, getattr(config, name), (name,))


def _print_rows(rows: Sequence[Row]) -> None:
    shown = [(path, _format_value(value), origin) for path, value, origin in rows]
    width = max((len(path) for path, _, _ in shown), default=0)
    broad = min(48, max((len(value) for _, value, _ in shown), default=0))
    for path, value, origin in shown:
        print(f"{path:{width}}  {value:{broad}}  {origin}")  # noqa: T201


def _block_rows(loaded: Loaded, group: ConfigModel, place: tuple[str | int, ...]) -> Iterator[Row]:
    for name, value in group.model_dump(mode="json").items():
        at = (*place, name)
        origin = loaded.origin(*at) if name in group.model_fields_set else "default"
        # A key may have been written where the name of its variable or file belongs.
        yield ".".join(map(str, at)), json.loads(_REDACTION.of_text(json.dumps(value))[0]), origin


def _policy_rows(loaded: Loaded, name: str) -> Iterator[Row]:
    """Values of a policy, each with the policy that sets it (itself or an ancestor) and its place."""
    for path, value, origin in find_origins(loaded, name):
        yield f"policy {name}.{'.'.join(path)}", value, origin


def _format_value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_format_value, value)) or "none"
    if isinstance(value, str):
        return value
    return "none" if value is None or value == {} else json.dumps(value)
