"""`compact`: a saved conversation through the heart, to see what would become of it.

Nothing is sent anywhere, except where a model is asked for the turns that are off the track.
"""

import argparse
import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from proxy.cli import options
from proxy.cli.options import print_error
from proxy.core.messages import Message, Request
from proxy.core.pipeline import Draft, StepReport, run
from proxy.core.planning import decide, without_model
from proxy.core.rules import Facts, Rules
from proxy.core.state import ConversationState
from proxy.core.steps import STEPS
from proxy.core.window import Window
from proxy.lab import saved
from proxy.lab.commands import tangents
from proxy.lab.tangents import Turns
from proxy.tokenizer import Tokenizers
from proxy.windows import resolve_window
from proxy.wire import chat


@dataclass(frozen=True, slots=True)
class Outcome:
    """The shortened conversation, with sizes and reports."""

    request: Request
    view: tuple[Message, ...]
    tools: bytes | None
    before: int
    after: int
    reason: str
    reports: Sequence[StepReport]

    def as_json(self) -> str:
        steps = [{"step": r.step, "messages": r.messages, "saved": r.saved, "refused": r.refused} for r in self.reports]
        told = {"tokens_before": self.before, "tokens_after": self.after, "reason": self.reason, "steps": steps}
        return json.dumps(told | {"messages_before": len(self.request.messages), "messages_after": len(self.view)})

    def as_table(self) -> str:
        rows = [f"{'step':<20} {'messages':>8} {'tokens saved':>13}"]
        rows += [f"{r.step:<20} {r.messages:>8,} {r.saved:>13,}{_format_refusal(r)}" for r in self.reports]
        rows.append(f"{'before':<20} {len(self.request.messages):>8,} {self.before:>13,}")
        rows.append(f"{'after':<20} {len(self.view):>8,} {self.after:>13,}   {_format_share(self.after, self.before)}")
        return "\n".join(rows)


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("compact", help="compact a saved conversation; a dry run unless --apply")
    parser.add_argument("file", metavar="FILE", type=Path, help="a request, a list of messages, or one message a line")
    options.add_config(parser)
    parser.add_argument("--policy", metavar="P", default="default", help="by which policy (default: default)")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--step", metavar="S", action="append", choices=STEPS, help="only this step; may be repeated")
    ways.add_argument("--tangents", action="store_true", help="ask the model which turns are off the track: a list")
    ways.add_argument(
        "--drop", metavar="N,N-N", type=tangents.parse_turn_numbers, help="drop exactly these turns, as 3,7-9"
    )
    parser.add_argument("--keep-last", metavar="N", type=int, help="leave the newest N turns alone")
    parser.add_argument("--model", metavar="M", default="gpt-4o", help="count and judge as for this model, or ask it")
    parser.add_argument("--window", metavar="N", type=int, help="tokens the model can take, if not its own")
    parser.add_argument("--apply", action="store_true", help="print the compacted request instead of the report")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.set_defaults(run=compact)


def compact(args: argparse.Namespace) -> int:
    config = options.load_configuration(args).config
    if args.policy not in config.all_policies:
        return print_error(f"there is no policy {args.policy!r}; there are {', '.join(config.all_policies)}")
    if args.tangents and args.apply:
        return print_error("--tangents only lists: name the turns that shall go with --drop, and then --apply")
    policy = config.policy(args.policy)
    rules = policy.rules(args.policy)
    if args.keep_last is not None:
        rules = replace(rules, keep=replace(rules.keep, turns=args.keep_last))
    try:
        request = _read(args)
    except (OSError, saved.UnreadableError) as fault:
        return print_error(f"{args.file}: {fault}")
    window = resolve_window(args.model, Window(total=args.window, origin="config") if args.window else None)
    facts = Facts(usable_tokens=window.usable_tokens(request.max_output), force=True)
    count = Tokenizers().of(args.model, policy.estimator).count
    if args.tangents:
        asking = tangents.ModelQuestion(config, args.model, count, window.usable_tokens())
        return tangents.list_tangents(Turns.of(request, rules), asking, as_json=args.json)
    by_hand = bool(args.drop or args.step)  # then the always-steps change nothing either
    scene = ConversationState.of(
        request, _index_links(request), (), _without_always_steps(rules) if by_hand else rules, count=count, facts=facts
    )
    if args.drop:
        return _print(_drop_turns(scene, args.drop), args)
    return _print(_apply_steps(scene, args.step) if args.step else _apply_policy(scene), args)


def _read(args: argparse.Namespace) -> Request:
    request = chat.parse(saved.request_of(args.file.read_text("utf-8", "surrogateescape"), args.model))
    if request is None:
        raise saved.UnreadableError("no chat request that can be understood; the proxy would relay it as it is")
    return request


def _without_always_steps(rules: Rules) -> Rules:
    return replace(rules, always=())


def _apply_policy(scene: ConversationState) -> Outcome:
    ready = without_model(decide(scene))
    return Outcome(scene.request, ready.view, ready.tools, ready.before, ready.after, ready.reason, ready.reports)


def _apply_steps(scene: ConversationState, names: Sequence[str]) -> Outcome:
    """The named steps, left to right, over everything older than what is kept."""
    return _outcome_of(scene, *run([STEPS[name]() for name in names], scene.draft(scene.rules.keep)), "steps")


def _drop_turns(scene: ConversationState, named: Collection[int]) -> Outcome:
    """The conversation without these turns, and changed in nothing else."""
    return _outcome_of(scene, *Turns.of(scene.request, scene.rules).drop_turns(named, scene.count), "turns")


def _outcome_of(scene: ConversationState, shorter: Draft, reports: Sequence[StepReport], reason: str) -> Outcome:
    before = scene.size()
    after = before - sum(report.saved for report in reports)
    return Outcome(scene.request, shorter.view, shorter.tools, before, after, reason, reports)


def _index_links(request: Request) -> list[bytes]:
    """Indices as links: no block of this conversation is looked up later."""
    return [place.to_bytes(4, "big") for place in range(len(request.body) + 1)]


def _print(outcome: Outcome, args: argparse.Namespace) -> int:
    if not args.apply:
        print(outcome.as_json() if args.json else outcome.as_table())  # noqa: T201
        return 0
    if args.drop and (left := [f"{each.step} cannot go: {each.refused}" for each in outcome.reports if each.refused]):
        return print_error("\n".join([*left, "nothing was dropped"]))
    sys.stdout.buffer.write(chat.render(outcome.request, outcome.view, outcome.tools) + b"\n")
    return 0


def _format_refusal(report: StepReport) -> str:
    return f"   left out: {report.refused}" if report.refused else ""


def _format_share(after: int, before: int) -> str:
    return f"({after / before:.0%} of before)" if before else ""
