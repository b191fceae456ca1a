"""Configuration warnings: settings that are valid but probably mistakes. Shown by `check`, in the log and on the admin
pages.
"""

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase

from proxy.config.attachments import Attachment, covers_glob, find_unreachable
from proxy.config.policies import Policy
from proxy.config.settings import Config
from proxy.config.step_settings import STEP_LISTS
from proxy.config.tool_rules import ToolConfig
from proxy.config.values import ALL_PERCENT
from proxy.shorten.rules import NOTHING_KNOWN, Rules

_GLOB = frozenset("*?[")
KEEP_MAX_TOKENS = 200_000
NEVER_TOKENS = 100_000_000
"""No history holds so many: who waits for them wants old results never to be cleared."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def find_warnings(config: Config, is_known: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Each warning as the path of a setting and a message. `is_known`: whether a model of this name is known."""
    yield from _check_upstreams(config)
    yield from _check_attachments(config, is_known)
    yield from _check_policies(config)
    yield from _check_keys_of_teams(config)
    yield from _check_open_access(config)
    yield from _check_combinations(config)


def _check_upstreams(config: Config) -> Iterator[tuple[str, str]]:
    """Upstreams to which no request goes, because earlier ones serve all their models."""
    named = {team.upstream for team in config.teams.values()}
    named |= {config.policy(name).summary.upstream for name in config.all_policies}
    for place, later in enumerate(config.upstreams):
        before = list(enumerate(config.upstreams[:place]))
        covering = [
            next((at for at, each in before if any(covers_glob(wide, pattern) for wide in each.models)), None)
            for pattern in later.models
        ]
        if later.name not in named and None not in covering:
            yield (
                f"upstreams.{place}",
                f"is never reached: upstreams.{covering[0]} serves {later.models[0]!r} too; move this one above it",
            )


def _check_attachments(config: Config, is_known: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    for place, earlier in find_unreachable(config.attachments):
        yield (
            f"attachments.{place}",
            (
                f"is never reached: attachments.{earlier} matches the same requests first; move this one up, or give "
                "it a higher `priority`"
            ),
        )
    for place, attachment in enumerate(config.attachments):
        where = f"attachments.{place}"
        yield from ((f"{where}.{name}", why) for name, why in _check_names(config, attachment, is_known))
        if not attachment.rollout:
            yield f"{where}.rollout", "applies to no conversation: it is 0 percent"
        elif attachment.rollout < ALL_PERCENT and attachment.mode == "off":
            yield (
                f"{where}.mode",
                "`off` below 100 percent switches compaction off for some conversations only",
            )


def _check_names(config: Config, attachment: Attachment, is_known: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Names that match nothing, and combinations that no request can have."""
    teams = [team for name, team in config.teams.items() if fnmatchcase(name, attachment.team)]
    matches_all = attachment.team == "*" or (not config.teams and config.access.team_header)
    if not teams and not matches_all:
        yield "team", f"matches no team in `teams`: {attachment.team!r}"
    if not any(fnmatchcase(upstream.name, attachment.upstream) for upstream in config.upstreams):
        yield "upstream", f"matches no upstream: {attachment.upstream!r}"
    elif teams and all(team.upstream and not fnmatchcase(team.upstream, attachment.upstream) for team in teams):
        yield "upstream", "the matching teams use another upstream (`teams.NAME.upstream`)"
    if _GLOB & set(attachment.model):
        return
    if not is_known(attachment.model):
        yield "model", f"is no known model: {attachment.model}"
    elif not any(team.upstream for team in teams) and not any(
        upstream.serves(attachment.model) for upstream in config.upstreams
    ):
        yield "model", f"is served by no upstream: {attachment.model}"


def _check_policies(config: Config) -> Iterator[tuple[str, str]]:
    upstreams = {upstream.name: upstream for upstream in config.upstreams}
    for name in config.policies:
        policy = config.policy(name)
        own = config.policies[name].tools
        yield from ((f"policies.{name}.tools.{where}", why) for where, why in _check_tools(own, policy.tools))
        yield from ((f"policies.{name}.steps.{step}", why) for step, why in _check_steps(config.policies[name], policy))
        model, chosen = policy.summary.model, upstreams.get(policy.summary.upstream)
        if model and chosen is not None and not chosen.serves(model):
            yield f"policies.{name}.summary.model", f"upstream {chosen.name!r} does not serve {model!r} (`models`)"
        elif model and chosen is None and not any(each.serves(model) for each in config.upstreams):
            yield f"policies.{name}.summary.model", f"no upstream serves {model!r}"
        if policy.keep.tokens >= KEEP_MAX_TOKENS:
            yield f"policies.{name}.keep.tokens", "is more than most context windows: nothing is ever compacted"
        rules = policy.rules(name)
        goal = rules.find_goal(policy.trigger_tokens)
        if policy.trigger_tokens and goal <= rules.clear_tokens < NEVER_TOKENS:
            yield (
                f"policies.{name}.clear_at_least",
                "is not below trigger_tokens * target: old results are never cleared, because the trigger comes first",
            )
        if rules.clear_cold_tokens > rules.clear_tokens:
            yield (
                f"policies.{name}.clear_cold_at_least",
                "is more than clear_at_least: set it lower, for a rewrite is cheap while the upstream's cache is cold",
            )
        for setting, why in _check_bounds(config.policies[name], policy.rules(name)):
            yield f"policies.{name}.{setting}", why


def _check_bounds(own: Policy, rules: Rules) -> Iterator[tuple[str, str]]:
    """Amounts that `trigger_tokens` has no room for, so that smaller ones are used. `own`: what this policy sets."""
    if not rules.trigger_tokens:
        return
    fitting = rules.fit(NOTHING_KNOWN)
    why = "is {:,}, but {:,} is used: trigger_tokens has no room for more"
    if "tokens" in own.keep.model_fields_set and fitting.keep.tokens < rules.keep.tokens:
        yield "keep.tokens", why.format(rules.keep.tokens, fitting.keep.tokens)
    summary, fitting_summary = rules.summary, fitting.summary
    if summary.enabled and fitting_summary.max_tokens < summary.max_tokens:
        yield "summary.max_tokens", why.format(summary.max_tokens, fitting_summary.max_tokens)


def _check_steps(own: Policy, policy: Policy) -> Iterator[tuple[str, str]]:
    """Changed settings of steps that the policy, with all it inherits, does not list."""
    listed = {step for steps in STEP_LISTS for entry in getattr(policy, steps) for step in entry}
    for step in own.steps:
        if step not in listed:
            yield step, f"has no effect: no such step is in {', '.join(STEP_LISTS)} of this policy; add it to one"


def _check_tools(own: Mapping[str, ToolConfig], tools: Mapping[str, ToolConfig]) -> Iterator[tuple[str, str]]:
    """Values that never count: an earlier glob takes the same tools, or another value removes what is to be kept.

    `own`: what this policy says; `tools` has what it inherits behind that.
    """
    for glob in own:
        found = {name: _find_first_value(tools, glob, name) for name in ToolConfig.model_fields}
        for name, (wider, value) in found.items():
            wanted = getattr(own[glob], name)
            if wanted not in (None, value):
                yield (
                    f"{glob}.{name}",
                    f"has no effect: {wider!r} above matches the same tools and says {value!r}; move this above it",
                )
            other = {"request": "response", "response": "request"}.get(name, name)
            if wanted == value == "keep" and found[other][1] == "remove":
                yield (
                    f"{glob}.{name}",
                    (
                        f"has no effect: `{other}: remove` of {found[other][0]!r} takes these calls out with their "
                        f"results; write `{other}: keep` or `{other}: strip` here"
                    ),
                )


def _find_first_value(tools: Mapping[str, ToolConfig], glob: str, name: str) -> tuple[str, object]:
    """The first value of a setting for the tools that a glob matches, with its glob."""
    values = ((wide, getattr(tool, name)) for wide, tool in tools.items() if covers_glob(wide.lower(), glob.lower()))
    return next((found for found in values if found[1] is not None), ("", None))


def _check_keys_of_teams(config: Config) -> Iterator[tuple[str, str]]:
    if config.access.team_header:  # clients that come through the gateway send keys of their own
        return
    for name, team in config.teams.items():
        used = [one for one in config.upstreams if not team.upstream or one.name == team.upstream]
        for upstream in used:
            if upstream.key is None and team.key is None:
                yield (
                    f"teams.{name}",
                    f"upstream {upstream.name!r} has no key, and the team has none either",
                )


def _check_open_access(config: Config) -> Iterator[tuple[str, str]]:
    if config.teams or config.listen.host in _LOOPBACK:
        return
    for place, upstream in enumerate(config.upstreams):
        if upstream.key is not None:
            yield (
                f"upstreams.{place}.key",
                f"without `teams`, every client of {config.listen.host} uses this key",
            )


def _check_combinations(config: Config) -> Iterator[tuple[str, str]]:
    if config.transcripts.keep == "off" and config.transcripts.required:
        yield "transcripts.required", "has no effect: `keep: off` saves no transcripts"
    for place, hook in enumerate(config.hooks):
        if not hook.events:
            yield f"hooks.{place}.events", "is empty: this hook is never called"
