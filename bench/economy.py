"""What a policy saves and what it costs the agent, on recorded conversations replayed turn by turn through the heart.

python bench/economy.py --limit 120
python bench/economy.py --out /tmp/economy.jsonl        (all of them; what is in the file already is not done again)

Tokens are bytes / 4; the upstream's cache holds every prefix of messages it was ever sent; prices are parts of the
plain input price (read/write). The agent's behaviour is held fixed: what it would read again because it was cleared
is not charged, so savings are upper bounds. What is asked of the views stands in `recorded.py`.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

from recorded import Conversation, Kept, Record, records

from proxy.config.policies import resolved
from proxy.config.shipped import policies as shipped
from proxy.core.economics import Prices
from proxy.core.messages import Message
from proxy.core.overlay import Block
from proxy.core.pipeline import Draft, quarter
from proxy.core.plan import NeedSummary, decide
from proxy.core.rules import Facts, Keep, Rules
from proxy.core.steps import ClearResults

TRACES = Path(__file__).parents[2] / "shared" / "traces"
PRICES = {
    ".1/1.25": Prices(0.1, 1.25),
    ".05/1.25": Prices(0.05, 1.25),
    ".02/1": Prices(0.02, 1.0),
    ".5/1": Prices(0.5, 1.0),
    "none": Prices(1.0, 1.0),
}
WINDOW = 128_000
NEVER = 10**9


@dataclass(frozen=True, slots=True)
class JustUnder:
    """Clear the oldest results until the view is just under a size: what many agents do."""

    name: ClassVar[str] = "just_under"
    limit: int = 60_000

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.view) - self.limit

    def __call__(self, draft: Draft) -> Draft:
        excess, chosen = self.reach(draft), set[int]()
        for message in draft.middle:
            if excess > 0 and message.is_result and not message.literal and len(message.raw) > 200:
                chosen.add(id(message))
                excess -= draft.count(message.raw) - 20
        return draft.rewritten(
            lambda message, _: message.told("[Cleared.]", self.name) if id(message) in chosen else message
        )


PLAIN = ClearResults(over=800, keep_failed=0, outline=0, names=0, template="[Previous: used {tool}]")
BARE = Rules(
    always=(),
    when_full=(PLAIN,),
    keep=Keep(tokens=0, groups=1),
    clear_at_least=1,
    horizon=NEVER,
    trigger=0,
    min_groups=0,
)
PLAIN_POLICIES = {
    "nothing": replace(BARE, new_blocks=False),
    "sliding, keep 10 results": replace(BARE, when_full=(replace(PLAIN, keep_recent=10),)),
    "clear to just under 60k": replace(BARE, when_full=(JustUnder(60_000),)),
    "batched 10k, keep 8k": replace(BARE, keep=Keep(tokens=8_000, groups=1), clear_at_least=10_000),
    "batched 20k, keep 8k": replace(BARE, keep=Keep(tokens=8_000, groups=1), clear_at_least=20_000),
}
SEEDS = ("j-cli", "middleware", "jp", "blocks")


def policies() -> dict[str, Rules]:
    """The plain designs, those this product grew from, and ours."""
    seeds = {f"seed {name}": resolved(name, shipped()).rules(name) for name in SEEDS}
    return {**PLAIN_POLICIES, **seeds, "default": Rules()}


@dataclass(slots=True)
class Tally:
    """What one policy came to."""

    requests: int = 0
    tokens: int = 0
    cached: int = 0
    rewrites: int = 0
    peak: int = 0
    over: int = 0
    kept: Kept = field(default_factory=Kept)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Tally":
        return cls(**{**row, "kept": Kept(**row["kept"])})

    def add(self, other: "Tally") -> None:
        self.requests += other.requests
        self.tokens += other.tokens
        self.cached += other.cached
        self.rewrites += other.rewrites
        self.peak = max(self.peak, other.peak)
        self.over += other.over
        self.kept.add(other.kept)

    def cost(self, prices: Prices) -> float:
        return self.cached * prices.read + (self.tokens - self.cached) * prices.write


def replay(conversation: Conversation, rules: Rules, prices: Prices, window: int = WINDOW) -> Tally:
    """One conversation under one policy."""
    tally, seen, blocks, earlier = Tally(), set[int](), dict[bytes, Block](), ()
    facts = Facts(usable=int(window * 0.9), prices=prices)
    for place, request, links in conversation.turns():
        found = next((blocks[link] for link in reversed(links) if link in blocks), None)
        plan = decide(request, links, (found,) if found else (), rules, count=quarter, facts=facts)
        ready = plan.give_up() if isinstance(plan, NeedSummary) else plan
        if ready.block is not None and blocks.get(ready.link, found) is found:
            blocks[ready.link] = ready.block
        _charge(tally, ready.view, seen, window)
        tally.rewrites += len(earlier) > len(ready.view) or any(map(_differ, earlier, ready.view))
        tally.kept.add(conversation.kept(place, ready.view))
        earlier = ready.view
    return tally


def _differ(one: Message, other: Message) -> bool:
    return one is not other and one.raw != other.raw


def _charge(tally: Tally, view: Sequence[Message], seen: set[int], window: int) -> None:
    size = cached = prefix = 0
    for message in view:
        prefix = hash((prefix, message.raw))
        tokens = quarter(message.raw)
        size += tokens
        cached += tokens if prefix in seen else 0
        seen.add(prefix)
    tally.requests += 1
    tally.tokens += size
    tally.cached += cached
    tally.peak = max(tally.peak, size)
    tally.over += size > window


@dataclass(frozen=True, slots=True)
class Trial:
    """One policy at one price, if it asks for the price at all."""

    name: str
    rules: Rules
    prices: Prices = PRICES[".1/1.25"]

    @property
    def key(self) -> str:
        """Tells results in a file from those of other settings."""
        return blake2b(repr((self.rules, self.prices)).encode(), digest_size=8).hexdigest()


def trials(chosen: Mapping[str, Rules]) -> list[Trial]:
    """Rules that weigh a rewrite by prices are told each price in its turn."""
    found = []
    for name, rules in chosen.items():
        weighs = max(rules.horizon, rules.clear_at_least) < NEVER
        found += (
            [Trial(f"{name} @{label}", rules, prices) for label, prices in PRICES.items()]
            if weighs
            else [Trial(name, rules)]
        )
    return found


Results = dict[str, dict[str, Tally]]
"""By trial, then by conversation."""


def run(wanted: Sequence[Trial], chosen: Sequence[Record], out: Path | None, window: int = WINDOW) -> Results:
    """Every trial over every conversation; what stands in the file is taken from there, what is new is added to it."""
    names = {f"{trial.key} {window}": trial.name for trial in wanted}
    results: Results = {trial.name: {} for trial in wanted}
    for row in _rows(out):
        if row["key"] in names:
            results[names[row["key"]]][row["conversation"]] = Tally.of(row["tally"])
    for record in chosen:
        left = [trial for trial in wanted if record.name not in results[trial.name]]
        conversation = Conversation(record) if left else None
        for trial in left:
            tally = replay(conversation, trial.rules, trial.prices, window)
            results[trial.name][record.name] = tally
            _note(out, {"key": f"{trial.key} {window}", "conversation": record.name, "tally": asdict(tally)})
    return results


def _rows(out: Path | None) -> Iterator[dict[str, Any]]:
    if out is not None and out.exists():
        with out.open(encoding="utf-8") as rows:
            yield from map(json.loads, rows)


def _note(out: Path | None, row: dict[str, Any]) -> None:
    if out is not None:
        with out.open("a", encoding="utf-8") as rows:
            rows.write(json.dumps(row) + "\n")


def total(tallies: Mapping[str, Tally], chosen: Sequence[Record]) -> Tally:
    found = Tally()
    for record in chosen:
        found.add(tallies[record.name])
    return found


def table(results: Results, chosen: Sequence[Record]) -> str:
    """Everything in parts of doing nothing."""
    plain = total(results["nothing"], chosen)
    costs = " | ".join(f"cost {name}" for name in PRICES)
    rows = [f"| policy | tokens | {costs} | cached | rewrites /100 | peak | over | in context | named | fresh |"]
    rows.append("|---" * (len(PRICES) + 9) + "|")
    rows += [_row(name, total(tallies, chosen), plain) for name, tallies in results.items()]
    return "\n".join(rows)


def _row(name: str, tally: Tally, plain: Tally) -> str:
    cells = [
        name,
        f"{100 * tally.tokens / plain.tokens:.0f}",
        *(f"{100 * tally.cost(prices) / plain.cost(prices):.1f}" for prices in PRICES.values()),
        f"{100 * tally.cached / tally.tokens:.1f} %",
        f"{100 * tally.rewrites / tally.requests:.1f}",
        f"{tally.peak / 1000:.0f}k",
        f"{tally.over:,}",
        *(f"{share:.3f}" for share in tally.kept.shares),
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--limit", type=int, default=0, help="about so many conversations (0: all)")
    options.add_argument("--policy", action="append", help="only these (and nothing)")
    options.add_argument("--source", help="only files whose name holds this")
    options.add_argument("--window", type=int, default=WINDOW, help="the window they stand in front of, in tokens")
    options.add_argument("--out", type=Path, help="results by conversation; a run that broke off goes on from there")
    given = options.parse_args()
    known = policies()
    files = [file for file in sorted(TRACES.glob("*_*.jsonl.gz")) if (given.source or "") in file.name]
    chosen = list(records(files, given.limit))
    wanted = trials({name: known[name] for name in dict.fromkeys(["nothing", *(given.policy or known)])})
    results = run(wanted, chosen, given.out, given.window)
    one = total(results["nothing"], chosen).kept
    print(f"{len(chosen)} conversations, {one.terms:,} terms, {one.fresh_terms:,} fresh terms\n")
    print(table(results, chosen))


if __name__ == "__main__":
    sys.exit(main())
