"""A policy: what is compacted, when, and how hard. Policies inherit from one another; a value not set is the parent's.

A policy compiles to the heart's `Rules`. Its steps are written as they are called, `- clear_results: {over: 800}`,
and their settings are the fields of the step itself (proxy/core/steps): there is no second list of them to keep.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from hashlib import blake2b
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, create_model

from proxy.config import prompts
from proxy.config.model import ConfigModel
from proxy.config.prompts import Prompt
from proxy.core import pins, rules
from proxy.core.observations import find_pattern_fault
from proxy.core.pipeline import Step
from proxy.core.steps import STEPS
from proxy.core.summary import Summaries

DEFAULT = "default"
_R = rules.Rules()


def _written(steps: tuple[Step, ...]) -> tuple[dict[str, Any], ...]:
    """Steps as a policy writes them: with the settings that are not their own defaults."""
    return tuple({step.name: _unusual(step)} for step in steps)


def _unusual(step: Any) -> dict[str, Any]:  # noqa: ANN401 (each step is a dataclass; their protocol cannot say so)
    return {field.name: value for field in fields(step) if (value := getattr(step, field.name)) != field.default}


Settings = TypeVar("Settings", bound=BaseModel)


def _known_steps(listed: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    for entry in listed:
        _step(entry)
    return listed


def _pattern(pattern: str) -> str:
    if why := pins.fault(pattern):
        raise ValueError(why)
    return pattern


def _observation_pattern(pattern: str) -> str:
    if why := find_pattern_fault(pattern):
        raise ValueError(why)
    return pattern


Pattern = Annotated[str, AfterValidator(_pattern)]
ObservationPattern = Annotated[str, AfterValidator(_observation_pattern)]
StepList = Annotated[tuple[dict[str, Any], ...], AfterValidator(_known_steps)]


class Keep(ConfigModel):
    """How much of the newest is left alone."""

    tokens: int = Field(_R.keep.tokens, ge=0, description="As many whole groups as fit into so many tokens.")
    groups: int = Field(_R.keep.groups, ge=0, description="At least so many groups.")
    turns: int = Field(_R.keep.turns, ge=0, description="At least so many turns.")
    first: int = Field(_R.keep.first, ge=0, description="So many groups of the beginning are left alone too.")


class Pins(ConfigModel):
    """What survives every compaction word for word. Only what real users and system messages say can be pinned."""

    tags: tuple[str, ...] = Field((), description="Whatever stands between <tag> and </tag>.")
    markers: tuple[str, ...] = Field((), description="Lines that hold this text.")
    patterns: tuple[Pattern, ...] = Field((), description="Lines in which this pattern is found.")
    budget: int = Field(
        _R.pins.budget, ge=0, description="Bytes in all; beyond them the oldest are not pinned any more."
    )


def _prompt(told: object) -> Prompt:
    return told if isinstance(told, Prompt) else prompts.prompt(str(told))


PromptNamed = Annotated[Prompt, BeforeValidator(_prompt), PlainSerializer(str)]


class Summary(ConfigModel):
    """When a model is asked what the old part of a history was, and what becomes of its answer."""

    enabled: bool = Field(
        _R.summary.enabled, description="Ask a model where clearing is not enough; off: fold without one."
    )
    prepare: float = Field(
        _R.summary.prepare, gt=0, le=1, description="Share of the trigger over which it is asked ahead of need."
    )
    call: Literal["aligned", "transcript"] = Field(
        _R.summary.call,
        description="aligned asks at the end of the conversation as last forwarded (cached); transcript retells it.",
    )
    upstream: str = Field("", description="The upstream that is asked, with its own key; empty: the request's own.")
    model: str = Field("", description="The model that is asked; empty: the request's own.")
    prompt: PromptNamed = Field(
        prompts.prompt(prompts.SHIPPED[0]),
        description="What it is told: structured, workflow, or the path of a text file.",
    )
    max_tokens: int = Field(_R.summary.max_tokens, ge=100, description="A summary is at most so long.")
    wait: float = Field(
        8.0, ge=0, description="Seconds that a request waits for a summary when it does not fit without."
    )
    seconds: float = Field(180.0, gt=0, description="Seconds after which a summary is given up.")
    shape: Literal["notes", "single", "pair"] = Field(
        _R.summary.shape,
        description="notes keeps the user's messages; single is one message; pair is one and an acknowledgement.",
    )
    user_tokens: int = Field(
        _R.summary.user_tokens, ge=0, description="In notes, the user's messages stay verbatim up to so many tokens."
    )
    ledger: int = Field(_R.summary.ledger, ge=0, description="Bytes of files, commands and errors listed below it.")
    scope: int = Field(
        _R.summary.scope,
        ge=1,
        description="So many of the newest summaries stand one after the other; 1 brings the older one up to date.",
    )
    scope_tokens: int = Field(
        _R.summary.scope_tokens, ge=0, description="Of these, the older ones within so many tokens; 0 is all."
    )
    pointer: str = Field(
        _R.summary.pointer, description="A sentence at its end, for agents that can read where the originals are."
    )

    def rules(self) -> Summaries:
        aligned = self.call == "aligned" and not (self.upstream or self.model)
        return Summaries(
            enabled=self.enabled,
            prepare=self.prepare,
            call="aligned" if aligned else "transcript",
            prompt=self.prompt.of(self.max_tokens),
            headings=self.prompt.headings,
            max_tokens=self.max_tokens,
            shape=self.shape,
            user_tokens=self.user_tokens,
            ledger=self.ledger,
            scope=self.scope,
            scope_tokens=self.scope_tokens,
            pointer=self.pointer,
        )


class Policy(ConfigModel):
    """What is compacted, when, and how hard."""

    inherit: str = Field(DEFAULT, description="The policy whose values stand where this one sets none.")
    mode: Literal["auto", "observe", "off"] = Field(
        "auto", description="observe reports what would be done and does nothing; off makes no new blocks."
    )
    estimator: Literal["tokens", "chars"] = Field(
        "tokens", description="How text is counted: by the model's tokens, or characters / 4."
    )
    headers: bool = Field(default=True, description="Whether a request's own x-compaction header is heeded.")
    transcripts: bool = Field(
        default=True, description="Whether originals are kept; off keeps none of what goes by this policy."
    )
    usage: Literal["upstream", "client_view"] = Field(
        "upstream",
        description="What a client's gauge shows: the upstream's figures, or those of the history as it was sent.",
    )
    ask_usage: bool = Field(
        default=True, description="Ask streams for their usage where it matters, and hide what that adds."
    )
    recount: Literal["answer", "probe"] = Field(
        "answer",
        description="What a shortened history takes: told by the answer; probe asks with 16 tokens where none tells.",
    )
    clear_at_least: int = Field(
        _R.clear_at_least,
        ge=1,
        description="Old results go once they are so many tokens; shorter histories feel nothing.",
    )
    clear_cold_at_least: int = Field(
        _R.clear_cold_at_least,
        ge=1,
        description="The same while the upstream's cache has forgotten the conversation anyway.",
    )
    horizon: float = Field(_R.horizon, ge=0, description="A rewrite must have paid for itself after so many requests.")
    trigger: float = Field(
        _R.trigger,
        ge=0,
        le=1,
        description="Share of the usable window over which a block is made whatever it costs; 0 is never.",
    )
    trigger_tokens: int = Field(_R.trigger_tokens, ge=0, description="The same as a number of tokens; 0 is none.")
    target: float = Field(
        _R.target, gt=0, lt=1, description="Share of the trigger that such a block brings the history down to."
    )
    min_progress: float = Field(
        _R.min_progress,
        ge=0,
        lt=1,
        description="A block that frees less than this share is not made, unless nothing else fits.",
    )
    min_groups: int = Field(
        _R.min_groups, ge=0, description="Conversations of fewer groups are left alone unless they do not fit."
    )
    keep: Keep = Field(Keep(), description="How much of the newest is left alone.")
    always: StepList = Field(
        _written(_R.always),
        description="Steps for every new message, as it arrives; they never rewrite what was forwarded.",
    )
    when_full: StepList = Field(_written(_R.when_full), description="Steps for everything older, when a block is made.")
    fold: StepList = Field(_written(_R.fold), description="Steps for a history that is still over its target then.")
    observations: tuple[ObservationPattern, ...] = Field(
        _R.observations, description="User messages in which one of these is found are results, not words of a user."
    )
    asides: tuple[Pattern, ...] = Field(
        _R.asides,
        description="A last message with one of these is about the conversation (a title, a summary of its own).",
    )
    summary: Summary = Field(Summary(), description="Summaries by a model, where clearing is not enough.")
    pins: Pins = Field(Pins(), description="What survives word for word.")

    @property
    def version(self) -> str:
        """The same for equal values, whatever the name: who reads it knows whether two replicas go by the same."""
        values = self.model_dump(mode="json", exclude={"inherit"})
        told = json.dumps([values, self.summary.prompt.text], sort_keys=True)
        return blake2b(told.encode(), digest_size=4).hexdigest()

    def rules(self, name: str) -> rules.Rules:
        return rules.Rules(
            policy=name,
            always=tuple(map(_step, self.always)),
            when_full=tuple(map(_step, self.when_full)),
            fold=tuple(map(_step, self.fold)),
            keep=rules.Keep(**self.keep.model_dump()),
            pins=pins.Pins(**self.pins.model_dump()),
            summary=self.summary.rules(),
            new_blocks=self.mode != "off",
            **{name: getattr(self, name) for name in _FIGURES},
        )


_FIGURES = (
    "clear_at_least",
    "clear_cold_at_least",
    "horizon",
    "trigger",
    "trigger_tokens",
    "target",
    "min_progress",
    "min_groups",
    "observations",
    "asides",
)


def lineage(name: str, policies: Mapping[str, Policy]) -> list[str]:
    """A policy and all it inherits from. KeyError: there is none of that name. ValueError: it inherits from itself."""
    line = [name]
    while line[-1] != DEFAULT:
        parent = policies[line[-1]].inherit
        if parent in line:
            raise ValueError(f"inherits from itself: {' -> '.join([*line, parent])}")
        line.append(parent)
    return line


def resolved(name: str, policies: Mapping[str, Policy]) -> Policy:
    """A policy with everything it inherits."""
    policy = Policy()
    for ancestor in reversed(lineage(name, policies)):
        policy = _over(policy, policies.get(ancestor, policy) if ancestor == DEFAULT else policies[ancestor])
    return policy


def _over(parent: Settings, child: Settings) -> Settings:
    """The parent with whatever the child sets, group by group."""
    said = {name: getattr(child, name) for name in child.model_fields_set}
    return parent.model_copy(
        update={
            name: _over(getattr(parent, name), value) if isinstance(value, BaseModel) else value
            for name, value in said.items()
        }
    )


def _step(entry: Mapping[str, Any]) -> Step:
    """`{clear_results: {over: 800}}` as the step itself. ValueError: it is none, or has no such setting."""
    if len(entry) != 1:
        raise ValueError("a step is one name with its settings: `- clear_results: {over: 800}`")
    ((name, settings),) = entry.items()
    if name not in STEPS:
        raise ValueError(f"there is no step {name!r}; the steps are {', '.join(STEPS)}")
    return STEPS[name](**dict(_settings_of(name).model_validate(settings or {})))


@cache
def _settings_of(name: str) -> type[BaseModel]:
    """A step's fields as settings that are checked."""
    kind: Any = STEPS[name]
    types = get_type_hints(kind)
    checked: dict[str, Any] = {field.name: (types[field.name], field.default) for field in fields(kind) if field.init}
    return create_model(name, __config__=ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True), **checked)
