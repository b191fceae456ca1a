"""`replay`: replay saved conversations turn by turn through policies or a running proxy, and print the scorecard.

Nothing is sent anywhere unless a proxy (`--through`) or a model (`--summarizer`) is named.
"""

import argparse
import asyncio
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TextIO

from msgspec import Struct
from msgspec.structs import replace

from proxy.cli import options
from proxy.cli.options import add_command, format_table, parse_path, parse_whole_number, print_error
from proxy.config.settings import Config, Upstream
from proxy.foundation.errors import ProxyError
from proxy.lab import report, sessions
from proxy.lab.demo.model import SimulatedServer
from proxy.lab.replay import sample, scorecard, summarizers
from proxy.lab.replay.conclusion import conclude
from proxy.lab.replay.designs import DESIGNS, NOTHING
from proxy.lab.replay.replay_history import HABITS, encode
from proxy.lab.replay.replay_jobs import ResultFile, replay_all
from proxy.lab.replay.replay_values import MODEL, PRICES, Conversation, Result
from proxy.lab.replay.scorecard import Column, Row
from proxy.lab.replay.scoring import UpstreamModel
from proxy.lab.replay.simulation import Trial, build_rules
from proxy.lab.replay.summarizers import ModelSummarizer, ReplaySummarizer, StandIn
from proxy.lab.replay.through import AllFailedError, ProxyTarget, Recorder, replay_through
from proxy.lab.sessions.session_files import UnreadableError
from proxy.shorten.pipeline import estimate_tokens


def _parse_output_path(text: str) -> Path:
    """Refuse a path that cannot be written before the work is done."""
    path = Path(text)
    target = path if path.exists() else path.parent
    if path.is_dir() or not os.access(target, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be written: no such folder, or not permitted")
    return path


def keep_large(conversations: Sequence[Conversation], tokens: int) -> list[Conversation]:
    return [conversation for conversation in conversations if _count(conversation) >= tokens]


def _count(conversation: Conversation) -> int:
    return sum(estimate_tokens(encode(message)) for message in conversation.messages)


def take_part(conversations: Sequence[Conversation], part: int, parts: int) -> list[Conversation]:
    """Count from 1. The parts have no conversation in common, and nothing is left over."""
    groups: dict[str, list[Conversation]] = {}
    for conversation in conversations:
        groups.setdefault(conversation.source, []).append(conversation)
    dice = random.Random(SEED)  # noqa: S311 (no secret)
    chosen: set[int] = set()
    for group in groups.values():
        shuffled = dice.sample(group, len(group))
        chosen.update(map(id, shuffled[part - 1 :: parts]))
    return [conversation for conversation in conversations if id(conversation) in chosen]


SEED = 1
_WIDTH_CHARACTERS = 30
_REDRAW_SECONDS = 0.1
_MINUTE_SECONDS = 60


class ProgressBar(Struct):
    out: TextIO
    what: str
    began: float = 0.0
    known: int = 0
    drawn: float = 0.0

    def __call__(self, done: int, of: int) -> None:
        now = monotonic()
        if not self.began:
            self.began, self.known = now, done
        if self.out.isatty() and (now - self.drawn >= _REDRAW_SECONDS or done == of):
            self.drawn = now
            self.out.write(
                f"\r{draw_bar(done, of, self.what)}{self._time_left(now, done, of)}\x1b[K" + "\n" * (done == of)
            )
            self.out.flush()

    def _time_left(self, now: float, done: int, of: int) -> str:
        if not self.known < done < of:
            return ""
        seconds = round((now - self.began) * (of - done) / (done - self.known))
        return f", {seconds // _MINUTE_SECONDS}:{seconds % _MINUTE_SECONDS:02} left"


def draw_bar(done: int, of: int, what: str) -> str:
    full = _WIDTH_CHARACTERS * done // of if of else _WIDTH_CHARACTERS
    return f"[{'#' * full}{'.' * (_WIDTH_CHARACTERS - full)}] {done:,} of {of:,} {what}"


BY = {"source": scorecard.by_source, "third": scorecard.by_third}
DEFAULT_WINDOW_TOKENS = 128_000
PORT_MAX = 65_535
PUBLISHED_POLICIES = (NOTHING, "sliding-10", "just-under-60k", "batched-20k", "middleware", "jp", "blocks", "default")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    what = "replay saved conversations: what each policy costs, and how much of what the agent needs it keeps"
    parser = add_command(
        commands,
        "replay",
        what,
        "replay ~/.claude/projects --html report.html",
        "replay --sample --policy default --json",
        "replay session.jsonl --window 200000 --prices model",
    )
    parser.add_argument(
        "files",
        metavar="FILE",
        type=parse_path,
        nargs="*",
        help="sessions, requests, or folders of them; `-` for standard input",
    )
    parser.add_argument("--sample", action="store_true", help="replay built-in sample conversations")
    _add_choice_options(parser)
    _add_trial_options(parser)
    _add_upstream_options(parser)
    _add_output_options(parser)
    options.add_config(parser)
    parser.set_defaults(run=run_replay)


def _add_choice_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--least-tokens",
        metavar="N",
        type=parse_whole_number,
        default=0,
        help="only conversations whose messages come to at least N tokens",
    )
    parser.add_argument(
        "--part",
        metavar="K/N",
        type=_parse_part,
        help="only the K-th of N parts, which share every source alike",
    )


def _add_trial_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", metavar="P", action="append", help="only this policy; may be repeated")
    parser.add_argument("--all", action="store_true", help="all policies of the published scorecard")
    parser.add_argument(
        "--summarizer",
        metavar="S",
        type=_parse_summarizer,
        default="stand-in",
        help="`stand-in`, `none`, or a model's URL",
    )
    parser.add_argument(
        "--summarizer-model", metavar="M", default="", help="model to ask there (default: the conversation's)"
    )
    parser.add_argument(
        "--through",
        metavar="URL",
        type=_parse_url,
        help="replay through this running proxy; it must forward to --listen",
    )
    parser.add_argument("--name", metavar="NAME", default="", help="its name in the tables (default: its URL)")
    parser.add_argument(
        "--listen",
        metavar="PORT",
        type=partial(parse_whole_number, maximum=PORT_MAX),
        default=9900,
        help="port of the recording upstream (default 9900)",
    )


def _add_upstream_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--window",
        metavar="N",
        type=partial(parse_whole_number, minimum=1),
        default=DEFAULT_WINDOW_TOKENS,
        help=f"of the model (default {DEFAULT_WINDOW_TOKENS:,})",
    )
    parser.add_argument("--cache", choices=HABITS, default="provider", help="how the upstream caches")
    parser.add_argument(
        "--prices",
        choices=(*PRICES, MODEL),
        action="append",
        help="price model by which policies decide and costs are shown: cached input at a tenth, twentieth or "
        "fortieth of its price, or `model`: each model's own; may be repeated (default: the first three)",
    )
    parser.add_argument("--model", metavar="M", default="", help="model for prices, instead of the recorded one")


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=partial(parse_whole_number, minimum=1),
        default=1,
        help="number of processes (default 1)",
    )
    parser.add_argument(
        "--out", metavar="FILE", type=_parse_output_path, help="file for results; an interrupted run continues from it"
    )
    parser.add_argument("--by", choices=BY, help="more tables: by kind of agent, or for a third kept apart")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--html", metavar="FILE", type=_parse_output_path, help="write an HTML report to this file")


def _parse_part(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    try:
        chosen = int(part), int(parts)
    except ValueError:
        raise argparse.ArgumentTypeError("must be like 1/5") from None
    if not 1 <= chosen[0] <= chosen[1]:
        raise argparse.ArgumentTypeError("must be like 1/5, from 1/5 to 5/5")
    return chosen


def _parse_url(text: str) -> str:
    try:
        Upstream(base_url=text)
    except ValueError:  # not quoted: it may hold a password
        raise argparse.ArgumentTypeError("must be an http(s) URL without credentials and query") from None
    return text


def _parse_summarizer(text: str) -> str:
    return text if text in ("stand-in", "none") else _parse_url(text)


def run_replay(args: argparse.Namespace) -> int:
    config = options.load_configuration(args, needs_secrets=False).config
    try:
        conversations = _read_conversations(args)
        results = _replay_all(args, config, conversations)
        if args.html:
            args.html.write_text(report.page(results), encoding="utf-8")
    except (OSError, UnreadableError, UnknownPolicy, ProxyError, AllFailedError) as fault:
        return print_error(options.describe_fault(fault))
    with suppress(BrokenPipeError):
        _print(args, results)
    return 0


class UnknownPolicy(ValueError):
    """No policy or design has this name."""


def _read_conversations(args: argparse.Namespace) -> list[Conversation]:
    if not (args.files or args.sample):
        raise UnreadableError("nothing to replay: name files, or use --sample")
    read = [session for path in args.files for session in sessions.read_sessions(path)]
    for remark in _remarks(read):
        print(remark, file=sys.stderr)  # noqa: T201
    conversations = sample.conversations() if args.sample else []
    conversations += [conversation for session in read for conversation in session.conversations]
    if not conversations:
        raise UnreadableError("these files hold no conversation with a request")
    return _choose(args, conversations)


def _choose(args: argparse.Namespace, conversations: list[Conversation]) -> list[Conversation]:
    chosen = keep_large(conversations, args.least_tokens) if args.least_tokens else conversations
    if args.part:
        part, parts = args.part
        chosen = take_part(chosen, part, parts)
    if not chosen:
        raise UnreadableError("none of the conversations is chosen")
    return chosen


def _remarks(read: Sequence[sessions.RecordedSession]) -> Iterator[str]:
    notes = Counter("files of unknown form, skipped" for session in read if not session.format)
    for session in read:
        notes.update(session.notes)
    yield from (f"{what}: {times:,}" for what, times in notes.items())


def _replay_all(args: argparse.Namespace, config: Config, conversations: Sequence[Conversation]) -> list[Result]:
    """Without a policy and a proxy: nothing and the default."""
    upstream = UpstreamModel(args.window, HABITS[args.cache], args.model)
    ledger, bar = ResultFile(args.out), ProgressBar(sys.stderr, "conversations")
    names: Sequence[str] = args.policy or ()
    if not names and args.all:
        names = PUBLISHED_POLICIES
    elif not names and not args.through:
        names = (NOTHING, "default")
    trials = []
    for name in names:
        trials += _build_trials(args, config, name)
    results = []
    if trials:
        results = replay_all(conversations, trials, upstream, ledger=ledger, jobs=args.jobs, progress=bar)
    if args.through:
        results += asyncio.run(_replay_through(args, conversations, upstream, ledger))
    return results


async def _replay_through(
    args: argparse.Namespace, conversations: Sequence[Conversation], upstream: UpstreamModel, ledger: ResultFile
) -> list[Result]:
    recorder = Recorder(upstream)
    door = ProxyTarget(args.through, args.name or args.through, _read_key() or "sk-replay")
    bar = ProgressBar(sys.stderr, f"conversations through {door.name}")
    async with SimulatedServer(recorder, args.listen) as listening:
        print(f"recording on {listening.url}: the proxy must forward to it", file=sys.stderr)  # noqa: T201
        return await replay_through(conversations, door, recorder, ledger=ledger, progress=bar)


def _build_trials(args: argparse.Namespace, config: Config, name: str) -> list[Trial]:
    """Return one trial for each price model: prices say when a rewrite pays."""
    policy = config.policy(name) if name in config.all_policies else None
    if policy is None and name not in DESIGNS:
        raise UnknownPolicy(f"unknown policy {name!r} (known: {', '.join((*config.all_policies, *DESIGNS))})")
    rules = DESIGNS[name] if policy is None else build_rules(policy, name)
    trial = Trial(
        name=name,
        rules=rules,
        window=args.window,
        summarizer=_build_summarizer(args) if rules.summary.enabled else None,
        times=args.cache != "forever",
    )
    if not rules.new_blocks:
        return [trial]
    price_models = {prices: PRICES.get(prices) for prices in args.prices or PRICES}
    return [replace(trial, price_model=label, prices=prices) for label, prices in price_models.items()]


def _build_summarizer(args: argparse.Namespace) -> ReplaySummarizer | None:
    if args.summarizer == "none":
        return None
    return (
        StandIn()
        if args.summarizer == "stand-in"
        else ModelSummarizer(args.summarizer, args.summarizer_model, _read_key())
    )


def _read_key() -> str:
    return os.environ.get("OPENAI_API_KEY", "")  # noqa: TID251 (the one place)


def _print(args: argparse.Namespace, results: Sequence[Result]) -> None:
    if args.json:
        print(json.dumps(scorecard.as_json(results)))  # noqa: T201
    else:
        print(format_tables(results, _describe_setting(args, results), args.by))  # noqa: T201


def _describe_setting(args: argparse.Namespace, results: Sequence[Result]) -> str:
    requests = {result.conversation: result.scores.requests for result in results}
    who = summarizers.LABEL if args.summarizer == "stand-in" else args.summarizer
    return (
        f"{len(requests):,} conversation{'s' * (len(requests) != 1)}, {sum(requests.values()):,} requests, a window of "
        f"{args.window:,} tokens, cache: {args.cache}, summaries: {who}"
    )


def format_tables(results: Sequence[Result], setting: str, by: str | None = None) -> str:
    parts, prices = [setting], scorecard.list_prices(results)
    conclusions = []
    for policy, row in scorecard.group_rows(results, prices[0]).items():
        if policy != NOTHING:
            conclusions.append(conclude(policy, row, prices[0]))
    if conclusions:
        parts.insert(0, "\n".join(conclusions))
    for name in prices:
        rows = scorecard.group_rows(results, name)
        parts.append(_format("policy", f"What it is worth: {scorecard.describe_prices(name)}", rows, scorecard.WORTH))
    rows = scorecard.group_rows(results, prices[0])
    for title, columns in scorecard.TABLES.items():
        parts.append(_format("policy", f"{title} ({prices[0]})", rows, columns))
    for policy in rows if by else ():
        groups = BY[by or ""](results, policy, prices[0])
        parts.append(_format(by or "", f"{policy}, by {by} ({prices[0]})", groups, scorecard.OF_A_SOURCE))
    columns = (*scorecard.WORTH, *scorecard.SHAPE, *scorecard.KEPT)
    legend = [(column.name, column.title) for column in columns if column.name != column.title]
    parts.append("What the columns say (more: docs/replay-your-sessions.md)\n" + format_table(("column", ""), legend))
    return "\n\n".join(parts)


def _format(first: str, title: str, rows: Mapping[str, Row], columns: Sequence[Column]) -> str:
    head = [first, *(column.name for column in columns)]
    return f"{title}\n{format_table(head, scorecard.fill_cells(rows, columns))}"
