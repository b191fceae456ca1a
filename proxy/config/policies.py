"""Policies: when a conversation is shortened, how, and by how much.

1. `proxy.shorten.rules.Rules` declares the settings that decide about a history; `RequestSettings` those for the rest
   of a request. `Policy` has both.
2. A policy inherits from another one: a value that is not set is the parent's (`resolve_policy`).
3. `Policy.rules()` compiles it to `Rules`: steps are built, tool rules applied, the prompt read.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from hashlib import blake2b
from importlib import resources
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from proxy.config.declared import build_model
from proxy.config.prompt_files import SHIPPED_PROMPTS, PromptName, read_prompt
from proxy.config.step_settings import STEP_LISTS, StepChanges, StepList, build_step, write_steps
from proxy.config.tool_rules import ToolConfig, add_steps, apply_rules, list_hints
from proxy.config.values import ConfigModel, Seconds
from proxy.history.pins import Pins
from proxy.shorten.pipeline import Step
from proxy.shorten.rules import Keep, Rules
from proxy.shorten.summary import SummaryRules

DEFAULT = "default"
_DEFAULTS = Rules()

Model = TypeVar("Model", bound=BaseModel)


class SummaryConfig(build_model(SummaryRules, {}), ConfigModel):  # type: ignore[misc] # (mypy cannot run it)
    """Summaries of the old part of a history, written by a model if shortening old results is not enough."""

    upstream: str = ""
    """Upstream to ask, with its own key. Empty: the upstream of the conversation."""
    model: str = ""
    """Model to ask. Empty: the model of the conversation, which has it cached. A cheaper model has to read it all."""
    prompt: PromptName = read_prompt(SHIPPED_PROMPTS[0])
    """Instructions for the summary: `structured`, `workflow` (for agents that follow a procedure), or the path of a
    text file of your own."""
    wait: Seconds = Field(8.0, ge=0)
    """Seconds that a request waits for a summary if its history, or the next one, may not fit without it. After that it
    is forwarded as it is if it fits, and else shortened without a model."""
    seconds: Seconds = Field(180.0, gt=0)
    """Seconds after which a call for a summary is given up. A client that asks for a summary waits as long."""

    def rules(self) -> SummaryRules:
        values = _shared_values(self, SummaryRules)
        if self.upstream or self.model:
            values["call"] = "transcript"
        values |= {"prompt": self.prompt.text, "headings": self.prompt.headings}
        return SummaryRules(**values)


class RequestSettings(ConfigModel):
    """The settings of a policy that do not decide how a history is shortened."""

    inherit: str = DEFAULT
    """Policy to take all values from that are not set here."""
    mode: Literal["auto", "observe", "off"] = "auto"
    """`auto` shortens histories, `observe` only reports what it would do, `off` changes nothing new."""
    estimator: Literal["tokens", "chars"] = "tokens"
    """How the size of a history is measured: `tokens` by the model's tokenizer and the usage that the upstream reports,
    `chars` as the characters of its JSON / 4."""
    headers: bool = True
    """Let clients change the mode of a request by the header x-compaction. Set it to false to enforce the policy."""
    recall: Literal["off", "on"] = "off"
    """`on` offers the model a tool that returns shortened messages word for word; the proxy answers its calls, unseen
    by the client. With `off` the model has to call its own tools again."""
    compact_tool: bool = False
    """Offer the model a tool named Compact, by which it asks for a shorter history itself; the proxy answers its calls,
    unseen by the client."""
    compact_command: bool = True
    """Shorten the history at once if a user's last message is `/compact`, or if the model calls a tool named Compact of
    the client. Set it to false to pass both on like any other message."""
    transcripts: bool = True
    """Save the original conversations under this policy (see `transcripts` in the main part of the file)."""
    without_originals: Literal["never", "to_fit", "always"] = "to_fit"
    """What to shorten while originals cannot be saved, as on a full disk: `never` anything new, `to_fit` only what
    would not fit into the window, `always` everything."""
    usage: Literal["upstream", "client_view"] = "upstream"
    """Token counts that the client sees: the `upstream`'s, or with `client_view` those of the history that the client
    sent. Set `client_view` for clients that compact by themselves."""
    cache_marks: Literal["off", "auto"] = "off"
    """`auto` sets cache marks (`cache_control`) for clients that set none, for models of Anthropic, which cache only
    what is marked. `off` sets none."""
    recount: Literal["answer", "probe"] = "answer"
    """How the size of a shortened history is learned: from the usage in the next `answer`, or by a `probe` request for
    16 tokens if answers report no usage."""


class Policy(
    build_model(  # type: ignore[misc] # (mypy cannot run it)
        Rules,
        {
            "always": (StepList, write_steps(_DEFAULTS.always)),
            "when_full": (StepList, write_steps(_DEFAULTS.when_full)),
            "fold": (StepList, write_steps(_DEFAULTS.fold)),
            "summary": (SummaryConfig, SummaryConfig()),
        },
        RequestSettings,
    ),
    RequestSettings,
):
    """A policy: when a conversation is shortened, how, and by how much."""

    steps: StepChanges = Field(default_factory=dict)
    """Settings of listed steps to change, such as `{clear_results: {keep_recent: 3}}`. All others stay as they are."""
    tools: dict[str, ToolConfig] = Field(default_factory=dict)
    """What to do with old calls, by tool (globs, case ignored), whichever steps are listed. A policy adds to the tools
    of its parent."""

    @model_validator(mode="after")
    def _refuse_double_settings(self) -> "Policy":
        for lists in STEP_LISTS:
            if lists not in self.model_fields_set:
                continue
            for entry in getattr(self, lists):
                ((name, settings),) = entry.items()
                for setting, value in self.steps.get(name, {}).items():
                    if (settings or {}).get(setting, value) != value:
                        raise ValueError(f"`{setting}` of {name} is set in `{lists}` and in `steps`: keep one of them")
        return self

    @property
    def version(self) -> str:
        """Digest of the values: equal for equal values, so that replicas can be compared."""
        values = self.model_dump(mode="json", exclude={"inherit"})
        text = json.dumps([values, self.summary.prompt.text], sort_keys=True)
        return blake2b(text.encode(), digest_size=4).hexdigest()

    def rules(self, name: str) -> Rules:
        """Compile the policy."""
        values = _shared_values(self, Rules)
        for lists in STEP_LISTS:
            entries = getattr(self.change_steps(), lists)
            values[lists] = tuple(apply_rules(self.tools, build_step(entry)) for entry in entries)
        values["when_full"] = add_steps(self.tools, values["when_full"])
        values["keep"] = Keep(**self.keep.model_dump())
        values["pins"] = Pins(**self.pins.model_dump())
        values["summary"] = replace(self.summary.rules(), hints=list_hints(self.tools))
        return Rules(policy=name, new_blocks=self.mode != "off", trusts_usage=self.estimator == "tokens", **values)

    def change_steps(self) -> "Policy":
        """Move the changes of `steps` into the lists of steps."""
        if not self.steps:
            return self
        changed = {}
        for lists in STEP_LISTS:
            entries = []
            for entry in getattr(self, lists):
                ((name, settings),) = entry.items()
                entries.append({name: {**(settings or {}), **self.steps.get(name, {})}})
            changed[lists] = tuple(entries)
        return self.model_copy(update=changed)

    def find_listed(self, step: str) -> Mapping[str, Any] | None:
        """Return the settings that the policy lists for a step; None if it does not list it."""
        policy = self.change_steps()
        for lists in STEP_LISTS:
            for entry in getattr(policy, lists):
                if step in entry:
                    return entry[step] or {}
        return None

    def build_step(self, name: str, settings: Mapping[str, Any]) -> Step:
        """Build a step with these settings and the rules for tools. Raise ValueError if a setting cannot be used."""
        try:
            return apply_rules(self.tools, build_step({name: dict(settings)}))
        except ValidationError as invalid:
            raise ValueError(_describe_first_fault(invalid)) from None

    def change_summary(self, settings: Mapping[str, Any]) -> "Policy":
        """Change settings of summaries. Raise ValueError if one cannot be used."""
        try:
            summary = SummaryConfig.model_validate({**self.summary.model_dump(), **settings})
        except ValidationError as invalid:
            raise ValueError(_describe_first_fault(invalid)) from None
        return self.model_copy(update={"summary": summary})


def _describe_first_fault(invalid: ValidationError) -> str:
    fault = invalid.errors(include_url=False)[0]
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        message = "there is no such setting"
    return f"{'.'.join(map(str, fault['loc']))}: {message}"


def _shared_values(group: ConfigModel, kind: Any) -> dict[str, Any]:  # noqa: ANN401 (a dataclass)
    """The values of the settings that a dataclass has under the same name."""
    settings = type(group).model_fields
    return {field.name: getattr(group, field.name) for field in fields(kind) if field.name in settings}


def lineage(name: str, policies: Mapping[str, Policy]) -> list[str]:
    """List a policy and its ancestors. Raise KeyError if one is missing, ValueError if it inherits from itself."""
    line = [name]
    while line[-1] != DEFAULT:
        parent = policies[line[-1]].inherit
        if parent in line:
            raise ValueError(f"inherits from itself: {' -> '.join([*line, parent])}")
        line.append(parent)
    return line


def resolve_policy(name: str, policies: Mapping[str, Policy]) -> Policy:
    """Put the values of a policy over those of its ancestors."""
    policy = Policy()
    for ancestor in reversed(lineage(name, policies)):
        child = policies.get(ancestor)
        if child is not None:  # `default` need not be configured
            steps = _override_steps(policy.steps, child)
            policy = _override(policy, child).model_copy(update={"steps": steps}).change_steps()
    return policy


def _override_steps(inherited: Mapping[str, Any], child: Policy) -> dict[str, Any]:
    """Put the child's changes of steps over inherited ones, which end at steps that the child lists anew."""
    changes = dict(inherited)
    for lists in STEP_LISTS:
        if lists in child.model_fields_set:
            for entry in getattr(child, lists):
                changes.pop(next(iter(entry)), None)
    for name, settings in child.steps.items():
        changes[name] = {**changes.get(name, {}), **settings}
    return changes


def _override(parent: Model, child: Model) -> Model:
    """Copy the parent with every value that the child sets."""
    changed = {}
    for name in child.model_fields_set:
        old, new = getattr(parent, name), getattr(child, name)
        if isinstance(new, BaseModel):
            new = _override(old, new)
        elif isinstance(new, dict):
            # The child's own come first: of several globs that match a tool, the first counts.
            new = {**new, **{key: value for key, value in old.items() if key not in new}}
        changed[name] = new
    return parent.model_copy(update=changed)


@cache
def shipped_policies() -> Mapping[str, Policy]:
    """The policies that need no configuration, besides `default`: shipped.yaml."""
    text = resources.files("proxy.config").joinpath("shipped.yaml").read_text(encoding="utf-8")
    return {name: Policy.model_validate(values) for name, values in yaml.safe_load(text).items()}
