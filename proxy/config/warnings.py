"""Settings that are valid but probably mistakes. Shown by `check`, in the log and on the admin pages."""

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from proxy.config.declared import STEP_LISTS
from proxy.config.policies import DEFAULT, SMALL_WINDOW_TOKENS, Attachment, Policy, covers_glob
from proxy.config.settings import Config, Upstream
from proxy.shorten.rules import NOTHING_KNOWN, Rules

Warnings = Iterator[tuple[str, str]]
"""The path of a setting and a message."""


def find_warnings(config: Config, is_known: Callable[[str], bool]) -> Warnings:
    yield from _check_upstreams(config)
    yield from _check_attachments(config, is_known)
    for name in config.policies:
        for setting, message in _check_policy(config, config.policies[name], config.policy(name).rules(name), name):
            yield f"policies.{name}.{setting}", message
    yield from _check_keys_of_teams(config)
    yield from _check_open_access(config)
    if config.transcripts.keep == "off" and config.transcripts.required:
        yield "transcripts.required", "has no effect: `keep: off` saves no transcripts"


def _check_upstreams(config: Config) -> Warnings:
    used = {team.upstream for team in config.teams.values()}
    used |= {config.policy(name).summary.upstream for name in config.all_policies}
    for number, upstream in enumerate(config.upstreams):
        if upstream.name in used:
            continue
        earlier = config.upstreams[:number]
        servers = [_find_server(earlier, model) for model in upstream.models]
        if None not in servers:
            why = f"upstreams.{servers[0]} serves {upstream.models[0]!r} too; move this one above it"
            yield f"upstreams.{number}", f"is never reached: {why}"
    for number, upstream in enumerate(config.upstreams):
        has_chosen = "policy" in upstream.model_fields_set or bool(config.attachments)
        if has_chosen or upstream.window is None or upstream.window >= SMALL_WINDOW_TOKENS:
            continue
        if config.policy(upstream.policy).summary.enabled:
            why = "in so small a window calls for summaries read up to a quarter of what requests read"
            advice = "`policy: small-window` here to have none, or `policy: default` to keep them"
            yield f"upstreams.{number}.window", f"is {upstream.window:,} tokens: {why}. Write {advice}"


def _find_server(upstreams: tuple[Upstream, ...], model: str) -> int | None:
    for number, upstream in enumerate(upstreams):
        for glob in upstream.models:
            if covers_glob(glob, model):
                return number
    return None


def _check_attachments(config: Config, is_known: Callable[[str], bool]) -> Warnings:
    for number, attachment in enumerate(config.attachments):
        covering = (index for index, earlier in enumerate(config.attachments[:number]) if earlier.covers(attachment))
        first = next(covering, None)
        if first is not None:
            why = f"attachments.{first} matches the same requests first"
            yield f"attachments.{number}", f"is never reached: {why}; move this one up"
    for number, attachment in enumerate(config.attachments):
        path = f"attachments.{number}"
        for name, message in _check_names(config, attachment, is_known):
            yield f"{path}.{name}", message
        if config.policy(attachment.policy).store_text:
            for whose in _find_text_free(config, attachment):
                yield f"{path}.policy", f"{attachment.policy!r} stores text of the requests that match: {whose}"


def _find_text_free(config: Config, attachment: Attachment) -> Iterator[str]:
    """Say whose requests an attachment takes out of a policy that stores no text."""
    teams = {name: team for name, team in config.teams.items() if fnmatchcase(name, attachment.team)}
    for name, team in teams.items():
        if team.policy and not config.policy(team.policy).store_text:
            yield f"team {name!r} among them, whose own policy {team.policy!r} stores none"
    if attachment.team != "*" and config.teams and all(team.policy for team in teams.values()):
        return  # nobody whose policy is that of the upstream
    for upstream in config.upstreams:
        if fnmatchcase(upstream.name, attachment.upstream) and not config.policy(upstream.policy).store_text:
            yield f"those to upstream {upstream.name!r} among them, whose policy {upstream.policy!r} stores none"


def _check_names(config: Config, attachment: Attachment, is_known: Callable[[str], bool]) -> Warnings:
    teams = [team for name, team in config.teams.items() if fnmatchcase(name, attachment.team)]
    matches_all = attachment.team == "*" or (not config.teams and config.access.team_header)
    if not teams and not matches_all:
        yield "team", f"matches no team in `teams`: {attachment.team!r}"
    if not any(fnmatchcase(upstream.name, attachment.upstream) for upstream in config.upstreams):
        yield "upstream", f"matches no upstream: {attachment.upstream!r}"
    elif teams and all(team.upstream and not fnmatchcase(team.upstream, attachment.upstream) for team in teams):
        yield "upstream", "the matching teams use another upstream (`teams.NAME.upstream`)"
    model = attachment.model
    if set("*?[") & set(model):
        return
    has_own_upstream = any(team.upstream for team in teams)
    if not is_known(model):
        yield "model", f"is no known model: {model}"
    elif not has_own_upstream and not any(upstream.serves(model) for upstream in config.upstreams):
        yield "model", f"is served by no upstream: {model}"


def _check_policy(config: Config, own: Policy, rules: Rules, name: str) -> Warnings:
    policy = config.policy(name)
    if name == DEFAULT and own.inherit != DEFAULT:
        how = f"to use {own.inherit!r}, name it as `policy` of an upstream or a team"
        yield "inherit", f"has no effect: `default` is what every other policy begins with; {how}"
    if config.transcripts.required and not policy.transcripts:
        setting = "transcripts" if policy.store_text else "store_text"
        yield setting, "is false, so `transcripts.required` does not hold under this policy"
    if own.without_originals == "never" and not (policy.transcripts and config.transcripts.keep != "off"):
        setting = "transcripts: false" if config.transcripts.keep != "off" else "transcripts.keep: off"
        yield "without_originals", f"has no effect: `{setting}` saves no originals"
    for step in own.steps:
        if policy.find_listed(step) is None:
            message = f"has no effect: no such step is in {', '.join(STEP_LISTS)} of this policy; add it to one"
            yield f"steps.{step}", message
    model, upstream_name = policy.summary.model, policy.summary.upstream
    servers = [upstream for upstream in config.upstreams if upstream_name in ("", upstream.name)]
    if model and not any(upstream.serves(model) for upstream in servers):
        who = f"upstream {upstream_name!r} does not serve" if upstream_name else "no upstream serves"
        yield "summary.model", f"{who} {model!r} (`models`)"
    limit = rules.find_limit(NOTHING_KNOWN)
    if limit is not None and limit.tokens <= rules.clear_at_least:
        yield "clear_at_least", f"has no effect: the trigger, {limit.tokens:,} tokens, comes first"
    fitting = rules.fit(NOTHING_KNOWN)
    message = "is {:,}, but {:,} is used: `target` of the trigger has no room for more"
    if "tokens" in own.keep.model_fields_set and fitting.keep.tokens < rules.keep.tokens:
        yield "keep.tokens", message.format(rules.keep.tokens, fitting.keep.tokens)
    if rules.summary.enabled and fitting.summary.max_tokens < rules.summary.max_tokens:
        yield "summary.max_tokens", message.format(rules.summary.max_tokens, fitting.summary.max_tokens)


def _check_keys_of_teams(config: Config) -> Warnings:
    if config.access.team_header:  # clients that come through the gateway send their own keys
        return
    for name, team in config.teams.items():
        for upstream in config.upstreams:
            is_used = team.upstream in ("", upstream.name)
            if is_used and upstream.key is None and team.key is None:
                yield f"teams.{name}", f"upstream {upstream.name!r} has no key, and the team has none either"


def _check_open_access(config: Config) -> Warnings:
    if config.teams or config.access.team_header or config.listen.host in ("127.0.0.1", "::1", "localhost"):
        return
    why = "whoever reaches it may send requests, with a key of the API, and read /metrics; set up `teams`"
    yield "listen.host", f"{config.listen.host} is open without `teams`: {why}, or listen on 127.0.0.1"
    for number, upstream in enumerate(config.upstreams):
        if upstream.key is not None:
            yield f"upstreams.{number}.key", f"without `teams`, every client of {config.listen.host} uses this key"
