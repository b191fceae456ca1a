"""Which figures the default should have: the choice made on all kinds of agents but one, and tried on that one.

python bench/tuning.py --out /tmp/economy.jsonl

Around the default two figures are varied that trade cost for retention: how much must be clearable for a stride, and
how much of a folded text stays as lines. Of the points that keep what must be kept, the one is chosen whose cost is
nearest to the best under the price model where it is worst. A figure chosen on the conversations it is reported for
would flatter itself; so for each source the choice is made on the others, and what it comes to is told of that source.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from economy import PLAIN_POLICIES, PRICES, TRACES, Results, Tally, Trial, run, total
from recorded import Record, records

from proxy.core.rules import Rules
from proxy.core.steps import ClearResults

STRIDES = (12_000, 15_000, 20_000)
OUTLINES = (0.15, 0.2, 0.25)
HELD_OUT = "all together"
KEPT = (0.95, 0.97, 0.995)


def candidates() -> dict[str, Rules]:
    return {
        f"stride {stride // 1000}k, outline {outline}": _around(stride, outline)
        for stride, outline in product(STRIDES, OUTLINES)
    }


def _around(stride: int, outline: float) -> Rules:
    rules = Rules()
    steps = (replace(step, outline=outline) if isinstance(step, ClearResults) else step for step in rules.when_full)
    return replace(rules, clear_at_least=stride, when_full=tuple(steps))


def costs(tallies: Mapping[str, Tally]) -> dict[str, list[float]]:
    """Under each price model, in parts of doing nothing."""
    plain = tallies["nothing"]
    return {
        name: [tally.cost(price) / plain.cost(price) for price in PRICES.values()] for name, tally in tallies.items()
    }


def behind(tallies: Mapping[str, Tally]) -> dict[str, float]:
    """How far each point that keeps enough is behind the best of them, where that is furthest."""
    cost = costs(tallies)
    able = [name for name in tallies if name != "nothing" and _keeps(tallies[name])] or ["nothing"]
    best = [min(cost[name][number] for name in able) for number in range(len(PRICES))]
    return {name: max(own / least for own, least in zip(cost[name], best, strict=True)) - 1 for name in able}


def chosen(tallies: Mapping[str, Tally]) -> str:
    return min(behind(tallies).items(), key=lambda pair: pair[1])[0]


def _keeps(tally: Tally) -> bool:
    return all(share >= least for share, least in zip(tally.kept.shares, KEPT, strict=True))


def over(results: Results, records: Sequence[Record]) -> dict[str, Tally]:
    return {name: total(tallies, records) for name, tallies in results.items()}


def report(results: Results, everything: Sequence[Record]) -> str:
    """Each point on everything; then for each source the choice of the others."""
    columns = [*(f"cost {name}" for name in PRICES), "in context", "named", "fresh"]
    whole = over(results, everything)
    far = behind(whole)
    rows = _head("point", *columns, "behind the best")
    rows += [
        _row(whole, name, name, last=(f"{100 * far[name]:.1f} %" if name in far else "keeps too little",))
        for name in whole
        if name != "nothing"
    ]
    rows += ["", *_head("held out", "requests", "chosen on the others", *columns)]
    every = {HELD_OUT: Tally(), "nothing": Tally()}
    for source in dict.fromkeys(record.source for record in everything):
        name = chosen(over(results, [record for record in everything if record.source != source]))
        own = over(results, [record for record in everything if record.source == source])
        rows.append(_row(own, name, source, f"{own[name].requests:,}", name))
        every[HELD_OUT].add(own[name])
        every["nothing"].add(own["nothing"])
    rows.append(_row(every, HELD_OUT, HELD_OUT, f"{every[HELD_OUT].requests:,}", "each as above"))
    return "\n".join(rows)


def _head(*columns: str) -> list[str]:
    return [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]


def _row(tallies: Mapping[str, Tally], name: str, *first: str, last: Sequence[str] = ()) -> str:
    figures = [f"{100 * cost:.1f}" for cost in costs(tallies)[name]]
    kept = tallies[name].kept
    shares = [f"{share:.3f}" for share in kept.shares] if kept.terms else ["-"] * 3
    return "| " + " | ".join([*first, *figures, *shares, *last]) + " |"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--limit", type=int, default=0, help="about so many conversations (0: all)")
    options.add_argument("--out", type=Path, help="results by conversation; a run that broke off goes on from there")
    given = options.parse_args()
    everything = list(records(sorted(TRACES.glob("*_*.jsonl.gz")), given.limit))
    points = {"nothing": PLAIN_POLICIES["nothing"], **candidates()}
    print(report(run([Trial(name, rules) for name, rules in points.items()], everything, given.out), everything))


if __name__ == "__main__":
    sys.exit(main())
