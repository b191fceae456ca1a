"""Policies: when a conversation is shortened, how, and by how much; attachments: which policy a request gets.

1. `proxy.shorten.rules.Rules` declares the settings that decide about a history; `RequestSettings` the others.
2. A policy inherits from another one (`Config.policy`, `Policy.override`).
3. `Policy.rules()` compiles it to `Rules`: steps are built, tool rules applied, the prompt read.
"""

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from hashlib import blake2b
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from msgspec import Struct
from msgspec.structs import fields, replace
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from proxy.config.declared import STEP_LISTS, ShareOrAuto, StepChanges, StepList, build_model, build_step, is_own_step
from proxy.config.values import ALL_PERCENT, ConfigModel, Percent
from proxy.history.pins import Pins
from proxy.shorten.clear_results import ClearResults
from proxy.shorten.pipeline import Step
from proxy.shorten.rules import Keep, Rules
from proxy.shorten.summary import SummaryRules
from proxy.shorten.tool_designs import ClearArguments, DedupOld, PruneTools, ToolHints
from proxy.tools.tool_call import Hint
from proxy.wire.cache_placement import Choice

SHIPPED_PROMPTS = ("structured", "workflow")


class Prompt(Struct, frozen=True):
    name: str
    text: str
    headings: tuple[str, ...] = ()
    """Sections that an answer should have."""

    def __str__(self) -> str:
        return self.name


def read_prompt(name: str) -> Prompt:
    """*name*: of a shipped prompt, or the path of a file. Raise ValueError if there is neither."""
    if name in SHIPPED_PROMPTS:
        return _read_shipped(name)
    try:
        return Prompt(name, Path(name).read_text(encoding="utf-8-sig").strip())
    except (OSError, ValueError):
        raise ValueError(
            f"no prompt: write one of {', '.join(SHIPPED_PROMPTS)}, or the path of a text file that can be read"
        ) from None


@cache
def _read_shipped(name: str) -> Prompt:
    text = resources.files("proxy.config").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")
    return Prompt(name, text.strip(), tuple(re.findall(r"^## (.*)", text, re.MULTILINE)))


class SubsumesConfig(ConfigModel):
    """The arguments of a tool that say which part of which document a call returns."""

    path: str = Field(min_length=1)
    """Argument with the name of the document."""
    start: str = ""
    """Argument with the first line or page, or with both ends, such as `[1, 50]`."""
    end: str = ""
    """Argument with the last line or page."""
    count: str = ""
    """Argument with the number of lines or pages."""

    @model_validator(mode="after")
    def _name_a_range(self) -> "SubsumesConfig":
        if not (self.start or self.end or self.count):
            raise ValueError("name the argument of `start`, `end` or `count` too: equal calls need no `subsumes`")
        return self


class ToolConfig(ConfigModel):
    """Rules for old calls of a tool. They come before the settings of the steps."""

    request: Literal["keep", "strip", "remove"] | None = None
    """What to do with arguments of old calls: `keep`, `strip` long texts, or `remove` the call with its result."""
    response: Literal["keep", "strip", "remove"] | None = None
    """What to do with results of old calls: `keep`, `strip` long texts, or `remove` the call with its result."""
    dedup: bool | None = None
    """Whether a repeated call makes the older one obsolete (`dedup_old`)."""
    subsumes: SubsumesConfig | None = None
    """Arguments by which a later call of a wider range makes an older one obsolete."""


ToolRules = Mapping[str, ToolConfig]
"""By tool (glob): of several that match, the first that names a setting counts."""


def list_hints(tools: ToolRules) -> tuple[Hint, ...]:
    return tuple((glob, tool.request or "", tool.response or "") for glob, tool in tools.items())


def apply_rules(tools: ToolRules, step: Step) -> Step:
    if isinstance(step, DedupOld):
        named = [(glob, tool.subsumes) for glob, tool in tools.items() if tool.subsumes is not None]
        subsumes = [(glob, part.path, part.start, part.end, part.count) for glob, part in named]
        hints = (*_list_repeats(tools), *step.hints)
        return replace(step, hints=hints, subsumes=(*subsumes, *step.subsumes))
    if hasattr(step, "hints"):
        return replace(step, hints=(*list_hints(tools), *step.hints))  # type: ignore[type-var]  # a step is a struct
    return step


def add_steps(tools: ToolRules, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Add steps for rules that no step of `when_full` would carry out."""
    steps_by_kind: dict[type, Any] = {type(step): step for step in reversed(steps)}
    added_steps: list[Step] = []
    if DedupOld not in steps_by_kind and True in dict(_list_repeats(tools)).values():
        added_steps.append(apply_rules(tools, DedupOld(exempt=("*",))))
    clearing = steps_by_kind.get(ClearResults)
    hints, has_work = [], False
    for glob, request, response in list_hints(tools):
        own_request = "keep" if request == "strip" and ClearArguments in steps_by_kind else request
        own_response = "keep" if response == "strip" and clearing else response
        hints.append((glob, own_request, own_response))
        has_work = has_work or not {"strip", "remove"}.isdisjoint((own_request, own_response))
    if has_work and ToolHints not in steps_by_kind:
        like = clearing or ClearResults()
        undone = ToolHints(hints=tuple(hints), request="keep", response="keep")
        added_steps.append(replace(undone, over=like.over, template=like.template, keep_recent=like.keep_recent))
    # The steps are added before the one that clears results: a call that is removed needs no placeholder.
    for index, step in enumerate(steps):
        if isinstance(step, ClearResults | PruneTools):
            return (*steps[:index], *added_steps, *steps[index:])
    return (*steps, *added_steps)


def _list_repeats(tools: ToolRules) -> tuple[tuple[str, bool], ...]:
    rules = [(glob, tool) for glob, tool in tools.items() if tool.dedup is not None or tool.subsumes is not None]
    return tuple((glob, tool.dedup is not False) for glob, tool in rules)


DEFAULT = "default"
SMALL_WINDOW_TOKENS = 32_000
"""In smaller windows calls for summaries are a large part of all tokens that a model reads."""
Model = TypeVar("Model", bound=BaseModel)


class SummaryConfig(build_model(SummaryRules)):  # type: ignore[misc] # (mypy cannot run it)
    """Summaries of the old part of a history, written by a model if shortening old results is not enough."""

    upstream: str = ""
    """Upstream to ask, with its own key. Empty: the upstream of the conversation."""
    model: str = ""
    """Model to ask. Empty: the model of the conversation, which has it cached."""
    prompt: Annotated[
        Prompt,
        BeforeValidator(lambda value: read_prompt(str(value))),
        PlainSerializer(str),
        WithJsonSchema({"type": "string"}),
    ] = read_prompt(SHIPPED_PROMPTS[0])
    """Instructions: `structured`, `workflow` (for agents that follow a procedure), or the path of a text file. With
    `ahead: false` the first two also ask for code snippets and the next step."""

    def rules(self) -> SummaryRules:
        values = _shared_values(self, SummaryRules)
        if self.upstream or self.model:
            values["call"] = "transcript"  # another model has no cache of the conversation to go on from
        text, headings = self.prompt.text, self.prompt.headings
        if self.prompt.name in SHIPPED_PROMPTS and not self.ahead:
            # When a summary that was asked for ahead is used, the next step that it names may have been taken.
            sections = _read_shipped("at_trigger")
            text, headings = f"{text}\n\n{sections.text}", headings + sections.headings
        values |= {"prompt": text, "headings": headings}
        return SummaryRules(**values)


class RequestSettings(ConfigModel):
    """The settings of a policy that do not decide how a history is shortened."""

    inherit: str = DEFAULT
    """Policy to take all values from that are not set here."""
    mode: Literal["auto", "observe", "lossless", "off"] = "auto"
    """`auto` shortens histories, `observe` only reports what it would do, `lossless` adds cache marks and keys but
    shortens nothing new, `off` changes nothing new."""
    headers: bool = True
    """Heed the headers by which clients steer a request: `x-compaction`, its focus, and `x-conversation-id`."""
    recall: Literal["off", "on"] = "off"
    """`on` offers the model a tool that returns shortened messages word for word; `off` does not."""
    store_text: bool = True
    """`false` writes no text of a conversation to a disk, Redis, object store or log: there are no transcripts, and
    blocks and summaries are in the memory of the worker that made them."""
    transcripts: bool = True
    """Save the original conversations under this policy."""
    without_originals: Literal["never", "to_fit", "always"] = "to_fit"
    """While originals cannot be saved: shorten `never` anything new, only `to_fit` the window, or `always`."""
    usage: Literal["upstream", "client_view"] = "upstream"
    """Token counts in the usage of answers: the `upstream`'s, or with `client_view` those of the history that the
    client sent, for clients that compact by themselves. Requests that only count tokens tell those of the shortened
    history either way."""
    cache_marks: Choice = "auto"
    """`auto` adds cache marks (`cache_control`) to requests of Messages that hold tool results if the client sets none,
    and at the end of the shortened part if it sets some; `on` also to requests without results and to Chat Completions
    for models of Anthropic; `off` adds none."""
    cache_key: Choice = "auto"
    """`auto` adds a `prompt_cache_key` to requests with tools to OpenAI and Azure if the client sets none; `on` does so
    for other servers of these APIs, too; `off` adds none."""


class Policy(build_model(Rules), RequestSettings):  # type: ignore[misc] # (mypy cannot run it)
    """A policy: when a conversation is shortened, how, and by how much."""

    trigger: ShareOrAuto = Rules().trigger
    always: StepList = tuple({step.name: {}} for step in Rules().always)
    when_full: StepList = tuple({step.name: {}} for step in Rules().when_full)
    fold: StepList = tuple({step.name: {}} for step in Rules().fold)
    summary: SummaryConfig = SummaryConfig()
    steps: StepChanges = Field(default_factory=dict)
    """Settings of listed steps to change, such as `{clear_results: {keep_recent: 3}}`."""
    tools: dict[str, ToolConfig] = Field(default_factory=dict)
    """What to do with old calls, by tool (globs, case ignored), before the settings of steps."""

    @model_validator(mode="after")
    def _refuse_double_settings(self) -> "Policy":
        for lists, name, settings in self.list_steps():
            if lists == "always" and is_own_step(name):
                raise ValueError(f"always: {name}: a step of your own stands in `when_full` or `fold`")
            for setting, value in self.steps.get(name, {}).items():
                if lists in self.model_fields_set and settings.get(setting, value) != value:
                    raise ValueError(f"`{setting}` of {name} is set in `{lists}` and in `steps`: keep one of them")
        return self

    def list_steps(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """List for each step the setting with the list, its name and its settings."""
        for lists in STEP_LISTS:
            for entry in getattr(self, lists):
                for name, settings in entry.items():
                    yield lists, name, settings

    @property
    def version(self) -> str:
        """Digest of the values, so that replicas can be compared."""
        values = self.model_dump(mode="json", exclude={"inherit"})
        # The values only name the prompt, and the text of its file may change.
        text = json.dumps([values, self.summary.prompt.text], sort_keys=True)
        return blake2b(text.encode(), digest_size=4).hexdigest()

    def rules(self, name: str) -> Rules:
        values = _shared_values(self, Rules)
        values |= dict.fromkeys(STEP_LISTS, ())
        for lists, step, settings in self.change_steps().list_steps():
            values[lists] += (apply_rules(self.tools, build_step({step: settings})),)
        values["when_full"] = add_steps(self.tools, values["when_full"])
        values["keep"] = Keep(**self.keep.model_dump())
        values["pins"] = Pins(**self.pins.model_dump())
        values["summary"] = replace(self.summary.rules(), hints=list_hints(self.tools))
        return Rules(policy=name, new_blocks=self.mode in ("auto", "observe"), **values)

    def change_steps(self) -> "Policy":
        if not self.steps:
            return self
        changes: dict[str, tuple[Any, ...]] = dict.fromkeys(STEP_LISTS, ())
        for lists, name, settings in self.list_steps():
            changes[lists] += ({name: {**settings, **self.steps.get(name, {})}},)
        return self.model_copy(update=changes)

    def override(self, child: "Policy") -> "Policy":
        """Return this policy with the values that a child sets itself."""
        steps = dict(self.steps)
        for lists, step, _ in child.list_steps():
            if lists in child.model_fields_set:
                steps.pop(step, None)  # a list that is written anew holds whole steps
        for step, settings in child.steps.items():
            steps[step] = {**steps.get(step, {}), **settings}
        return _override(self, child).model_copy(update={"steps": steps}).change_steps()

    def find_listed(self, step: str) -> Mapping[str, Any] | None:
        for _, name, settings in self.change_steps().list_steps():
            if name == step:
                return settings
        return None


def _shared_values(group: ConfigModel, kind: type[Struct]) -> dict[str, Any]:
    settings = type(group).model_fields
    return {field.name: getattr(group, field.name) for field in fields(kind) if field.name in settings}


def _override(parent: Model, child: Model) -> Model:
    changes = {}
    for name in child.model_fields_set:
        parent_value, child_value = getattr(parent, name), getattr(child, name)
        if isinstance(child_value, BaseModel):
            child_value = _override(parent_value, child_value)
        elif isinstance(child_value, dict):
            # Of several globs that match a tool, the first counts.
            child_value = {**child_value, **parent_value, **child_value}
        changes[name] = child_value
    return parent.model_copy(update=changes)


@cache
def shipped_policies() -> Mapping[str, Policy]:
    text = resources.files("proxy.config").joinpath("shipped.yaml").read_text(encoding="utf-8")
    return {name: Policy.model_validate(values) for name, values in yaml.safe_load(text).items()}


def _check_public_id(key: str) -> str:
    if key.startswith("cp-"):
        raise ValueError("a key is named by its public id (the ten characters after cp-): what follows is secret")
    return key


class Attachment(ConfigModel):
    """A policy, and the requests that it applies to: those that match all of these globs."""

    policy: str = "default"
    """Policy to apply."""
    team: str = "*"
    """Teams, as a glob."""
    key: Annotated[str, AfterValidator(_check_public_id)] = "*"
    """Team keys, as a glob over their public ids."""
    model: str = "*"
    """Models, as a glob."""
    upstream: str = "*"
    """Upstreams, as a glob."""
    tag: str = "*"
    """Values of the request header x-compaction-tag, as a glob."""
    rollout: Percent = ALL_PERCENT
    """Percentage of conversations that it applies to; below 1 with its sign, such as 0.5%."""
    mode: Literal["", "auto", "observe", "lossless", "off"] = ""
    """`auto`, `observe`, `lossless` or `off` instead of the policy's own mode."""
    holdout: Percent = 0.0
    """Percentage of these conversations that is left as it is (`mode: observe`). `compaction-proxy compare` sets the
    others beside them."""

    @model_validator(mode="after")
    def _hold_out_of_something(self) -> "Attachment":
        if self.holdout and self.mode in ("observe", "off"):
            raise ValueError(
                f"`holdout` has nothing to compare with: `mode: {self.mode}` leaves all others as they are, too"
            )
        return self

    def fits(self, occasion: "Occasion") -> bool:
        return all(fnmatchcase(getattr(occasion, name), getattr(self, name)) for name in Occasion.__struct_fields__)

    def covers(self, other: "Attachment") -> bool:
        if self.rollout < other.rollout:
            return False
        return all(covers_glob(getattr(self, name), getattr(other, name)) for name in Occasion.__struct_fields__)


def covers_glob(wide: str, narrow: str) -> bool:
    """Tell if all that matches *narrow* also matches *wide*. False if that is hard to tell."""
    if wide in ("*", narrow):
        return True
    if "*" not in wide or "?" in wide or "[" in wide:
        return False
    return fnmatchcase(re.sub(r"[*?]|\[[^]]+\]", "\0", narrow), wide)


class Occasion(Struct, frozen=True):
    team: str = ""
    key: str = ""
    model: str = ""
    upstream: str = ""
    tag: str = ""


class RolloutChoice(Struct, frozen=True):
    policy: str
    mode: str = ""
    rollout: float = ALL_PERCENT
    place: tuple[str | int, ...] = ()
    holdout: float = 0.0
