"""`check` and `explain`: is a configuration valid, and which settings apply to a request."""

import argparse
import json
from collections.abc import Iterator, Sequence

from msgspec.structs import asdict, replace

from proxy import assembly
from proxy.access.registry import find_public_id
from proxy.cli import options
from proxy.cli.options import add_command, parse_path, print_error
from proxy.config.defaults import as_json_schema, as_yaml
from proxy.config.faults import InvalidConfig
from proxy.config.loading import Loaded, find_origins, load
from proxy.config.policies import Occasion, Policy, RolloutChoice
from proxy.config.settings import SUBSCRIPTION, Config, Upstream, describe_prices
from proxy.config.values import ALL_PERCENT, ConfigModel
from proxy.config.warnings import find_warnings
from proxy.models.windows import find_cache_seconds, is_known_model
from proxy.serve.request_context import Placement, find_window
from proxy.server import config_watch
from proxy.shorten.economics import Window, compute_relative_prices, price_prompt
from proxy.shorten.rules import Facts, find_smallest_due
from proxy.wire.redaction import redaction


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    check = add_command(
        commands,
        "check",
        "validate a configuration: prints every fault with its place, exits with 1 on any",
        "check proxy.yaml",
        "check --defaults > proxy.yaml",
        "check --schema > proxy.schema.json    # for editors",
        "check - < proxy.yaml",
    )
    check.add_argument(
        "config",
        metavar="FILE",
        nargs="?",
        type=parse_path,
        help="configuration file, `-` for standard input (default ./proxy.yaml, or the defaults if there is none)",
    )
    options.add_state(check)
    options.add_json(check)
    check.add_argument(
        "--defaults", action="store_true", help="print every setting with its default, and check nothing"
    )
    check.add_argument(
        "--schema", action="store_true", help="print a JSON Schema of the file for editors, and check nothing"
    )
    check.set_defaults(run=_check)
    explain = add_command(
        commands,
        "explain",
        "show the settings that apply, each with its origin",
        "explain",
        "explain --team research --model gpt-5.1",
        "explain --changed",
    )
    options.add_config_and_state(explain)
    explain.add_argument("--team", metavar="T", default="", help="show what applies to this team")
    explain.add_argument(
        "--key", metavar="ID", default="", help="show what applies to the team key with this public id"
    )
    explain.add_argument("--model", metavar="M", help="show the upstream and policy for this model")
    explain.add_argument("--tag", default="", help="value of the x-compaction-tag header")
    explain.add_argument("--policy", metavar="P", help="show this policy instead of the one that applies")
    explain.add_argument("--changed", action="store_true", help="show only what differs from the defaults")
    options.add_json(explain)
    explain.set_defaults(run=_explain)


def _check(args: argparse.Namespace) -> int:
    if args.defaults:
        print(as_yaml(), end="")  # noqa: T201
        return 0
    if args.schema:
        options.print_json(as_json_schema())
        return 0
    try:
        loaded_config = options.load_configuration(args)
        config = loaded_config.config
        assembly.check_extras(config)
        config_watch.check_upstreams(loaded_config, config.listen)
    except InvalidConfig as invalid:
        if not args.json:
            raise
        options.print_json({"ok": False, "faults": [asdict(fault) for fault in invalid.faults], "warnings": []})
        return 1
    warnings = [*loaded_config.warnings, *find_warnings(config, is_known_model)]
    if args.json:
        entries = [{"path": path, "message": message} for path, message in warnings]
        options.print_json({"ok": True, "faults": [], "warnings": entries})
        return 0
    for path, message in warnings:
        print(f"warning: {path}: {message}")  # noqa: T201
    for name in config.policies:
        policy = config.policy(name)
        if not policy.store_text:
            teams = [team for team in config.teams if name in config.list_policies_of_team(team)]
            users = f"teams: {', '.join(teams) or 'none'}"
            print(f"policy {name} ({users}): no text is stored; {_describe_text_free(policy)}")  # noqa: T201
    names = ", ".join(f"{upstream.name} ({upstream.base_url})" for upstream in config.upstreams)
    file = options.find_config_file(args) or "defaults"
    print(f"OK ({file}). Upstreams: {names}")  # noqa: T201
    return 0


def _describe_text_free(policy: Policy) -> str:
    sentence = "blocks and summaries are in the memory of each worker, until it ends"
    if policy.summary.enabled and policy.summary.upstream:
        sentence += f"; upstream {policy.summary.upstream!r} reads the conversations for summaries"
    return sentence


Row = tuple[str, object, str]
"""The path of a setting, its value as JSON has it, and where it was set."""


def _explain(args: argparse.Namespace) -> int:
    loaded_config = options.load_configuration(args, needs_secrets=False)
    config = loaded_config.config
    key = options.read_records(config).current.keys.get(find_public_id(args.key) or args.key)
    if args.key and key is None:
        return print_error("unknown key id: `compaction-proxy keys list` shows all")
    if key is not None and args.team not in ("", key.team):
        return print_error(f"key {key.id} belongs to team {key.team!r}: drop --team, or name that team")
    team = args.team if key is None else key.team
    if team and not config.knows_team(team):
        return print_error(f"unknown team {team!r} (known: {', '.join(config.teams) or 'none'})")
    upstream = config.upstream_for(args.model, team)
    if upstream is None:
        return print_error(f"no upstream serves {args.model}, so requests for it get 404: add it to `upstreams.models`")
    if args.policy and args.policy not in config.all_policies:
        return print_error(f"unknown policy {args.policy!r} (known: {', '.join(config.all_policies)})")
    occasion = Occasion(team, key.id if key else "", args.model or "", upstream.name, args.tag)
    rows = list(_list_rows(loaded_config, occasion, upstream, args.policy))
    if args.changed:
        # Without any file: a copied file may write out values that are in force without it.
        defaults = load(None, {}, {})
        upstream = defaults.config.upstreams[0]
        default_rows = _list_rows(defaults, Occasion(upstream=upstream.name), upstream, None)
        default_settings = [row[:2] for row in default_rows]
        rows = [row for row in rows if row[:2] not in default_settings and not row[-1].startswith("default")]
    if args.json:
        options.print_json([{"setting": path, "value": value, "origin": origin} for path, value, origin in rows])
    else:
        _print_rows(rows)
    return 0


def _list_rows(loaded_config: Loaded, occasion: Occasion, upstream: Upstream, policy: str | None) -> Iterator[Row]:
    config = loaded_config.config
    choices = config.choices(occasion)
    offers = list(dict.fromkeys((choice.policy, choice.mode) for choice in choices))
    if policy:
        offers = [(policy, "")]
    policies = list(dict.fromkeys(name for name, _ in offers))
    yield from _choice_rows(loaded_config, choices)
    yield from _block_rows(loaded_config, upstream, ("upstreams", config.upstreams.index(upstream)))
    if occasion.team in config.teams:
        yield from _block_rows(loaded_config, config.teams[occasion.team], ("teams", occasion.team))
    for name in policies:
        for path, value, origin in find_origins(loaded_config, name):
            yield f"policy {name}.{'.'.join(path)}", value, origin
        for mode in [mode for offered, mode in offers if offered == name]:
            # Say what a policy adds to the bytes of a client in the mode of an attachment, and if it stores no text.
            policy_in_mode = config.policy(name, mode)
            under = f"{name} (mode {mode})" if mode else name
            placement = Placement.of(policy_in_mode, upstream.base_url)
            options = {"cache-marks": placement.cache_marks, "cache-key": placement.cache_key}
            added = ", ".join(name for name, choice in options.items() if choice != "off") or "nothing"
            origin = "all other bytes are the client's, but for shortened histories and, near a limit, `stream_options`"
            yield f"added to requests under {under}, if the client sets none", added, origin
            if not policy_in_mode.store_text:
                yield f"stored under {under}", "no text", _describe_text_free(policy_in_mode)
    for group in ("listen", "access", "state", "transcripts", "admin", "log", "otel"):
        yield from _block_rows(loaded_config, getattr(config, group), (group,))
    if occasion.model:
        window = find_window(upstream, occasion.model)
        unknown = "not known here: a running proxy asks for it, or learns it from a refusal (log: `refused-for-size`)"
        size = window.tokens or unknown
        yield f"{occasion.model}: context window", size, window.origin
        prices, origin = describe_prices(upstream.prices, window, occasion.model)
        yield f"{occasion.model}: dollars per million tokens", prices, origin
        for name in policies:
            is_subscription = origin == SUBSCRIPTION
            yield from _schedule_rows(config, name, occasion.model, window, is_subscription=is_subscription)


def _choice_rows(loaded_config: Loaded, choices: Sequence[RolloutChoice]) -> Iterator[Row]:
    config = loaded_config.config
    previous = 0.0
    for choice in choices:
        share = choice.rollout - previous
        previous = choice.rollout
        applies = f"applies to {share:g} % of conversations" if share != ALL_PERCENT else "applies"
        value = f"{choice.policy}@{config.policy(choice.policy, choice.mode).version}"
        if choice.mode:
            value += f" (mode {choice.mode})"
        if choice.holdout:
            value += f" ({choice.holdout:g} % of them left as they are)"
        group, entry = choice.place[:2]
        origin = loaded_config.origin(*choice.place)
        if group == "upstreams" and "policy" not in config.upstreams[int(entry)].model_fields_set:
            origin = "default"
        yield applies, value, f"{origin} ({'.'.join(map(str, choice.place))})"


def _schedule_rows(config: Config, policy: str, model: str, window: Window, *, is_subscription: bool) -> Iterator[Row]:
    rules = config.policy(policy).rules(policy)
    facts = Facts(usable_tokens=window.usable_tokens(), prices=compute_relative_prices(window))
    lowest_limit = rules.find_limit(facts)
    if lowest_limit is None:
        return
    limit = lowest_limit.tokens
    fitting = rules.fit(facts)
    origin = "tokens of history"
    if not window.is_known:
        origin += "; at fewer, if a running proxy learns of a smaller window"
    if rules.find_limit(replace(facts, usable_tokens=window.usable_tokens(1))) != lowest_limit:
        origin += f"; {window.answer_tokens():,} are left for an answer to a request without `max_tokens`"
    yield f"{model} under {policy}: shortened over", limit, origin
    goal = rules.find_goal(limit)
    yield f"{model} under {policy}: down to", goal, "tokens"
    cost = price_prompt(window, goal, 0)
    if cost is not None and not is_subscription:
        yield f"{model} under {policy}: a rewrite costs", f"${cost:.3f}", "its tokens, read without a cache"
    yield f"{model} under {policy}: newest tokens that stay", fitting.keep.tokens, "keep.tokens, with room for them"
    if rules.fold_cold_at_least:
        yield f"{model} under {policy}: with an expired cache", find_smallest_due(rules, limit), "tokens of history"
        origin = "seconds, unless the request or later usage says otherwise"
        yield f"{model} under {policy}: a cache expires after", find_cache_seconds(model), origin


def _print_rows(rows: Sequence[Row]) -> None:
    path_width = value_width = 0
    for path, value, _ in rows:
        path_width = max(path_width, len(path))
        value_width = max(value_width, min(48, len(_format_value(value))))
    for path, value, origin in rows:
        print(f"{path:{path_width}}  {_format_value(value):{value_width}}  {origin}")  # noqa: T201


def _block_rows(loaded_config: Loaded, group: ConfigModel, place: tuple[str | int, ...]) -> Iterator[Row]:
    own_redaction = redaction()
    for name, value in group.model_dump(mode="json").items():
        path = (*place, name)
        origin = loaded_config.origin(*path) if name in group.model_fields_set else "default"
        # A key may have been written by mistake instead of the name of its variable or file.
        yield ".".join(map(str, path)), json.loads(own_redaction.of_text(json.dumps(value))[0]), origin


def _format_value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_format_value, value)) or "none"
    if isinstance(value, str):
        return value
    if value is None or value == {}:
        return "none"
    return json.dumps(value)
