"""`compact`: compact a saved conversation and report the effect.

Nothing is sent anywhere, unless a model is asked for a summary, or for the turns that are off the track.

`--step clear_results:over=800,keep_recent=3` has the settings of the policy, and those that are typed over them. A
name of the design (docs/five-documents.md, RFD 036) has the settings of the policy `jp`.
"""

import argparse
import asyncio
import json
import re
import sys
from argparse import ArgumentTypeError
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import unified_diff
from functools import partial
from itertools import islice
from typing import Any

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from proxy.cli import options
from proxy.cli.options import add_command, has_colours, parse_path, print_error
from proxy.config.declared import build_model, build_step
from proxy.config.faults import describe_first_error, parse_variable
from proxy.config.policies import DEFAULT, Policy, SummaryConfig, apply_rules
from proxy.config.settings import Config
from proxy.config.values import suggest
from proxy.decide.planning import plan_without_model
from proxy.decide.question import build_question
from proxy.history.grouping import repair
from proxy.history.messages import Message
from proxy.history.request import Request
from proxy.lab.commands import tangents
from proxy.lab.commands.tangents import Turns
from proxy.lab.demo.picture import Ink
from proxy.lab.replay.conclusion import exact_percent
from proxy.lab.sessions import session_files
from proxy.models.tokenizer import Estimator, Tokenizers
from proxy.models.windows import resolve_window
from proxy.shorten.economics import Window, price_prompt
from proxy.shorten.pipeline import Draft, Step, StepReport, run
from proxy.shorten.rules import Facts, Keep
from proxy.shorten.state import ConversationState
from proxy.shorten.steps import STEPS
from proxy.shorten.summary import Summarize, find_kept_beside
from proxy.shorten.tool_designs import PruneTools
from proxy.store.transcripts.archive import role_and_text
from proxy.tools.tool_call import EXEMPT
from proxy.wire.formats import PATHS, REQUEST_FORMATS

SUMMARY, AUTO, JP = "summary", "auto", "jp"
TANGENTS = "classify-tangents"
_SETTING = re.compile(r",(?=\w+=)")


class NamedStrategy(Struct, frozen=True):
    step: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Beyond those of the policy `jp`."""


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


class Strategy(Struct, frozen=True):
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def step(self) -> str:
        return NAMED[self.name].step if self.name in NAMED else self.name

    @property
    def is_of_design(self) -> bool:
        return self.name in NAMED or self.name == AUTO

    def build(self, policy: Policy, jp: Policy) -> tuple[Step, ...]:
        """ValueError: a setting cannot be used; the message says which."""
        if self.step == AUTO:
            return policy.rules("").when_full
        if self.step == SUMMARY:
            return ()
        listed_step = policy.find_listed(self.step)
        if listed_step is None and self.is_of_design:
            listed_step = jp.find_listed(self.step)
        own = NAMED[self.name].settings if self.name in NAMED else {}
        settings = {**(listed_step or {}), **own, **self.settings}
        try:
            return (apply_rules(policy.tools, build_step({self.step: settings})),)
        except ValueError as fault:
            why = describe_first_error(fault, build_model(STEPS[self.step]))
            raise ValueError(f"--step {self.name}: {why}") from None


def parse_strategy(text: str) -> Strategy:
    """Read `NAME` or `NAME:setting=value,setting=value`; each value is YAML."""
    name, _, settings_text = text.partition(":")
    if name == TANGENTS:
        raise ArgumentTypeError("a person has to confirm what goes: see --tangents and --drop")
    names = (*STEPS, SUMMARY, AUTO, *NAMED)
    if name not in names:
        raise ArgumentTypeError(f"there is no step {name!r}{suggest(name, names)} (there are {', '.join(names)})")
    settings = dict[str, Any]()
    for pair in _SETTING.split(settings_text) if settings_text else ():
        setting, equals, value = pair.partition("=")
        if not equals:
            raise ArgumentTypeError(f"{pair!r} is no setting: write {name}:setting=value,setting=value")
        settings[setting] = parse_variable(value)
    if name == AUTO and settings:
        raise ArgumentTypeError("auto takes no settings: change them in a policy, and name it with --policy")
    return Strategy(name, settings)


def choose_policy(strategies: Iterable[Strategy]) -> str:
    if any(strategy.is_of_design for strategy in strategies):
        return JP
    return DEFAULT


def change_summary(policy: Policy, strategies: Sequence[Strategy]) -> Policy:
    """ValueError: a setting for the summary cannot be used."""
    for strategy in strategies:
        if strategy.step == SUMMARY and strategy.settings:
            try:
                summary = SummaryConfig.model_validate({**policy.summary.model_dump(), **strategy.settings})
            except ValueError as fault:
                why = describe_first_error(fault, SummaryConfig)
                raise ValueError(f"--step {strategy.name}: {why}") from None
            policy = policy.model_copy(update={"summary": summary})
    return policy


DEFAULT_MODEL = "gpt-4o"
SUMMARIZE_OVER_SHARE = 0.5


class Outcome(Struct, frozen=True):
    request: Request
    view: tuple[Message, ...]
    tools: bytes | None
    before: int
    after: int
    reason: str
    reports: Sequence[StepReport]
    window: Window = Window()
    estimator: Estimator = "tokens"

    def conclude(self) -> str:
        """Say in a sentence what the shortened request holds and costs."""
        changed_count = sum(1 for _ in iterate_changes(self.request, self.view))
        if not changed_count and self.before == self.after:
            return "No message would change."
        share = f" ({exact_percent(self.after / self.before)})" if self.before else ""
        sentence = (
            f"{self.before:,} tokens in {options.format_count(len(self.request.messages), 'message')} become "
            f"{self.after:,}{share} in {len(self.view):,}, with {options.format_count(changed_count, 'change')}"
        )
        dollars_before = price_prompt(self.window, self.before, 0)
        dollars_after = price_prompt(self.window, self.after, 0)
        if dollars_before is None or dollars_after is None:
            return f"{sentence}; no list price of the model is known."
        costs = f"${dollars_before:.4f} become ${dollars_after:.4f}"
        return f"{sentence}; {costs} at the list price of input that is not cached."

    def as_json(self) -> str:
        steps = []
        for report_of_step in self.reports:
            step = to_builtins(report_of_step)
            if not step["cause"]:
                del step["cause"]
            steps.append(step)
        report = {"tokens_before": self.before, "tokens_after": self.after, "reason": self.reason, "steps": steps}
        return json.dumps(report | {"messages_before": len(self.request.messages), "messages_after": len(self.view)})

    def as_table(self) -> str:
        rows = [self.conclude(), "", f"{'step':<20} {'messages':>8} {'tokens saved':>13}"]
        for report in self.reports:
            why = f"left out: {report.refused}" if report.refused else report.cause
            rows.append(f"{report.step:<20} {report.messages:>8,} {report.saved:>13,}   {why}".rstrip())
        if self.reason == "floor":
            rows.append("nothing was done: nothing can be removed")
        rows.append(f"{'before':<20} {len(self.request.messages):>8,} {self.before:>13,}")
        rows.append(f"{'after':<20} {len(self.view):>8,} {self.after:>13,}   {_format_share(self.after, self.before)}")
        if self.estimator == "chars":
            rows.append("tokens as this policy counts: a quarter of the characters (`estimator: chars`)")
        return "\n".join(rows)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "compact",
        "compact a saved conversation; a dry run unless --apply",
        "compact request.json",
        "compact request.json --diff",
        "compact - --apply < request.json > shorter.json",
        "compact session.jsonl --step clear_results:over=800 --keep-last 5",
        "compact session.jsonl --step strip-reasoning --step dedup-tools",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        type=parse_path,
        help="a request, a list of messages, or one message a line; `-` for standard input",
    )
    options.add_config(parser)
    parser.add_argument("--policy", metavar="P", help="by which policy (default: default; jp for its strategies)")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--step",
        metavar="S",
        action="append",
        type=parse_strategy,
        help="only this step, with the policy's settings or your own, as clear_results:over=800,keep_recent=3; may be "
        "repeated. `summary` asks the model. strip-reasoning, strip-tool-results, dedup-tools, strip-attachments, "
        "prune-tools, summarize and auto do what the design of these names says: auto is the policy's steps, and a "
        "summary only if the history still takes more than half of the window",
    )
    ways.add_argument("--tangents", action="store_true", help="ask the model which turns are off the track: a list")
    ways.add_argument(
        "--drop", metavar="N,N-N", type=tangents.parse_turn_numbers, help="drop exactly these turns, as 3,7-9"
    )
    parser.add_argument(
        "--keep-last",
        metavar="N",
        type=options.parse_whole_number,
        help="leave the newest N turns alone, and no more (in place of `keep`)",
    )
    parser.add_argument(
        "--model",
        metavar="M",
        help=f"count and judge as for this model, or ask it (default: the model of the file, or {DEFAULT_MODEL})",
    )
    parser.add_argument(
        "--window",
        metavar="N",
        type=partial(options.parse_whole_number, minimum=1),
        help="tokens the model can take, if not its own",
    )
    parser.add_argument("--dry-run", action="store_true", help="only report, which is the default")
    parser.add_argument("--apply", action="store_true", help="print the compacted request instead of the report")
    parser.add_argument("--diff", action="store_true", help="print what becomes of each message instead of the report")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.set_defaults(run=compact)


def compact(args: argparse.Namespace) -> int:
    chosen: Sequence[Strategy] = args.step or ()
    asks_model = args.tangents or any(strategy.step in (SUMMARY, AUTO) for strategy in chosen)
    loaded_config = options.load_configuration(args, needs_secrets=asks_model)
    options.print_warnings(loaded_config)
    config = loaded_config.config
    args.policy = args.policy or choose_policy(chosen)
    if fault := _find_fault(args, config):
        return print_error(fault)
    try:
        policy = change_summary(config.policy(args.policy), chosen)
        steps = [strategy.build(policy, config.policy(JP)) for strategy in chosen]
        request = _read(args)
    except (OSError, ValueError) as wrong:
        return print_error(options.describe_fault(wrong))
    rules = policy.rules(args.policy)
    if args.keep_last is not None:
        rules = replace(rules, keep=Keep(tokens=0, groups=0, turns=args.keep_last, first=rules.keep.first))
    model = args.model or request.model or DEFAULT_MODEL
    window = resolve_window(model, Window(total=args.window, origin="config") if args.window else None)
    # A policy decides by its own count. Steps that are named here are the same under every policy, and so is the count.
    estimator: Estimator = "tokens" if args.step or args.drop or args.tangents else policy.estimator
    count = Tokenizers().of(model, estimator).count
    room = window.usable_tokens(rules.summary.max_tokens if args.step else None)
    asking = tangents.ModelQuestion(config, model, count, room)
    if args.tangents:
        return tangents.list_tangents(Turns.of(request, rules), asking, as_json=args.json)
    if args.drop or args.step:
        rules = replace(rules, always=())
    facts = Facts(usable_tokens=window.usable_tokens(request.max_output), force=True)
    state = ConversationState.of(request, _index_links(request), None, rules, count=count, facts=facts)
    try:
        if args.drop:
            outcome = _drop_turns(state, args.drop)
        elif args.step:
            outcome = _apply_steps(state, zip(chosen, steps, strict=True), asking, window)
        else:
            outcome = _apply_policy(state)
    except tangents.NoListError as fault:
        return print_error(str(fault))
    return _print(replace(outcome, window=window, estimator=estimator), args)


def _find_fault(args: argparse.Namespace, config: Config) -> str:
    if args.policy not in config.all_policies:
        return f"there is no policy {args.policy!r}; there are {', '.join(config.all_policies)}"
    if args.dry_run and args.apply:
        return "--dry-run prints the report, --apply the compacted request: give one of them"
    if args.diff and (args.apply or args.json or args.tangents):
        return "--diff prints the messages: give it without --apply, --json and --tangents"
    if args.tangents and args.apply:
        return "--tangents only lists: name the turns that shall go with --drop, and then --apply"
    return ""


def _read(args: argparse.Namespace) -> Request:
    source, path = session_files.request_of(args.file, args.model or DEFAULT_MODEL)
    request = REQUEST_FORMATS[path].parse(source)
    if request is None:
        why = "no request that can be understood; the proxy would relay it as it is"
        raise session_files.UnreadableError(f"{args.file}: {why}")
    return request


def _apply_policy(state: ConversationState) -> Outcome:
    plan = plan_without_model(state)
    return Outcome(
        state.request, plan.view, plan.tools, plan.tokens_before, plan.tokens_after, plan.reason, plan.reports
    )


def _apply_steps(
    state: ConversationState,
    chosen: Iterable[tuple[Strategy, Sequence[Step]]],
    asking: tangents.ModelQuestion,
    window: Window,
) -> Outcome:
    """Run steps left to right over everything older than the kept part."""
    draft, reports = state.draft(state.rules.keep), list[StepReport]()
    for strategy, steps in chosen:
        for step in steps:
            shorter, (report,) = run((step,), draft)
            reports.append(replace(report, cause=_find_cause(step, draft, report)))
            draft = shorter
        remaining_tokens = state.size - sum(report.saved for report in reports)
        is_large = window.tokens is not None and remaining_tokens > window.tokens * SUMMARIZE_OVER_SHARE
        if strategy.step == SUMMARY or (strategy.step == AUTO and is_large):
            draft, (report,) = run((_ask_summary(state, draft, asking),), draft)
            cause = "" if report.saved else "the summary is not shorter than what it would replace"
            reports.append(replace(report, cause=cause))
    return _outcome_of(state, draft, reports, "steps")


def _find_cause(step: Step, draft: Draft, report: StepReport) -> str:
    """Tell why a step did nothing; empty if it did something, or its work was thrown away."""
    if report.refused or report.messages or report.saved:
        return ""
    if isinstance(step, PruneTools):
        return "every tool was used, or ends a task" if draft.tools else "the request offers no tools"
    if not draft.middle:
        return f"nothing is older than the {len(draft.after)} newest messages, which are kept (see --keep-last)"
    return f"found nothing for it in the {len(draft.middle)} messages that are older than what is kept"


def _ask_summary(state: ConversationState, draft: Draft, asking: tangents.ModelQuestion) -> Summarize:
    """NoListError: the model gave no summary; the message says why."""
    rules = replace(state.rules.summary, call="transcript")
    asking_state = replace(state, rules=replace(state.rules, summary=rules))
    weight = asking_state.count_tokens(draft.middle)
    kept_ids = find_kept_beside(draft, rules)
    if not draft.middle:
        raise tangents.NoListError("nothing to summarize: all of it is kept (see --keep-last)")
    question = build_question(asking_state, draft, weight, kept_ids)
    verdict = asyncio.run(tangents.ask_summary(state.request, question, asking))
    if not verdict.text:
        raise tangents.NoListError(f"the model {asking.model!r} wrote no summary: {verdict.why}")
    return Summarize(verdict.text, rules)


def _drop_turns(state: ConversationState, numbers: Collection[int]) -> Outcome:
    """Change nothing but these turns."""
    return _outcome_of(state, *Turns.of(state.request, state.rules).drop_turns(numbers, state.count), "turns")


def _outcome_of(state: ConversationState, shorter: Draft, reports: Sequence[StepReport], reason: str) -> Outcome:
    before = state.size
    after = before - sum(report.saved for report in reports)
    view = shorter.view
    if state.rules.repair:
        view = repair(view, takes_late_results=state.request.takes_late_results)
    return Outcome(state.request, view, shorter.tools, before, after, reason, reports)


def _index_links(request: Request) -> list[bytes]:
    """No block of this conversation is looked up later, so indices do."""
    return [place.to_bytes(4, "big") for place in range(len(request.body) + 1)]


def _print(outcome: Outcome, args: argparse.Namespace) -> int:
    if args.diff:
        ink = Ink(sys.stdout.isatty() and has_colours())
        print(f"{outcome.conclude()}\n")  # noqa: T201
        for line in diff_messages(outcome.request, outcome.view):
            print(_colour_line(line, ink))  # noqa: T201
        return 0
    if not args.apply:
        print(outcome.as_json() if args.json else outcome.as_table())  # noqa: T201
        return 0
    if args.drop and (
        obstacles := [f"{report.step} cannot go: {report.refused}" for report in outcome.reports if report.refused]
    ):
        return print_error("\n".join([*obstacles, "nothing was dropped"]))
    requests = REQUEST_FORMATS[PATHS[outcome.request.wire]]
    sys.stdout.buffer.write(requests.render(outcome.request, outcome.view, outcome.tools) + b"\n")
    return 0


Change = tuple[int, Sequence[Message], Sequence[Message]]
"""The index in the body of the first message, and the messages before and after."""


def iterate_changes(request: Request, view: Sequence[Message]) -> Iterator[Change]:
    """Yield the changed messages of the body in their order; the head is never changed."""
    before, after = request.body, view[request.head_size :]
    covered_indices = {index for message in after for index in range(message.start, message.stop)}
    hunks: list[tuple[int, int, Message | None]] = [(message.start, message.stop, message) for message in after]
    hunks += [(index, index + 1, None) for index in range(len(before)) if index not in covered_indices]
    for start, stop, message in sorted(hunks, key=lambda hunk: hunk[:2]):
        old_messages, new_messages = before[start:stop], [message] if message is not None else []
        if [item.raw for item in old_messages] != [item.raw for item in new_messages]:
            yield start, old_messages, new_messages


def diff_messages(request: Request, view: Sequence[Message]) -> Iterator[str]:
    """Return a unified diff, one hunk for each changed message."""
    for start, old_messages, new_messages in iterate_changes(request, view):
        first = request.head_size + start + 1
        last = first + len(old_messages) - 1
        heading = f"messages {first}-{last}" if last > first else f"message {first}"
        role = role_and_text((old_messages or new_messages)[0].raw)[0]
        yield f"@@ {heading if old_messages else 'inserted message'} ({role}) @@"
        lines = unified_diff(_list_lines(old_messages), _list_lines(new_messages), n=1, lineterm="")
        yield from islice(lines, 3, None)  # without the names of files and the first line numbers


def _list_lines(messages: Sequence[Message]) -> list[str]:
    return [line for message in messages for line in role_and_text(message.raw)[1].split("\n")]


def _colour_line(line: str, ink: Ink) -> str:
    return {"+": ink.good, "@": ink.strong, "-": ink.faint}.get(line[:1], str)(line)


def _format_share(after: int, before: int) -> str:
    return f"({exact_percent(after / before)} of before)" if before else ""
