"""What is allowed and yet hardly meant: said by `check` and at the start, and nothing is refused for it."""

from collections.abc import Callable, Iterator

from proxy.config.settings import Config
from proxy.config.teams import EVERYBODY, unreachable

_GLOB = frozenset("*?[")


def doubts(config: Config, is_known: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Where, and why. `is_known`: is there a model of this name?"""
    yield from _of_attachments(config, is_known)
    yield from _of_policies(config)
    yield from _of_teams(config)


def _of_attachments(config: Config, is_known: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    for place, earlier in unreachable(config.attachments):
        yield f"attachments.{place}", f"is never reached: attachments.{earlier} decides everything that fits it"
    for place, each in enumerate(config.attachments):
        where = f"attachments.{place}"
        if not _GLOB & set(each.model) and not is_known(each.model):
            yield f"{where}.model", f"no model of this name is known: {each.model}"
        if not _GLOB & set(each.team) and each.team not in config.teams:
            yield f"{where}.team", f"there is no team {each.team!r} in `teams`"
        if not _GLOB & set(each.upstream) and each.upstream not in {upstream.name for upstream in config.upstreams}:
            yield f"{where}.upstream", f"there is no upstream {each.upstream!r}"
        if not each.rollout:
            yield f"{where}.rollout", "applies to nobody: 0 percent"
        elif each.rollout < EVERYBODY and each.mode == "off":
            yield f"{where}.mode", "a roll-out of `off` is a policy that does nothing, to a part"


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
