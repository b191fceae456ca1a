"""The steps that `compact --step` names: our own names, the names of the design with this command, and settings.

`--step clear_results:over=800,keep_recent=3`. A step has the settings of the policy, and those that are typed over
them. A name of the design (docs/five-documents.md, RFD 036) has the settings of the policy `jp`.
"""

import re
from argparse import ArgumentTypeError
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.config.policies import DEFAULT, Policy
from proxy.config.values import suggest
from proxy.config.yaml_reader import parse_variable
from proxy.history.agents import EXEMPT
from proxy.shorten.block import STEPS
from proxy.shorten.pipeline import Step

SUMMARY, AUTO, JP = "summary", "auto", "jp"
TANGENTS = "classify-tangents"
_SETTING = re.compile(r",(?=\w+=)")


@dataclass(frozen=True, slots=True)
class NamedStrategy:
    """A strategy of the design, as one of our steps."""

    step: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the design says beyond the policy `jp`."""


NAMED: Mapping[str, NamedStrategy] = {
    "strip-reasoning": NamedStrategy("strip_reasoning"),
    # Requests stay, whatever the tool; so do results that carry state, and the hash of a commit.
    "strip-tool-results": NamedStrategy(
        "tool_hints", {"hints": [(tool, "keep", "keep") for tool in (*EXEMPT, "git_commit")]}
    ),
    "dedup-tools": NamedStrategy("dedup_old"),
    "strip-attachments": NamedStrategy("strip_attachments", {"keep_recent": 0}),
    "prune-tools": NamedStrategy("prune_tools"),
    "summarize": NamedStrategy(SUMMARY),
}
"""Tests of each stand in tests/lab/test_compact_steps.py."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """One `--step`."""

    name: str
    """As it was typed."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def step(self) -> str:
        """The name of our step, `summary` or `auto`."""
        return NAMED[self.name].step if self.name in NAMED else self.name

    @property
    def is_of_design(self) -> bool:
        return self.name in NAMED or self.name == AUTO

    def build(self, policy: Policy, jp: Policy) -> tuple[Step, ...]:
        """The steps that it runs. ValueError: a setting cannot be used; the message says which."""
        if self.step == AUTO:
            return policy.rules("").when_full
        if self.step == SUMMARY:
            return ()
        listed = policy.find_listed(self.step)
        if listed is None and self.is_of_design:
            listed = jp.find_listed(self.step)
        own = NAMED[self.name].settings if self.name in NAMED else {}
        try:
            return (policy.build_step(self.step, {**(listed or {}), **own, **self.settings}),)
        except ValueError as fault:
            raise ValueError(f"--step {self.name}: {fault}") from None


def parse_strategy(text: str) -> Strategy:
    """A strategy from `NAME` or `NAME:setting=value,setting=value`; each value is YAML."""
    name, _, typed = text.partition(":")
    if name == TANGENTS:
        raise ArgumentTypeError("a person has to confirm what goes: see --tangents and --drop")
    names = (*STEPS, SUMMARY, AUTO, *NAMED)
    if name not in names:
        raise ArgumentTypeError(f"there is no step {name!r}{suggest(name, names)} (there are {', '.join(names)})")
    settings = dict[str, Any]()
    for pair in _SETTING.split(typed) if typed else ():
        setting, equals, value = pair.partition("=")
        if not equals:
            raise ArgumentTypeError(f"{pair!r} is no setting: write {name}:setting=value,setting=value")
        settings[setting] = parse_variable(value)
    if name == AUTO and settings:
        raise ArgumentTypeError("auto takes no settings: change them in a policy, and name it with --policy")
    return Strategy(name, settings)


def choose_policy(strategies: Iterable[Strategy]) -> str:
    """The policy to take settings from where none is named."""
    return JP if any(strategy.is_of_design for strategy in strategies) else DEFAULT


def change_summary(policy: Policy, strategies: Sequence[Strategy]) -> Policy:
    """The policy with the settings that are typed for a summary. ValueError: one cannot be used."""
    for strategy in strategies:
        if strategy.step == SUMMARY and strategy.settings:
            try:
                policy = policy.change_summary(strategy.settings)
            except ValueError as fault:
                raise ValueError(f"--step {strategy.name}: {fault}") from None
    return policy
