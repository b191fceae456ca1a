"""Policies: what is compacted, when, and how hard; with the prompts of summaries and the shipped policies.

Policies inherit from one another: a value that is not set is the parent's. A policy compiles to the core's `Rules`. Its
steps are written as they are called, `- clear_results: {over: 800}`, and their settings are the fields of the step
itself (proxy/shorten/steps): there is no second list of them to keep.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from hashlib import blake2b
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)

from proxy.config.values import AMOUNT_MAX, Amount, ConfigModel, ExactModel, Seconds, refuse_if, suggest
from proxy.designs.clear_arguments import ClearArguments
from proxy.designs.dedup_old import DedupOld, Subsumption
from proxy.designs.one_liners import OneLiners
from proxy.designs.prune_tools import PruneTools
from proxy.designs.strip_attachments import StripAttachments
from proxy.designs.tool_hints import ToolHints
from proxy.history import grouping
from proxy.history.agents import Hint, find_pattern_fault
from proxy.shorten import rules
from proxy.shorten.pipeline import Step
from proxy.shorten.step_registry import STEPS
from proxy.shorten.steps.clear_results import ClearResults
from proxy.shorten.steps.clip_output import ClipOutput
from proxy.shorten.steps.drop_middle import DropMiddle
from proxy.shorten.summary import SummaryRules

SHIPPED_PROMPTS = ("structured", "workflow")
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
DEFAULT = "default"
SUBSUMES_EXAMPLE = "write `tools: {NAME: {subsumes: {path: ARGUMENT, start: ARGUMENT, end: ARGUMENT}}}` in the policy"
_R = rules.Rules()


@dataclass(frozen=True, slots=True)
class Prompt:
    name: str
    text: str
    headings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


def read_prompt(name: str) -> Prompt:
    """Read a shipped prompt by its name, or a file by its path. ValueError: neither exists."""
    if name in SHIPPED_PROMPTS:
        text = resources.files("proxy.config").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")
        return Prompt(name, text.strip(), tuple(_HEADING.findall(text)))
    try:
        return Prompt(name, Path(name).read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        raise ValueError(
            f"no prompt: write one of {', '.join(SHIPPED_PROMPTS)}, or the path of a text file that can be read"
        ) from None


def _to_settings(steps: tuple[Step, ...]) -> tuple[dict[str, Any], ...]:
    """Steps as a policy writes them: with the settings that are not their own defaults."""
    return tuple({step.name: _changed_fields(step)} for step in steps)


def _changed_fields(step: Any) -> dict[str, Any]:  # noqa: ANN401 (each step is a dataclass; their protocol cannot say so)
    return {field.name: value for field in fields(step) if (value := getattr(step, field.name)) != field.default}


Settings = TypeVar("Settings", bound=BaseModel)


def _check_step(entry: dict[str, Any]) -> dict[str, Any]:
    """Check one entry of a list of steps. ValidationError: each fault, below the step's name."""
    try:
        _build_step(entry)
    except ValidationError as invalid:
        (name,) = entry
        below: Any = [{**fault, "loc": (name, *fault["loc"])} for fault in invalid.errors(include_url=False)]
        raise ValidationError.from_exception_data(name, below) from None
    return entry


Pattern = Annotated[str, refuse_if(grouping.find_pin_fault)]
ObservationPattern = Annotated[str, refuse_if(find_pattern_fault)]


def _check_changes(changes: dict[str, Any]) -> dict[str, Any]:
    """Check changed settings of steps. ValidationError: each fault of the first wrong step, below its name."""
    for name, settings in changes.items():
        _check_step({name: settings})
    return {name: settings or {} for name, settings in changes.items()}


def _describe_steps() -> dict[str, Any]:
    """JSON Schema of an object with the settings of each step."""
    about = {name: {**_settings_of(name).model_json_schema(), "type": ["object", "null"]} for name in STEPS}
    return {"type": "object", "properties": about, "additionalProperties": False}


class _StepSchema:
    """JSON Schema of the steps of a policy, with the settings of each."""

    def __get_pydantic_json_schema__(self, *_: object) -> dict[str, Any]:
        return {"type": "array", "items": {**_describe_steps(), "maxProperties": 1, "minProperties": 1}}


class _ChangesSchema:
    """JSON Schema of changed settings of steps."""

    def __get_pydantic_json_schema__(self, *_: object) -> dict[str, Any]:
        return _describe_steps()


StepList = Annotated[tuple[Annotated[dict[str, Any], AfterValidator(_check_step)], ...], _StepSchema()]
StepChanges = Annotated[dict[str, Any], AfterValidator(_check_changes), _ChangesSchema()]
STEP_LISTS = ("always", "when_full", "fold")


class KeepConfig(ConfigModel):
    """The newest messages, which are never shortened."""

    tokens: Amount = Field(_R.keep.tokens, ge=0)
    """Keep the newest message groups that fit in this many tokens. Raise it for agents that refer back a lot."""
    groups: Amount = Field(_R.keep.groups, ge=0)
    """Keep at least this many of the newest groups, whatever their size. A group is a call with its results, or one
    message."""
    turns: Amount = Field(_R.keep.turns, ge=0)
    """Keep at least this many of the newest turns. A turn is a user's message with everything up to the next."""
    first: Amount = Field(_R.keep.first, ge=0)
    """Keep this many groups of the beginning as well, for conversations that open with instructions or examples."""


class PinsConfig(ConfigModel):
    """Passages that are kept word for word, whatever is compacted. Only users and system messages can pin."""

    tags: tuple[str, ...] = ()
    """Names of tags: everything between <tag> and </tag> is kept."""
    markers: tuple[str, ...] = ()
    """Texts: each line that contains one of them is kept."""
    patterns: tuple[Pattern, ...] = ()
    """Regular expressions: each line that one of them matches is kept. One repetition (* + {n,}) in each is the limit.
    """
    budget: Amount = Field(_R.pins.budget, ge=0)
    """Bytes of pinned passages to keep in all; the oldest are dropped first."""


def _read_prompt(given: object) -> Prompt:
    return given if isinstance(given, Prompt) else read_prompt(str(given))


PromptNamed = Annotated[Prompt, BeforeValidator(_read_prompt), PlainSerializer(str), WithJsonSchema({"type": "string"})]


class SummaryConfig(ConfigModel):
    """Summaries of the old part of a history, written by a model where clearing old results is not enough."""

    enabled: bool = _R.summary.enabled
    """Ask a model for a summary. If off, old messages are replaced by a mechanical list of what was done."""
    prepare: float = Field(_R.summary.prepare, gt=0, le=1)
    """Share of the trigger at which a summary is asked for ahead of need. Lower it if requests have to wait for
    summaries."""
    ahead: bool = _R.summary.ahead
    """Ask ahead of need, in the background, and only about histories that came before. If off, a model is asked when a
    history is over its trigger, and the request waits for the summary."""
    call: Literal["aligned", "transcript"] = _R.summary.call
    """How to ask: `aligned` appends the question to the cached conversation, `transcript` sends the conversation as one
    text."""
    upstream: str = ""
    """Upstream to ask, with its own key. Empty: the upstream of the conversation."""
    model: str = ""
    """Model to ask. Empty: the model of the conversation, which has it cached. A cheaper model has to read it all."""
    prompt: PromptNamed = read_prompt(SHIPPED_PROMPTS[0])
    """Instructions for the summary: `structured`, `workflow`, or the path of a text file of your own."""
    max_tokens: Amount = Field(_R.summary.max_tokens, ge=100)
    """Longest summary in tokens. Less is asked for where the model cannot write so much, and never more than a third of
    what a compaction brings the history down to."""
    stream: bool = _R.summary.stream
    """Ask for a stream where the client's own request does. Off: summaries always come as one answer."""
    input_chars: Amount = Field(_R.summary.input_chars, ge=0)
    """With `call: transcript`, send only the first so many characters of the old part; 0 sends all that fits."""
    verbatim: float = Field(_R.summary.verbatim, ge=0, lt=1)
    """Share of the target that stays word for word behind a summary, where `keep` does not keep more."""
    wait: Seconds = Field(8.0, ge=0)
    """Seconds that a request waits for a summary where its history, or the next one, may not fit without. Then what
    fits goes on as it is, and what does not is shortened without a model. Who asks for a summary waits `seconds`."""
    seconds: Seconds = Field(180.0, gt=0)
    """Seconds after which a call for a summary is given up."""
    shape: Literal["notes", "single", "pair"] = _R.summary.shape
    """Form of the summary: `notes` between the user's own messages, `single` as one message, `pair` as one with an
    acknowledgement."""
    user_tokens: Amount = Field(_R.summary.user_tokens, ge=0)
    """With `shape: notes`, tokens of the user's messages that stay word for word: the first one, then the newest. At
    most half of what a compaction brings the history down to."""
    ledger: Amount = Field(_R.summary.ledger, ge=0)
    """Bytes for a mechanical list of files, commands and errors below the summary."""
    notes: Amount = Field(_R.summary.notes, ge=0)
    """Tokens of notes that the model writes before old results are shortened, while it can still read them; 0 asks for
    none. The policy `notes` sets 750, about 300 words."""
    scope: Annotated[Amount, Field(ge=0)] | Literal["tokens"] = _R.summary.scope
    """Number of earlier summaries before the newest, or `tokens`: as many as fit in `scope_tokens`. 0
    updates a single summary each time."""
    scope_tokens: Amount = Field(_R.summary.scope_tokens, ge=0)
    """With a `scope`, tokens that the earlier summaries may take; 0 is no limit."""
    pointer: str = _R.summary.pointer
    """Sentence to put at the end of a summary. `{path}` in it is where the originals are, `{conversation}` the id of
    the conversation; without originals there is no such sentence."""

    def rules(self) -> SummaryRules:
        aligned = self.call == "aligned" and not (self.upstream or self.model)
        values = _shared_values(self, SummaryRules)
        values |= {"call": "aligned" if aligned else "transcript"}
        # More earlier summaries than any conversation has: their tokens are the bound.
        values |= {"scope": sys.maxsize if self.scope == "tokens" else self.scope}
        values |= {"prompt": self.prompt.text, "headings": self.prompt.headings}
        return SummaryRules(**values)


def _read_trigger(given: Any) -> float | Literal["auto"]:  # noqa: ANN401 (whatever a file holds)
    try:
        share = -1 if isinstance(given, bool) else given if given == "auto" else float(given)
    except (TypeError, ValueError):
        share = -1
    if share == "auto" or 0 <= share <= 1:
        return share
    raise ValueError("must be `auto`, or a number from 0 to 1")


Trigger = Annotated[float | Literal["auto"], BeforeValidator(_read_trigger)]


def _read_clearing(amount: Any) -> int | Literal["auto"]:  # noqa: ANN401 (whatever a file holds)
    if isinstance(amount, str) and amount.lower() == "auto":
        return "auto"
    if isinstance(amount, str) and amount.isdecimal():  # of a variable
        amount = int(amount)
    if isinstance(amount, int) and 1 <= amount <= AMOUNT_MAX:
        return amount
    raise ValueError("must be `auto`, or a whole number of tokens from 1")


ClearingAmount = Annotated[Annotated[Amount, Field(ge=1)] | Literal["auto"], BeforeValidator(_read_clearing)]


class SubsumesConfig(ConfigModel):
    """The arguments of a tool that say which part of which document a call returns."""

    path: str = Field(min_length=1)
    """Argument that names the document."""
    start: str = ""
    """Argument with the first line or page, or with both ends, as in `[1, 50]`."""
    end: str = ""
    """Argument with the last one."""
    count: str = ""
    """Argument with their number."""

    @model_validator(mode="after")
    def _name_a_range(self) -> "SubsumesConfig":
        if not (self.start or self.end or self.count):
            raise ValueError("name the argument of `start`, `end` or `count` too: equal calls need no `subsumes`")
        return self


class ToolConfig(ConfigModel):
    """Rules for old calls of a tool, before what the steps of the policy say of it."""

    request: Literal["keep", "strip", "remove"] | None = None
    """What to do with the arguments of old calls: `keep`, `strip` long texts, or `remove` the call with its result."""
    response: Literal["keep", "strip", "remove"] | None = None
    """What to do with the results of old calls: `keep`, `strip` long texts, or `remove` the call with its result. What
    is kept stays with its call where a history is folded or summarized, up to half of the target."""
    dedup: bool | None = None
    """Whether a repeated call makes the older one obsolete (`dedup_old`). Set it to false where every call counts."""
    subsumes: SubsumesConfig | None = None
    """Arguments by which a later call of a wider range makes an older one obsolete. All others must be equal."""


class Policy(ConfigModel):
    """Rules of compaction: when a conversation is compacted, what is shortened, and by how much."""

    inherit: str = DEFAULT
    """Policy to take all values from that are not set here."""
    mode: Literal["auto", "observe", "off"] = "auto"
    """`auto` compacts, `observe` only reports what it would do, `off` makes no new changes to a conversation."""
    estimator: Literal["tokens", "chars"] = "tokens"
    """How a history is measured: `tokens` by the model's tokenizer and what the upstream reports, `chars` as the
    characters of its JSON / 4, whatever the upstream reports."""
    headers: bool = True
    """Let clients change the mode for a request by the header x-compaction."""
    recall: Literal["off", "on"] = "off"
    """`on` offers the model a tool that returns earlier messages word for word, from the first request of a
    conversation on that is shortened. The proxy answers its calls, and clients see nothing of it. With `off`, or in
    requests without tools, the model calls its own tools again."""
    compact_tool: bool = False
    """Offer the model a tool named Compact, with a `focus`, beside the client's own tools. The proxy answers a call
    itself: it compacts the history within the request, and clients see nothing of it. A tool of that name that the
    client offers stays the client's."""
    compact_command: bool = True
    """Compact at once on `/compact` as a user's last message, or a call of a tool named Compact that the client offers.
    Set to false to pass both to the model and the client."""
    transcripts: bool = True
    """Save transcripts of conversations under this policy (see `transcripts`)."""
    without_originals: Literal["never", "to_fit", "always"] = "to_fit"
    """What to compact while transcripts cannot be saved (a full disk): `never` nothing new, `to_fit` only what would
    not fit into the window, `always` everything."""
    usage: Literal["upstream", "client_view"] = "upstream"
    """Token counts shown to the client: the `upstream`'s, or `client_view` for those of the history as the client sent
    it. Set that for clients that compact by themselves."""
    cache_marks: Literal["off", "auto"] = "off"
    """`auto` sets cache marks (`cache_control`) for clients that set none, where the upstream caches only what ends at
    one: in Messages, and for Claude models in Chat Completions behind a gateway that passes marks on. `off` sets none.
    """
    ask_usage: bool = True
    """Ask for token counts in streams where they matter, requests for summaries among them, and hide them from clients
    that did not ask. A server that refuses the option is asked without it from then on."""
    recount: Literal["answer", "probe"] = "answer"
    """How the size of a shortened history is learned: from the next `answer`, or by a `probe` request for 16 tokens
    where answers do not tell."""
    clear_at_least: ClearingAmount = _R.clear_at_least
    """Clear old tool results once this many tokens can be freed. Shorter histories are changed only near the trigger or
    where a client asks. `auto`: 40,000, or fewer for models whose cached tokens cost over a tenth of others. A number
    is in force for every model: lower it to save more, at the price of more cache writes."""
    clear_cold_at_least: ClearingAmount = _R.clear_cold_at_least
    """The same while the upstream's cache has expired, when a rewrite costs nothing extra. `auto`: 2,000, or as much as
    clear_at_least if that is a number. Keep a number below clear_at_least."""
    always_at_least: Amount = Field(_R.always_at_least, ge=0)
    """Size of a history, in tokens, from which the steps of `always` act. 0: from clear_at_least on. Set it where
    clear_at_least is so high that nothing is ever cleared."""
    horizon: float = Field(_R.horizon, ge=0, le=AMOUNT_MAX)
    """Number of further requests within which a rewrite must have paid for itself. Lower it for short conversations."""
    trigger: Trigger = _R.trigger
    """Share of the context window (see `trigger_of`) above which the history is compacted whatever it costs. `auto`:
    0.5 of 96,000 tokens or more, up to 0.8 of fewer. 0: only where it would not fit."""
    trigger_tokens: Amount = Field(_R.trigger_tokens, ge=0)
    """The same limit as a number of tokens, whichever is lower; 0 is none. Set it for upstreams with a price step."""
    target: float = Field(_R.target, gt=0, lt=1)
    """Share of the trigger to bring the history down to. Lower it to compact harder and less often."""
    room: Amount = Field(_R.room, ge=0)
    """Tokens that must be free below the trigger after that, at most half of it. It counts before small windows, where
    the share alone would leave little room for the next requests."""
    min_progress: float = Field(_R.min_progress, ge=0, lt=1)
    """Least share of the history that a compaction must free, unless only that makes the request fit."""
    trigger_of: Literal["usable", "window"] = _R.trigger_of
    """What `trigger` is a share of: the `usable` window (less the answer and a margin), or all of the `window`."""
    headroom: float = Field(_R.headroom, ge=0, lt=1)
    """Share of the window that must stay free below `trigger`: a history is compacted over `trigger` less this. It
    must be less than `trigger`."""
    min_groups: Amount = Field(_R.min_groups, ge=0)
    """Leave conversations of fewer groups alone, unless they do not fit."""
    min_turns: Amount = Field(_R.min_turns, ge=0)
    """Leave conversations of up to this many turns alone, unless they do not fit. A turn is a user's message with
    everything up to the next; 0 sets no bound."""
    keep_documents: bool = _R.keep_documents
    """Keep instruction files (AGENTS.md, SKILL.md, rules, memory) and the text of the task that the user named whole,
    until a history does not fit otherwise."""
    working_memory: float = Field(_R.working_memory, ge=0, le=AMOUNT_MAX)
    """Newest tokens that nothing shortens while the request fits: a number of tokens, or up to 1 a share of the usable
    window. It takes at most nine tenths of what a compaction brings the history down to."""
    fold_all: bool = _R.fold_all
    """Fold everything older than `keep` when a history is folded, and not only as much as the target takes."""
    repair: bool = _R.repair
    """Where something is compacted, fill in missing results of calls and leave out results without a call."""
    keep: KeepConfig = KeepConfig()
    """The newest messages, which are never shortened."""
    always: StepList = _to_settings(_R.always)
    """Steps for each new message as it arrives. They never change what was forwarded before."""
    when_full: StepList = _to_settings(_R.when_full)
    """Steps for older messages when the history is compacted."""
    fold: StepList = _to_settings(_R.fold)
    """Steps for a history that is still over its target after that."""
    steps: StepChanges = Field(default_factory=dict)
    """Settings of listed steps to change, such as `{clear_results: {keep_recent: 3}}`. All others stay as they are."""
    tools: dict[str, ToolConfig] = Field(default_factory=dict)
    """What to do with old calls by tool (globs, case ignored), whichever steps are listed. A policy adds to the tools
    of its parent.
    """
    observations: tuple[ObservationPattern, ...] = _R.observations
    """Regular expressions for agents without tools: a user message that one of them matches is treated as a tool's
    output."""
    asides: tuple[Pattern, ...] = _R.asides
    """Regular expressions for requests about the conversation itself, such as for a title. They cause no compaction."""
    summary: SummaryConfig = SummaryConfig()
    """Summaries by a model, where clearing old results is not enough."""
    pins: PinsConfig = PinsConfig()
    """Passages that are kept word for word."""

    @model_validator(mode="after")
    def _refuse_double_settings(self) -> "Policy":
        for lists in STEP_LISTS:
            for entry in getattr(self, lists) if lists in self.model_fields_set else ():
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

    @property
    def least_trigger(self) -> float:
        """The trigger as the share that it is at least, whatever the window; 0 is none."""
        return rules.LARGE_TRIGGER if self.trigger == "auto" else self.trigger

    def find_headroom_fault(self) -> str | None:
        """Why this headroom cannot be used with this trigger; None where it can."""
        if not self.least_trigger or self.headroom < self.least_trigger:
            return None
        trigger = f"{self.least_trigger} of large windows (`auto`)" if self.trigger == "auto" else self.trigger
        return (
            f"must be less than `trigger`, which is {trigger}: with {self.headroom} of the window free below it, no "
            "history would be small enough; lower headroom, or raise trigger"
        )

    def rules(self, name: str) -> rules.Rules:
        values = _shared_values(self, rules.Rules)
        summary = replace(self.summary.rules(), hints=_list_hints(self.tools))
        build = partial(_build_step_for, self.tools)
        values |= {lists: tuple(map(build, getattr(self.change_steps(), lists))) for lists in STEP_LISTS}
        values["when_full"] = _add_steps_for(self.tools, values["when_full"])
        values |= {"keep": rules.Keep(**self.keep.model_dump()), "pins": grouping.Pins(**self.pins.model_dump())}
        values |= {"policy": name, "summary": summary, "new_blocks": self.mode != "off"}
        values["trusts_usage"] = self.estimator == "tokens"
        return rules.Rules(**values)

    def change_steps(self) -> "Policy":
        """The policy with its `steps` in its lists of steps."""
        if not self.steps:
            return self
        lists = {name: tuple(map(self._change_step, getattr(self, name))) for name in STEP_LISTS}
        return self.model_copy(update=lists)

    def find_listed(self, step: str) -> Mapping[str, Any] | None:
        """The settings that the policy lists for a step; None if it does not list it."""
        entries = (entry for name in STEP_LISTS for entry in getattr(self.change_steps(), name))
        return next((entry[step] or {} for entry in entries if step in entry), None)

    def build_step(self, name: str, settings: Mapping[str, Any]) -> Step:
        """A step with these settings that knows what the policy says of tools. ValueError: one cannot be used."""
        try:
            return _build_step_for(self.tools, {name: dict(settings)})
        except ValidationError as invalid:
            raise ValueError(_describe_first_fault(invalid)) from None

    def change_summary(self, settings: Mapping[str, Any]) -> "Policy":
        """The policy with these settings of its summaries. ValueError: one cannot be used."""
        try:
            summary = SummaryConfig.model_validate({**self.summary.model_dump(), **settings})
        except ValidationError as invalid:
            raise ValueError(_describe_first_fault(invalid)) from None
        return self.model_copy(update={"summary": summary})

    def _change_step(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        ((name, settings),) = entry.items()
        return {name: {**(settings or {}), **self.steps.get(name, {})}}


def _describe_first_fault(invalid: ValidationError) -> str:
    fault = invalid.errors(include_url=False)[0]
    why = "there is no such setting" if fault["type"] == "extra_forbidden" else fault["msg"]
    return f"{'.'.join(map(str, fault['loc']))}: {why.removeprefix('Value error, ')}"


def _shared_values(group: ConfigModel, kind: Any) -> dict[str, Any]:  # noqa: ANN401 (a dataclass of the core)
    """Values of the settings that a dataclass of the core has under the same name."""
    return {field.name: getattr(group, field.name) for field in fields(kind) if field.name in type(group).model_fields}


def lineage(name: str, policies: Mapping[str, Policy]) -> list[str]:
    """Names of a policy and its ancestors. KeyError: one of them is missing. ValueError: it inherits from itself."""
    line = [name]
    while line[-1] != DEFAULT:
        parent = policies[line[-1]].inherit
        if parent in line:
            raise ValueError(f"inherits from itself: {' -> '.join([*line, parent])}")
        line.append(parent)
    return line


def resolve_policy(name: str, policies: Mapping[str, Policy]) -> Policy:
    """Resolve a policy: its own values over those of its ancestors."""
    policy = Policy()
    for ancestor in reversed(lineage(name, policies)):
        child = policies.get(ancestor, policy) if ancestor == DEFAULT else policies[ancestor]
        steps = _override_steps(policy.steps, child)
        policy = _override(policy, child).model_copy(update={"steps": steps}).change_steps()
    return policy


def _override_steps(inherited: Mapping[str, Any], child: Policy) -> dict[str, Any]:
    """The changed settings of steps: the child's over inherited ones, these but for steps that it lists anew."""
    lists = [getattr(child, name) for name in STEP_LISTS if name in child.model_fields_set]
    listed = {name for entries in lists for entry in entries for name in entry}
    kept = {name: settings for name, settings in inherited.items() if name not in listed}
    return kept | {name: {**kept.get(name, {}), **settings} for name, settings in child.steps.items()}


def _override(parent: Settings, child: Settings) -> Settings:
    """Copy the parent with every value that the child sets."""
    values = {name: getattr(child, name) for name in child.model_fields_set}
    return parent.model_copy(
        update={name: _override_value(getattr(parent, name), value) for name, value in values.items()}
    )


def _override_value(parent: Any, child: Any) -> Any:  # noqa: ANN401 (a value of any setting)
    if isinstance(child, BaseModel):
        return _override(parent, child)
    # The child's own come first: of several globs that match a tool, the first counts.
    return (
        {**child, **{key: value for key, value in parent.items() if key not in child}}
        if isinstance(child, dict)
        else child
    )


def _build_step_for(tools: Mapping[str, ToolConfig], entry: Mapping[str, Any]) -> Step:
    """Build a step that knows what the policy says of tools."""
    step = _build_step(entry)
    match step:
        case ToolHints() | ClearResults() | ClearArguments() | ClipOutput() | StripAttachments():
            return replace(step, hints=(*_list_hints(tools), *step.hints))
        case OneLiners() | DropMiddle():
            return replace(step, hints=(*_list_hints(tools), *step.hints))
        case DedupOld():
            subsumes = (*_list_subsumptions(tools), *step.subsumes)
            return replace(step, hints=(*_list_repeats(tools), *step.hints), subsumes=subsumes)
        case _:
            return step


def _list_hints(tools: Mapping[str, ToolConfig]) -> tuple[Hint, ...]:
    return tuple((glob, tool.request or "", tool.response or "") for glob, tool in tools.items())


def _list_repeats(tools: Mapping[str, ToolConfig]) -> tuple[tuple[str, bool], ...]:
    """Whether calls make older ones obsolete, by tool: where a range is named they do, unless the policy says no."""
    named = ((glob, tool) for glob, tool in tools.items() if tool.dedup is not None or tool.subsumes is not None)
    return tuple((glob, tool.dedup is not False) for glob, tool in named)


def _list_subsumptions(tools: Mapping[str, ToolConfig]) -> tuple[Subsumption, ...]:
    declared = ((glob, tool.subsumes) for glob, tool in tools.items() if tool.subsumes is not None)
    return tuple((glob, range_.path, range_.start, range_.end, range_.count) for glob, range_ in declared)


def _add_steps_for(tools: Mapping[str, ToolConfig], steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps of `when_full`, with more for what the policy says of tools and none of its own steps would do."""
    added: list[Step] = []
    repeats = _list_repeats(tools)
    if any(is_obsolete for _, is_obsolete in repeats) and not _lists(steps, DedupOld):
        subsumes = (*_list_subsumptions(tools), *DedupOld().subsumes)
        added.append(DedupOld(exempt=("*",), hints=repeats, subsumes=subsumes))
    if not _lists(steps, ToolHints):
        added += _build_tool_hints(tools, steps)
    # Before results are cleared: what is removed needs no placeholder.
    place = next((place for place, step in enumerate(steps) if isinstance(step, ClearResults | PruneTools)), len(steps))
    return (*steps[:place], *added, *steps[place:])


def _build_tool_hints(tools: Mapping[str, ToolConfig], steps: tuple[Step, ...]) -> Iterator[ToolHints]:
    """The step that removes what the policy says, and strips what no other step of it strips; none if nothing is."""
    clearing = next((step for step in steps if type(step) is ClearResults), None)
    strips_requests = _lists(steps, ClearArguments)
    hints = tuple(
        (
            glob,
            "keep" if request == "strip" and strips_requests else request,
            "keep" if response == "strip" and clearing is not None else response,
        )
        for glob, request, response in _list_hints(tools)
    )
    if not any({"strip", "remove"} & set(hint[1:]) for hint in hints):
        return
    like = clearing or ClearResults()
    yield ToolHints(
        hints=hints,
        request="keep",
        response="keep",
        over=like.over,
        template=like.template,
        keep_recent=like.keep_recent,
    )


def _lists(steps: tuple[Step, ...], kind: type[Step]) -> bool:
    return any(isinstance(step, kind) for step in steps)


def _build_step(entry: Mapping[str, Any]) -> Step:
    """Build a step from `{clear_results: {over: 800}}`. ValueError: unknown step or setting."""
    if len(entry) != 1:
        raise ValueError("a step is one name with its settings: `- clear_results: {over: 800}`")
    ((name, settings),) = entry.items()
    if name not in STEPS:
        raise ValueError(f"there is no step {name!r}{suggest(name, STEPS)} (the steps are {', '.join(STEPS)})")
    if name == DedupOld.name and "subsumes" in (settings or {}):
        raise ValueError(f"`subsumes` of {name} is said tool by tool: {SUBSUMES_EXAMPLE}")
    return STEPS[name](**dict(_settings_of(name).model_validate(settings or {})))


# Numbers of steps: amounts, and shares of a text. With one that is negative or no number a step would fail.
_BOUNDED: Mapping[Any, Any] = {
    int: Annotated[Amount, Field(ge=0)],
    float: Annotated[float, Field(ge=0, le=1)],
}


# What a policy says `tools:` by tool.
_SAID_ELSEWHERE = {(DedupOld.name, "subsumes"), *((name, "hints") for name in STEPS if name != ToolHints.name)}


class _StepSettings(ExactModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


@cache
def _settings_of(name: str) -> type[BaseModel]:
    """Model of a step's fields, for their validation."""
    kind: Any = STEPS[name]
    types = get_type_hints(kind)
    checked: dict[str, Any] = {
        field.name: (_BOUNDED.get(types[field.name], types[field.name]), field.default)
        for field in fields(kind)
        if field.init and (name, field.name) not in _SAID_ELSEWHERE
    }
    return create_model(name, __base__=_StepSettings, **checked)


@cache
def shipped_policies() -> Mapping[str, Policy]:
    """The policies that are there without a configuration, beside `default`: shipped.yaml."""
    text = resources.files("proxy.config").joinpath("shipped.yaml").read_text(encoding="utf-8")
    return {name: Policy.model_validate(values) for name, values in yaml.safe_load(text).items()}
