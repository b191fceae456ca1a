"""The scorecard: what the scores say, as columns that the table, the JSON and the HTML page share.

docs/scorecard.md defines every column. Shares are rounded only here, and half a digit goes to the even one, so the
same scores give the same text.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

from proxy.lab.replay.prices import PRICES, share, summaries_share
from proxy.lab.replay.scoring import sum_scores
from proxy.lab.replay.values import AGES, DIALECTS, KINDS, PICO_PER_DOLLAR, RECALLED, RecallCount, Result, Scores

Cell = Decimal | int | str
NONE = "-"
"""What a share shows when nothing was asked for."""


@dataclass(frozen=True, slots=True)
class Column:
    """One figure: its heading, what it is in a few words, and how it is read off the scores."""

    name: str
    title: str
    of: Callable[[Scores], Cell]


def round_share(value: float, digits: int) -> Decimal:
    return Decimal(f"{value:.{digits}f}")


def _percent(part: float, whole: float) -> Cell:
    return round_share(100 * part / whole, 1) if whole else NONE


def _share(kept: int, asked: int) -> Cell:
    return round_share(kept / asked, 3) if asked else NONE


def _price_column(label: str) -> Column:
    prices = PRICES[label]
    return Column(
        label, f"cost at {label}, % of doing nothing", lambda scores: round_share(100 * share(scores, prices), 1)
    )


def _recall_column(name: str) -> Column:
    def of(scores: Scores) -> Cell:
        found = scores.recall.get(name)
        return NONE if found is None else _share(found.kept, found.asked)

    return Column(name, f"recall of {name} in the last request", of)


def _breach_column(dialect: str, name: str) -> Column:
    return Column(name, f"requests with a new breach, {dialect}", lambda scores: scores.invalid.get(dialect, 0))


OLD = AGES[1:]
_PLAIN = PRICES[".1/1.25"]
COST = (
    Column("tokens", "tokens forwarded, % of those sent", lambda s: _percent(s.forwarded.read, s.raw.read)),
    *map(_price_column, PRICES),
    Column("$", "cost at the models' own prices, %", lambda s: _percent(s.bill, s.raw_bill)),
    Column("of it summaries", "summaries at .1/1.25, %", lambda s: round_share(100 * summaries_share(s, _PLAIN), 1)),
    Column("cached", "prefix share, %", lambda s: _percent(s.forwarded.cached, s.forwarded.read)),
)
SHAPE = (
    Column("requests", "requests", lambda s: s.requests),
    Column("rewrites /100", "rewrites per 100 requests", lambda s: _percent(s.rewrites, s.requests)),
    Column("peak", "tokens of the largest request", lambda s: s.peak),
    Column("mean", "tokens of a request on average", lambda s: s.mean),
    Column("over", "requests over the window", lambda s: s.over),
    Column("summaries", "calls for a summary", lambda s: s.summary_calls),
    *map(_breach_column, DIALECTS, ("invalid", *DIALECTS[1:])),
    Column("failed", "requests not answered as they should", lambda s: s.failed),
)
KEPT = (
    Column("in context", "retention: a whole original line", lambda s: _in_context_share(s.kept_of(OLD))),
    Column("named", "retention: the term anywhere", lambda s: _named_share(s.kept_of(OLD))),
    Column("fresh", "retention of what was just read", lambda s: _in_context_share(s.kept_of(AGES[:1]))),
    Column("pointed", "in context, or a call to have it again", lambda s: _pointed_share(s.kept_of(OLD))),
    *map(_recall_column, RECALLED),
)
OF_A_SOURCE = (SHAPE[0], COST[0], COST[1], SHAPE[1], *KEPT[:4])
COLUMNS = (*COST, *SHAPE, *KEPT)
TABLES = {"What it costs": COST, "What is sent": SHAPE, "What is kept": KEPT}


def _in_context_share(kept: RecallCount) -> Cell:
    return _share(kept.in_context, kept.asked)


def _named_share(kept: RecallCount) -> Cell:
    return _share(kept.named, kept.asked)


def _pointed_share(kept: RecallCount) -> Cell:
    return _share(kept.pointed, kept.asked)


def by_policy(results: Iterable[Result]) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(result.policy, []).append(result)
    return found


def totals(results: Iterable[Result]) -> dict[str, Scores]:
    """The scores of each policy over all conversations."""
    return {name: sum_scores(each.scores for each in its) for name, its in by_policy(results).items()}


def rows(scores: Mapping[str, Scores], columns: Sequence[Column]) -> list[list[Cell]]:
    """A row a policy: its name, then its figures."""
    return [[name, *(column.of(each) for column in columns)] for name, each in scores.items()]


def by_source(results: Sequence[Result], policy: str) -> dict[str, Scores]:
    """One policy on each kind of agent."""
    own = by_policy(results).get(policy, [])
    sources = dict.fromkeys(result.source for result in own)
    return {source: sum_scores(each.scores for each in own if each.source == source) for source in sources}


def retention_rows(scores: Scores) -> list[list[Cell]]:
    """A row for each age, then for each kind of term: how many, and how many are in context, named, pointed to."""
    groups = [*((age, scores.kept_of((age,))) for age in AGES)]
    groups += [(kind, scores.kept_of(OLD, (kind,))) for kind in KINDS]
    return [
        [name, kept.asked, _in_context_share(kept), _named_share(kept), _pointed_share(kept)] for name, kept in groups
    ]


RETENTION = ("terms", "asked", "in context", "named", "pointed")


def describe_estimate(scores: Scores) -> str:
    """How far our count is off, in a sentence; empty where nothing was recorded."""
    estimate = scores.estimate
    if not estimate.recorded:
        return ""
    return (
        f"our count of what was added: {100 * estimate.estimated / estimate.recorded:.1f} % of the upstream's own over "
        f"{estimate.pairs:,} requests; a request's own difference is "
        f"{100 * estimate.missed / estimate.prompts:.2f} % of its prompt"
    )


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    """Everything: the figures as in the table, and the whole numbers they are made of."""
    return {
        "policies": [
            {
                "policy": name,
                "figures": {column.name: _plain(column.of(scores)) for column in COLUMNS},
                "dollars": {
                    "without": scores.raw_bill / PICO_PER_DOLLAR,
                    "with": scores.bill / PICO_PER_DOLLAR,
                    "priced": scores.priced,
                },
                "scores": asdict(scores),
            }
            for name, scores in totals(results).items()
        ],
        "conversations": [asdict(result) for result in results],
    }


def _plain(cell: Cell) -> float | int | str:
    return float(cell) if isinstance(cell, Decimal) else cell
