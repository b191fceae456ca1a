"""Which figures the default should have: the choice made on all kinds of agents but one, and tried on that one.

python bench/tuning.py DIR --limit 80 --out /tmp/tuning.jsonl --jobs 2

Points around the default trade cost for retention: the stride, the trigger, and the size of results that are shortened.
Of the points that keep what must be kept, the one is chosen whose cost is nearest to the best under the price model
where it is worst. A figure chosen on the conversations it is reported for would flatter itself; so for each source the
choice is made on the others, and its result is reported for that source. The measures are the scorecard's
(docs/scorecard.md), in front of a provider's cache, summaries included.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from proxy.config.policies import resolve_policy, shipped_policies
from proxy.core.rules import Rules
from proxy.core.steps.standard import ClearResults
from proxy.lab import sessions
from proxy.lab.commands.progress import ProgressBar
from proxy.lab.replay.cache import HABITS
from proxy.lab.replay.prices import PRICES, share
from proxy.lab.replay.run import ResultFile, replay_all
from proxy.lab.replay.scorecard import OLD, by_policy
from proxy.lab.replay.scoring import UpstreamModel, sum_scores
from proxy.lab.replay.simulation import Trial
from proxy.lab.replay.summaries import StandIn
from proxy.lab.replay.values import AGES, Result, Scores


@dataclass(frozen=True)
class Point:
    """Values of the default policy; None: as shipped."""

    stride: int | None = None
    cold: int | None = None
    trigger: float | None = None
    target: float | None = None
    over: int | None = None

    def change(self, rules: Rules) -> Rules:
        """The rules with the values of this point."""
        own = {} if self.over is None else {"over": self.over}
        steps = (replace(step, **own) if isinstance(step, ClearResults) else step for step in rules.when_full)
        given = {
            "clear_at_least": self.stride,
            "clear_cold_at_least": self.cold,
            "trigger": self.trigger,
            "target": self.target,
            "when_full": tuple(steps),
        }
        return replace(rules, **{name: value for name, value in given.items() if value is not None})


POINTS = {
    "as shipped": Point(),
    "stride 24k": Point(stride=24_000),
    "trigger .45": Point(trigger=0.45),
    "trigger .45, over 500": Point(trigger=0.45, over=500),
}
WINDOW = 128_000
KEPT = (0.965, 0.98, 0.999)
COLUMNS = (*(f"cost {name}" for name in PRICES), "in context", "named", "fresh")
Points = Mapping[str, Scores]


def candidates(cache: str) -> list[Trial]:
    default = resolve_policy("default", shipped_policies()).rules("default")
    return [
        Trial(
            name=name,
            rules=point.change(default),
            window=WINDOW,
            prices=PRICES[".1/1.25"],
            summarizer=StandIn(),
            times=cache == "provider",
        )
        for name, point in POINTS.items()
    ]


def kept_share(scores: Scores) -> tuple[float, ...]:
    old, fresh = scores.kept_of(OLD), scores.kept_of(AGES[:1])
    asked = max(1, old.asked)
    return old.in_context / asked, old.named / asked, fresh.in_context / max(1, fresh.asked)


def find_distances(points: Points) -> dict[str, float]:
    """How far each point that keeps enough is behind the best of them, where that is furthest."""
    cost = {name: [share(scores, prices) for prices in PRICES.values()] for name, scores in points.items()}
    able = [
        name for name in points if all(own >= least for own, least in zip(kept_share(points[name]), KEPT, strict=True))
    ]
    best = [min(cost[name][number] for name in able) for number in range(len(PRICES))] if able else []
    return {name: max(own / least for own, least in zip(cost[name], best, strict=True)) - 1 for name in able}


def choose_point(points: Points) -> str:
    """The point that is nearest to the best of those that keep enough; where none does, the one that keeps most."""
    far = find_distances(points)
    return min(far, key=far.__getitem__) if far else max(points, key=lambda name: kept_share(points[name]))


def points_over(results: Sequence[Result], *, source: str = "", but: str = "") -> Points:
    """Every point, over one source, or all but one."""
    own = [each for each in results if each.source != but and source in ("", each.source)]
    return {name: sum_scores(each.scores for each in its) for name, its in by_policy(own).items()}


def report(results: Sequence[Result]) -> str:
    """Each point on everything; then for each source the choice of the others."""
    whole = points_over(results)
    far = find_distances(whole)
    rows = _head("point", *COLUMNS, "behind the best")
    for name, scores in whole.items():
        rows.append(_row(scores, name, last=(f"{100 * far[name]:.1f} %" if name in far else "keeps too little",)))
    rows += ["", *_head("held out", "requests", "chosen on the others", *COLUMNS)]
    held = []
    for source in dict.fromkeys(result.source for result in results):
        name = choose_point(points_over(results, but=source))
        held.append(points_over(results, source=source)[name])
        rows.append(_row(held[-1], source, f"{held[-1].requests:,}", name))
    every = sum_scores(held)
    rows.append(_row(every, "all together", f"{every.requests:,}", "each as above"))
    return "\n".join(rows)


def _head(*columns: str) -> list[str]:
    return [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]


def _row(scores: Scores, *first: str, last: Sequence[str] = ()) -> str:
    figures = [f"{100 * share(scores, prices):.1f}" for prices in PRICES.values()]
    shares = [f"{each:.3f}" for each in kept_share(scores)] if scores.kept_of(OLD).asked else ["-"] * len(KEPT)
    return "| " + " | ".join([*first, *figures, *shares, *last]) + " |"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path, help="where the recorded conversations are, a file for each source")
    options.add_argument("--cache", choices=HABITS, default="provider", help="how the upstream caches")
    options.add_argument("--limit", type=int, default=0, help="only about so many conversations, evenly spread")
    options.add_argument("--out", type=Path, help="results by conversation; a run that broke off goes on from there")
    options.add_argument("--jobs", type=int, default=1)
    given = options.parse_args()
    files = sorted(given.folder.glob("*_*.jsonl.gz"))
    everything = [each for file in files for each in sessions.read_conversations(file)]
    some = everything[:: max(1, len(everything) // given.limit) if given.limit else 1]
    results = replay_all(
        some,
        candidates(given.cache),
        UpstreamModel(WINDOW, HABITS[given.cache]),
        ledger=ResultFile(given.out),
        jobs=given.jobs,
        progress=ProgressBar(sys.stderr, "conversations"),
    )
    print(report(results))


if __name__ == "__main__":
    sys.exit(main())
