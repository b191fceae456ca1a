"""Where the cost of shortened conversations goes, what is sent for it, and the least that clearing alone could cost.

python bench/cost_parts.py FILE ... [--limit N] [--jobs N]

The default policy, replayed like `make scorecard` does it, in front of a provider's cache whose reads cost .1 and whose
writes 1.25 of plain input. Tokens are a quarter of the bytes. The least is an estimate: each result that is old and
large is gone with the next request, and rewriting costs nothing; clipping, folding and observations are left aside.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path

from proxy.config.policies import resolve_policy, shipped_policies
from proxy.core.agents import EXEMPT, matches_any
from proxy.core.grouping import list_callers
from proxy.core.messages import HEAD, Message
from proxy.core.pipeline import estimate_tokens
from proxy.core.steps.standard import ClearResults, has_text_over
from proxy.core.window import compute_relative_prices
from proxy.lab import sessions
from proxy.lab.replay.cache import PROVIDER
from proxy.lab.replay.history import ReplayHistory, RequestTurn
from proxy.lab.replay.prices import PRICES, cost
from proxy.lab.replay.scoring import Judge, ReplayCase, UpstreamModel
from proxy.lab.replay.simulation import Simulation, Trial
from proxy.lab.replay.summaries import StandIn
from proxy.lab.replay.values import Conversation, Point, Tokens

WINDOW = 128_000
PRICE = PRICES["tenth"]
RULES = resolve_policy("default", shipped_policies()).rules("default")
OVER = next(step.over for step in RULES.when_full if isinstance(step, ClearResults))
NEW, PAUSED, REWRITTEN, READ, SUMMARIES = PARTS = (
    "what is new in a request, written for the first time",
    "the whole request, written after a pause of more than five minutes",
    "what blocks made new while the cache was warm",
    "what the cache had, read",
    "calls for summaries",
)
PLACEHOLDER_TOKENS = (0, 150)
"""Of what stands for a result in the estimates of the least."""


@dataclass
class Sums:
    """Sums over conversations: costs in tokens of plain input, and tokens that were sent."""

    plain: Counter[str] = field(default_factory=Counter)
    """What doing nothing costs, by part."""
    default: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    """Tokens that the default sends, by kind."""
    plain_sent: int = 0
    least: Counter[int] = field(default_factory=Counter)
    """By the tokens of a placeholder."""

    def add(self, other: "Sums") -> None:
        self.plain += other.plain
        self.default += other.default
        self.sent += other.sent
        self.plain_sent += other.plain_sent
        self.least += other.least


def measure(conversation: Conversation) -> Sums:
    """One conversation under the default."""
    case = ReplayCase(ReplayHistory(conversation), UpstreamModel(WINDOW))
    simulation = Simulation(
        Trial("default", RULES, WINDOW, PRICE, StandIn()), case.history, compute_relative_prices(case.prices)
    )
    judge, sums = Judge(case), Sums()
    for turn in case.turns:
        sent = simulation.forward(turn)
        judge.score(turn, sent)
        sums.sent += count_kinds(sent.view, sent.tools)
        sums.plain_sent += count_kinds(turn.request.messages, turn.request.tools).total()
    result = judge.result("default")
    sums.plain = split_cost((point, point.raw, point.raw_cached, False) for point in result.points)
    sums.default = split_cost((point, point.forwarded, point.cached, point.rewrote) for point in result.points)
    sums.default[SUMMARIES] += cost(result.scores.summaries, PRICE)
    sums.least = Counter({tokens: estimate_least(case.turns, tokens) for tokens in PLACEHOLDER_TOKENS})
    return sums


def split_cost(requests: Iterable[tuple[Point, int, int, bool]]) -> Counter[str]:
    """The cost of requests by part; of each the tokens, those that were cached, and whether it was rewritten."""
    parts, before = Counter[str](), None
    for point, tokens, cached, rewrote in requests:
        fresh = tokens - cached
        if before is not None and point.seconds - before.seconds > PROVIDER.lifetime:
            parts[PAUSED] += cost(Tokens(fresh), PRICE)
        else:
            arrived = point.raw - before.raw if before is not None and rewrote else fresh
            new = min(fresh, max(0, arrived))
            parts[NEW] += cost(Tokens(new), PRICE)
            parts[REWRITTEN] += cost(Tokens(fresh - new), PRICE)
        parts[READ] += cost(Tokens(cached=cached), PRICE)
        before = point
    return parts


def count_kinds(view: Sequence[Message], tools: bytes | None) -> Counter[str]:
    """The tokens of a request by kind."""
    kinds = Counter({"tools": estimate_tokens(tools or b"")})
    for message, kind in zip(view, list_kinds(view), strict=True):
        tokens = estimate_tokens(message.raw)
        if kind == "assistant":
            arguments = sum(estimate_tokens(call.arguments.encode("utf-8", "replace")) for call in message.calls)
            text = estimate_tokens(message.text.encode("utf-8", "replace"))
            kinds["arguments of calls"] += arguments
            kinds["texts of the model"] += text
            kinds["reasoning beside calls, and JSON around all this"] += max(0, tokens - arguments - text)
        else:
            kinds[kind] += tokens
    return kinds


def list_kinds(view: Sequence[Message]) -> Iterator[str]:
    """What each message is to a reader of the bill."""
    newer = [*accumulate((estimate_tokens(message.raw) for message in reversed(view)), initial=0)][-2::-1]
    for message, call, behind in zip(view, list_callers(view), newer, strict=True):
        if message.role in HEAD:
            yield "system prompts"
        elif message.is_result:
            if message.literal:
                yield "placeholders, and results that were clipped"
            elif call is not None and matches_any(call.name, EXEMPT):
                yield "results of exempt tools"
            elif not has_text_over(message, OVER):
                yield f"results of up to {OVER} bytes"
            elif behind < RULES.keep.tokens:
                yield f"results within the newest {RULES.keep.tokens:,} tokens"
            else:
                yield "results that no block has shortened yet"
        elif message.role == "assistant":
            yield "assistant"
        elif message.is_user:
            yield "words of the user"
        else:
            yield "notes, and output in the user's role"


def estimate_least(turns: Sequence[RequestTurn], placeholder: int) -> float:
    """The cost where each old large result is gone at once, with so many tokens in its place, and rewrites are free."""
    sizes = [_count_least(turn, placeholder) for turn in turns]
    first = Tokens(fresh=sum(sizes[0])) if sizes else Tokens()
    total = cost(first, PRICE)
    for (before, now), (earlier, later) in zip(pairwise(sizes), pairwise(turns), strict=True):
        is_cold = later.seconds - earlier.seconds > PROVIDER.lifetime
        known = 0 if is_cold or len(now) < len(before) else sum(now[: len(before)])
        total += cost(Tokens(fresh=sum(now) - known, cached=known), PRICE)
    return total


def _count_least(turn: RequestTurn, placeholder: int) -> list[int]:
    """The tokens of a request, tools and then each message, without its old large results."""
    view, old = turn.request.messages, "results that no block has shortened yet"
    counts = [estimate_tokens(message.raw) for message in view]
    kinds = zip(counts, list_kinds(view), strict=True)
    return [
        estimate_tokens(turn.request.tools or b""),
        *(min(count, placeholder) if kind == old else count for count, kind in kinds),
    ]


def report(sums: Sums) -> str:
    """The two tables and the estimates, in percent of doing nothing."""
    whole = sum(sums.plain.values())
    rows = ["| part of the cost | doing nothing | default |", "|---|---:|---:|"]
    rows += [
        f"| {part} | {_percent(sums.plain[part], whole)} | {_percent(sums.default[part], whole)} |" for part in PARTS
    ]
    rows.append(f"| all of it | 100.0 | {_percent(sum(sums.default.values()), whole)} |")
    rows += ["", "| what is sent | % of the tokens of doing nothing |", "|---|---:|"]
    rows += [f"| {kind} | {_percent(tokens, sums.plain_sent)} |" for kind, tokens in sums.sent.most_common()]
    rows += ["", "| the least by clearing alone, with each result replaced by | % of the cost |", "|---|---:|"]
    rows += [f"| {tokens} tokens | {_percent(sums.least[tokens], whole)} |" for tokens in PLACEHOLDER_TOKENS]
    return "\n".join(rows)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("files", type=Path, nargs="+", metavar="FILE", help="recorded conversations")
    options.add_argument("--limit", type=int, default=0, help="only about so many conversations, evenly spread")
    options.add_argument("--jobs", type=int, default=1)
    given = options.parse_args()
    everything = [each for file in given.files for each in sessions.read_conversations(file)]
    some = everything[:: max(1, len(everything) // given.limit) if given.limit else 1]
    sums = Sums()
    with ProcessPoolExecutor(given.jobs) as workers:
        for found in workers.map(measure, some):
            sums.add(found)
    print(f"{len(some)} conversations, costs at .1/1.25\n\n{report(sums)}")


if __name__ == "__main__":
    sys.exit(main())
