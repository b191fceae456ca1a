"""`replay`: replay saved conversations turn by turn through policies or a running proxy, and print the scorecard.

Nothing is sent anywhere unless a proxy (`--through`) or a model (`--summarizer`) is named.
"""

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from proxy.cli import options
from proxy.cli.options import (
    add_command,
    format_table,
    parse_output_path,
    parse_path,
    parse_whole_number,
    print_error,
)
from proxy.config import Config, Upstream
from proxy.core.window import Prices
from proxy.errors import ProxyError
from proxy.lab import report, sessions
from proxy.lab.commands.progress import ProgressBar
from proxy.lab.replay import sample, scorecard, standin
from proxy.lab.replay.cache import HABITS
from proxy.lab.replay.designs import DESIGNS, NOTHING
from proxy.lab.replay.prices import PRICES
from proxy.lab.replay.run import ResultFile, replay_all
from proxy.lab.replay.scoring import UpstreamModel
from proxy.lab.replay.simulation import Trial, build_rules
from proxy.lab.replay.summaries import ModelSummarizer, ReplaySummarizer, StandIn
from proxy.lab.replay.through import AllFailedError, ProxyTarget, Recorder, replay_through
from proxy.lab.replay.values import Conversation, Result, Scores
from proxy.lab.saved import UnreadableError
from proxy.lab.simulated import SimulatedServer

DEFAULT_WINDOW_TOKENS = 128_000
PORT_MAX = 65_535
PUBLISHED_POLICIES = (NOTHING, "sliding-10", "just-under-60k", "batched-20k", "middleware", "jp", "blocks", "default")
"""Policies of the published scorecard."""
_MODEL = "model"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    what = "replay saved conversations: tokens, cache, cost, rewrites, validity and retention of each policy"
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
    parser.add_argument(
        "--limit", metavar="N", type=parse_whole_number, default=0, help="only about N of them, evenly spread"
    )
    _add_trial_options(parser)
    _add_upstream_options(parser)
    _add_output_options(parser)
    options.add_config(parser)
    parser.set_defaults(run=run_replay)


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
        type=partial(parse_whole_number, most=PORT_MAX),
        default=9900,
        help="port of the recording upstream (default 9900)",
    )


def _add_upstream_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--window",
        metavar="N",
        type=partial(parse_whole_number, least=1),
        default=DEFAULT_WINDOW_TOKENS,
        help=f"of the model (default {DEFAULT_WINDOW_TOKENS:,})",
    )
    parser.add_argument("--cache", choices=HABITS, default="provider", help="how the upstream caches")
    prices = (*PRICES, _MODEL)
    parser.add_argument(
        "--prices",
        choices=prices,
        default=".1/1.25",
        help="prices of cached and of new input, as shares of the list price; `model`: the model's own "
        "(default .1/1.25)",
    )
    parser.add_argument(
        "--model", metavar="M", default="", help="model for prices and token counts, instead of the recorded one"
    )


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=partial(parse_whole_number, least=1),
        default=1,
        help="number of processes (default 1)",
    )
    parser.add_argument(
        "--out", metavar="FILE", type=parse_output_path, help="file for results; an interrupted run continues from it"
    )
    parser.add_argument("--by", choices=("source", "terms"), help="more tables: by kind of agent, or of term")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--html", metavar="FILE", type=parse_output_path, help="write an HTML report to this file")


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
    """Unknown policy name."""


def _read_conversations(args: argparse.Namespace) -> list[Conversation]:
    if not (args.files or args.sample):
        raise UnreadableError("nothing to replay: name files, or use --sample")
    read = [each for path in args.files for each in sessions.read_sessions(path)]
    for remark in _remarks(read):
        print(remark, file=sys.stderr)  # noqa: T201
    found = sample.conversations() if args.sample else []
    found += [conversation for session in read for conversation in session.conversations]
    if not found:
        raise UnreadableError("these files hold no conversation with a request")
    return found[:: max(1, len(found) // args.limit) if args.limit else 1]


def _remarks(read: Sequence[sessions.RecordedSession]) -> Iterator[str]:
    """Remarks on what was left out or repaired while reading, with counts."""
    noted = Counter("files of unknown form, skipped" for session in read if not session.format)
    for session in read:
        noted.update(session.notes)
    yield from (f"{what}: {times:,}" for what, times in noted.items())


def _replay_all(args: argparse.Namespace, config: Config, conversations: Sequence[Conversation]) -> list[Result]:
    """Results of the named policies and proxy; without either, of doing nothing and of the default policy."""
    upstream = UpstreamModel(args.window, HABITS[args.cache], args.model)
    ledger, bar = ResultFile(args.out), ProgressBar(sys.stderr, "conversations")
    usual = PUBLISHED_POLICIES if args.all else () if args.through else (NOTHING, "default")
    trials = [_build_trial(args, config, name) for name in args.policy or usual]
    results = replay_all(conversations, trials, upstream, ledger=ledger, jobs=args.jobs, progress=bar) if trials else []
    return results + (asyncio.run(_replay_through(args, conversations, upstream, ledger)) if args.through else [])


async def _replay_through(
    args: argparse.Namespace, conversations: Sequence[Conversation], upstream: UpstreamModel, ledger: ResultFile
) -> list[Result]:
    recorder, door = (
        Recorder(upstream),
        ProxyTarget(args.through, args.name or args.through, _read_key() or "sk-replay"),
    )
    bar = ProgressBar(sys.stderr, f"conversations through {door.name}")
    async with SimulatedServer(recorder, args.listen) as listening:
        print(f"recording on {listening.url}: the proxy must forward to it", file=sys.stderr)  # noqa: T201
        return await replay_through(conversations, door, recorder, ledger=ledger, progress=bar)


def _build_trial(args: argparse.Namespace, config: Config, name: str) -> Trial:
    policy = config.policy(name) if name in config.all_policies else None
    if policy is None and name not in DESIGNS:
        raise UnknownPolicy(f"unknown policy {name!r} (known: {', '.join((*config.all_policies, *DESIGNS))})")
    rules = DESIGNS[name] if policy is None else build_rules(policy, name)
    return Trial(
        name=name,
        rules=rules,
        window=args.window,
        prices=_find_prices(args),
        summarizer=_build_summarizer(args) if rules.summary.enabled else None,
        patience=0.0 if policy is None else policy.summary.wait,
        times=args.cache != "forever",
    )


def _find_prices(args: argparse.Namespace) -> Prices | None:
    """The prices that a policy decides with, and where the cache finds what; None: those of each model."""
    ends_only = HABITS[args.cache].ends_only
    return None if args.prices == _MODEL else replace(PRICES[args.prices], ends_only=ends_only)


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
    """Conversations, window, cache and summarizer of the run, in a sentence."""
    many = len({result.conversation for result in results})
    requests = max((scores.requests for scores in scorecard.totals(results).values()), default=0)
    who = standin.LABEL if args.summarizer == "stand-in" else args.summarizer
    return (
        f"{many:,} conversation{'s' * (many != 1)}, {requests:,} requests, a window of {args.window:,} tokens, "
        f"cache: {args.cache}, summaries: {who}"
    )


def format_tables(results: Sequence[Result], setting: str, by: str | None = None) -> str:
    """All tables as text."""
    totals = scorecard.totals(results)
    parts = [setting]
    for title, columns in scorecard.TABLES.items():
        head = ["policy", *(column.name for column in columns)]
        parts.append(f"{title}\n{format_table(head, scorecard.rows(totals, columns))}")
    if note := next(filter(None, map(scorecard.describe_estimate, totals.values())), ""):
        parts.append(f"Tokens: {note}.")
    return "\n\n".join([*parts, *_format_details(results, totals, by)])


def _format_details(results: Sequence[Result], totals: Mapping[str, Scores], by: str | None) -> Iterator[str]:
    for policy, scores in totals.items() if by else ():
        if by == "terms":
            rows = scorecard.retention_rows(scores)
            yield f"{policy}, by age and kind of term\n{format_table(scorecard.RETENTION, rows)}"
        else:
            head = ["source", *(column.name for column in scorecard.OF_A_SOURCE)]
            rows = scorecard.rows(scorecard.by_source(results, policy), scorecard.OF_A_SOURCE)
            yield f"{policy}, by source\n{format_table(head, rows)}"
