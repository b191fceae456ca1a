"""What is allowed and yet hardly meant: said by `check` and on the admin pages, and nothing is refused for it."""

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from proxy.config.settings import Config
from proxy.config.teams import EVERYBODY, Attachment, unreachable

_GLOB = frozenset("*?[")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def doubts(config: Config, is_known: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Where, and why. `is_known`: is there a model of this name?"""
    yield from _of_attachments(config, is_known)
    yield from _of_policies(config)
    yield from _of_teams(config)
    yield from _of_strangers(config)


def _of_attachments(config: Config, is_known: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    for place, earlier in unreachable(config.attachments):
        yield f"attachments.{place}", f"is never reached: attachments.{earlier} decides everything that fits it"
    for place, each in enumerate(config.attachments):
        where = f"attachments.{place}"
        yield from ((f"{where}.{name}", why) for name, why in _of_names(config, each, is_known))
        if not each.rollout:
            yield f"{where}.rollout", "applies to nobody: 0 percent"
        elif each.rollout < EVERYBODY and each.mode == "off":
            yield f"{where}.mode", "a roll-out of `off` is a policy that does nothing, to a part"


def _of_names(config: Config, each: Attachment, is_known: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Names that nobody has, and such as no request can have at once."""
    teams = [team for name, team in config.teams.items() if fnmatchcase(name, each.team)]
    anybody = each.team == "*" or (not config.teams and config.access.team_header)
    if not teams and not anybody:
        yield "team", f"no team in `teams` fits {each.team!r}"
    if not any(fnmatchcase(upstream.name, each.upstream) for upstream in config.upstreams):
        yield "upstream", f"no upstream fits {each.upstream!r}"
    elif teams and all(team.upstream and not fnmatchcase(team.upstream, each.upstream) for team in teams):
        yield "upstream", "the teams that it fits have an upstream of their own, which is another"
    if _GLOB & set(each.model):
        return
    if not is_known(each.model):
        yield "model", f"no model of this name is known: {each.model}"
    elif not any(team.upstream for team in teams) and not any(every.serves(each.model) for every in config.upstreams):
        yield "model", f"no upstream serves {each.model}"


def _of_policies(config: Config) -> Iterator[tuple[str, str]]:
    for name in config.policies:
        policy = config.policy(name)
        if policy.trigger_tokens and policy.clear_at_least >= policy.trigger_tokens * policy.target:
            yield (
                f"policies.{name}.clear_at_least",
                "is not below the target (trigger_tokens * target): the window comes first, and old results never go",
            )
        if policy.clear_cold_at_least > policy.clear_at_least:
            yield (
                f"policies.{name}.clear_cold_at_least",
                "is more than clear_at_least; a cold cache asks for less",
            )
        if policy.trigger_tokens and policy.keep.tokens >= policy.trigger_tokens * policy.target:
            yield f"policies.{name}.keep.tokens", "is not below the target: what is left alone alone fills it"


def _of_teams(config: Config) -> Iterator[tuple[str, str]]:
    for name, team in config.teams.items():
        used = [each for each in config.upstreams if not team.upstream or each.name == team.upstream]
        for upstream in used:
            if upstream.key is None and team.key is None:
                yield f"teams.{name}", f"upstream {upstream.name!r} has no key: their requests reach it without one"


def _of_strangers(config: Config) -> Iterator[tuple[str, str]]:
    if config.teams or config.listen.host in _LOOPBACK:
        return
    for place, upstream in enumerate(config.upstreams):
        if upstream.key is not None:
            yield f"upstreams.{place}.key", f"whoever reaches {config.listen.host} asks with it: there are no `teams`"
