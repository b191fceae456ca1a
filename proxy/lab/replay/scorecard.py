"""The scorecard: figures of each policy, as columns that the table, the JSON and the HTML page share.

docs/replay-your-sessions.md defines every column. Shares are rounded only here, and half a digit goes to the even one,
so the same scores give the same text. Intervals resample whole conversations: requests of one are not independent.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import Struct, to_builtins

from proxy.lab.replay.instruction_texts import STANDINGS, Standing
from proxy.lab.replay.replay_values import (
    DIALECTS,
    FRESH_PRICE_RATIO,
    PICO_PER_DOLLAR,
    PRICES,
    RECALLED,
    Judged,
    Result,
    Scores,
    cost_unchanged,
    cost_with_rereads,
    find_break_even,
    share,
    share_with_rereads,
)
from proxy.lab.replay.scoring import sum_scores
from proxy.shorten.economics import Prices

SAMPLES = 500
SEED = 1
_SHARE_OUTSIDE = 0.05


class Interval(NamedTuple):
    """95 of 100 samples lie within."""

    low: float
    high: float


def find_interval(parts: Sequence[tuple[float, float]]) -> Interval | None:
    """The interval of sum(part) / sum(whole); None without any."""
    valid_parts = [(part, total) for part, total in parts if total]
    if not valid_parts:
        return None
    dice = random.Random(SEED)  # noqa: S311 (no secret)
    shares = sorted(_divide(dice.choices(valid_parts, k=len(valid_parts))) for _ in range(SAMPLES))
    outside = int(SAMPLES * _SHARE_OUTSIDE / 2)
    return Interval(shares[outside], shares[-1 - outside])


class Share(NamedTuple):
    value: float | None
    """None: a share of nothing."""
    interval: Interval | None


def find_share(parts: Sequence[tuple[float, float]]) -> Share:
    total = sum(whole for _, whole in parts)
    if not total:
        return Share(None, None)
    return Share(_divide(parts), find_interval(parts))


def _divide(parts: Sequence[tuple[float, float]]) -> float:
    return sum(part for part, _ in parts) / sum(total for _, total in parts)


RECALL_TITLES = {
    "user messages": "messages of people that stand in the last request word for word",
    "pins": "pins that stand in the last request word for word",
    "acts told": "acts on the world that a fold has taken, and that a ledger of the last request names",
    "failures told": "calls that failed, and whose placeholder or line of a ledger says so",
}
Cell = Decimal | int | str
NONE = "-"
"""A share of nothing."""


class Row(Struct, frozen=True, dict=True):  # with a dict: sums and intervals are computed once
    conversations: Sequence[Scores]
    prices: Prices | None
    """None: each model's own."""

    @cached_property
    def scores(self) -> Scores:
        return sum_scores(self.conversations)

    @property
    def cost(self) -> float:
        return share(self.scores, self.prices)

    @property
    def cost_with_rereads(self) -> float:
        return share_with_rereads(self.scores, self.prices)

    @cached_property
    def cost_with_rereads_interval(self) -> Interval | None:
        parts = []
        for conversation in self.conversations:
            cost = cost_with_rereads(conversation, self.prices)
            parts.append((cost, cost_unchanged(conversation, self.prices)))
        return find_interval(parts)

    @cached_property
    def spans(self) -> Share:
        return find_share([(scores.needed.kept, scores.needed.asked) for scores in self.conversations])

    @cached_property
    def spans_per_conversation(self) -> Share:
        """Each conversation counts alike."""
        needs = [scores.needed for scores in self.conversations if scores.needed.asked]
        return find_share([(needed.kept / needed.asked, 1) for needed in needs])

    def repeat_rereads(self, times: int) -> float:
        """The cost with each re-read charged so many times."""
        return share_with_rereads(self.scores, self.prices, times)

    @cached_property
    def own_words(self) -> Share:
        return find_share([(scores.own.kept, scores.own.asked) for scores in self.conversations])

    @property
    def steps_per_100(self) -> float:
        """Steps that read again, judged at every fifth request and counted in all."""
        return 100 * self.scores.needed.rereads / self.scores.requests if self.scores.requests else 0.0

    @property
    def judged(self) -> Judged:
        return sum(self.scores.sentences.values(), Judged())

    @property
    def rewrites_per_100(self) -> float:
        return 100 * self.scores.rewrites / self.scores.requests if self.scores.requests else 0.0

    @property
    def break_even(self) -> float | None:
        return find_break_even(self.scores, self.prices)


class Column(Struct, frozen=True):
    name: str
    title: str
    of: Callable[[Row], Cell]


def round_share(value: float, digits: int) -> Decimal:
    return Decimal(f"{value:.{digits}f}")


def _percent(part: float, total: float) -> Cell:
    return round_share(100 * part / total, 1) if total else NONE


def _share(value: float | None, digits: int = 3) -> Cell:
    return NONE if value is None else round_share(value, digits)


def _with_interval(value: float | None, interval: Interval | None, digits: int = 3, scale: int = 1) -> Cell:
    if value is None or interval is None:
        return NONE
    low, high = (f"{scale * end:.{digits}f}" for end in interval)
    return f"{scale * value:.{digits}f} ({low}-{high})"


def _recall_column(name: str) -> Column:
    def of(row: Row) -> Cell:
        recall = row.scores.recall.get(name)
        return _share(recall.kept / recall.asked) if recall is not None and recall.asked else NONE

    return Column(name, RECALL_TITLES[name], of)


def _document_column(standing: Standing) -> Column:
    def of(row: Row) -> Cell:
        documents = row.scores.documents
        asked = documents.whole + documents.cut + documents.gone
        return _share(getattr(documents, standing) / asked) if asked else NONE

    return Column(f"documents {standing}", f"instruction documents {standing} after each rewrite", of)


def _reread_column(times: int) -> Column:
    return Column(
        f"re-reads x{times}",
        f"the cost with each of these steps charged {times} times, %",
        lambda row: round_share(100 * row.repeat_rereads(times), 1),
    )


def _breach_column(dialect: str, name: str) -> Column:
    return Column(name, f"requests with a new breach, {dialect}", lambda row: row.scores.invalid.get(dialect, 0))


def _share_not_judged(row: Row) -> Cell:
    judged = row.judged
    return _share(1 - (judged.true + judged.false) / judged.said) if judged.said else NONE


def _share_false(row: Row) -> Cell:
    judged = row.judged
    return _share(judged.false / (judged.true + judged.false), 4) if judged.true + judged.false else NONE


WORTH = (
    Column("cost", "input and summaries, % of doing nothing", lambda row: round_share(100 * row.cost, 1)),
    Column(
        "with re-reads",
        "the same with a step for each lost result, %",
        lambda row: _with_interval(row.cost_with_rereads, row.cost_with_rereads_interval, 1, 100),
    ),
    *map(_reread_column, (2, 4)),
    Column("steps /100", "steps that read again, per 100 requests", lambda row: round_share(row.steps_per_100, 1)),
    Column("spans", "needed spans kept", lambda row: _with_interval(*row.spans)),
    Column(
        "per conversation",
        "the same, each conversation alike",
        lambda row: _with_interval(*row.spans_per_conversation),
    ),
    Column(
        "own words",
        "of the agent's own words that it writes again, the share kept",
        lambda row: _with_interval(*row.own_words),
    ),
    Column("read again", "results that bring an earlier one again, as recorded", lambda row: row.scores.read_again),
    Column(
        "of shortened", "those of them that were shortened when they were asked for", lambda row: row.scores.refetched
    ),
    Column("rewrites /100", "rewrites per 100 requests", lambda row: round_share(row.rewrites_per_100, 1)),
    Column("summaries", "calls for a summary", lambda row: row.scores.summary_calls),
    Column(
        "lambda",
        "extra steps per 1,000 removed tokens that the saving pays for",
        lambda row: _share(row.break_even, 2),
    ),
)
SHAPE = (
    Column("requests", "requests", lambda row: row.scores.requests),
    Column(
        "tokens",
        "tokens forwarded, % of those sent",
        lambda row: _percent(row.scores.forwarded.read, row.scores.raw.read),
    ),
    Column("cached", "prefix share, %", lambda row: _percent(row.scores.forwarded.cached, row.scores.forwarded.read)),
    Column("$", "cost at the models' own prices, %", lambda row: _percent(row.scores.bill, row.scores.raw_bill)),
    Column("peak", "tokens of the largest request", lambda row: row.scores.peak),
    Column("mean", "tokens of a request on average", lambda row: row.scores.mean),
    Column("over", "requests over the window", lambda row: row.scores.over),
    *map(_breach_column, DIALECTS, ("invalid", *DIALECTS[1:])),
    Column("failed", "requests not answered as they should", lambda row: row.scores.failed),
)
KEPT = (
    *map(_recall_column, RECALLED),
    *map(_document_column, STANDINGS),
    Column("sentences", "sentences of the proxy, each once", lambda row: row.judged.said),
    Column("not judged", "of these, the share that the originals neither confirm nor deny", _share_not_judged),
    Column("false", "of those judged, the share that is false", _share_false),
)
OF_A_SOURCE = (SHAPE[0], *WORTH)
TABLES = {"What is sent": SHAPE, "What is kept, and what is said": KEPT}
"""Each price model has a table of `WORTH` besides."""


def describe_prices(name: str) -> str:
    prices = PRICES.get(name)
    if prices is None:
        return "each model's own prices"
    return f"cached input at a {name} of its price ({prices.read:g} of the input price, new {FRESH_PRICE_RATIO:g})"


def list_prices(results: Iterable[Result]) -> list[str]:
    """All named price models, if no policy reads prices."""
    return list(dict.fromkeys(result.prices for result in results if result.prices)) or list(PRICES)


def group_rows(results: Sequence[Result], prices: str) -> dict[str, Row]:
    groups: dict[str, list[Scores]] = {}
    for result in results:
        if result.prices in ("", prices):
            groups.setdefault(result.policy, []).append(result.scores)
    return {policy: Row(scores, PRICES.get(prices)) for policy, scores in groups.items()}


def by_source(results: Sequence[Result], policy: str, prices: str) -> dict[str, Row]:
    return _group(results, policy, prices, attrgetter("source"))


def by_third(results: Sequence[Result], policy: str, prices: str) -> dict[str, Row]:
    """The third of the conversations that is kept apart, and the others by which settings may be chosen."""
    return _group(results, policy, prices, lambda result: "kept apart" if result.is_apart else "open")


def _group(results: Sequence[Result], policy: str, prices: str, name: Callable[[Result], str]) -> dict[str, Row]:
    groups: dict[str, list[Scores]] = {}
    for result in results:
        if result.policy == policy and result.prices in ("", prices):
            groups.setdefault(name(result), []).append(result.scores)
    return {source: Row(scores, PRICES.get(prices)) for source, scores in groups.items()}


def fill_cells(rows: Mapping[str, Row], columns: Sequence[Column]) -> list[list[Cell]]:
    return [[name, *(column.of(row) for column in columns)] for name, row in rows.items()]


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    """Figures by policy and price model, and the whole numbers that they are made of."""
    policies: dict[str, dict[str, Any]] = {}
    for prices in list_prices(results):
        for policy, row in group_rows(results, prices).items():
            figures = policies.setdefault(policy, {"policy": policy})
            for name, value in _list_figures(row).items():
                figures.setdefault(name, {})[prices] = value
    return {"policies": list(policies.values()), "conversations": [to_builtins(result) for result in results]}


def _list_figures(row: Row) -> dict[str, Any]:
    scores = row.scores
    return {
        "cost": _round(row.cost),
        "cost_with_rereads": _round(row.cost_with_rereads),
        "cost_with_rereads_x2": _round(row.repeat_rereads(2)),
        "cost_with_rereads_x4": _round(row.repeat_rereads(4)),
        "steps_per_100": _round(row.steps_per_100),
        "own_words": _round(row.own_words.value),
        "spans": _round(row.spans.value),
        "spans_per_conversation": _round(row.spans_per_conversation.value),
        "rewrites_per_100": _round(row.rewrites_per_100),
        "summaries": scores.summary_calls,
        "lambda": _round(row.break_even),
        "intervals": {
            "cost_with_rereads": _round_interval(row.cost_with_rereads_interval),
            "spans": _round_interval(row.spans.interval),
            "spans_per_conversation": _round_interval(row.spans_per_conversation.interval),
            "own_words": _round_interval(row.own_words.interval),
        },
        "figures": {column.name: _plain(column.of(row)) for column in (*SHAPE, *KEPT)},
        "dollars": {
            "without": scores.raw_bill / PICO_PER_DOLLAR,
            "with": scores.bill / PICO_PER_DOLLAR,
            "priced": scores.priced,
        },
        "scores": to_builtins(scores),
    }


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _round_interval(interval: Interval | None) -> list[float] | None:
    if interval is None:
        return None
    return [round(end, 4) for end in interval]


def _plain(cell: Cell) -> float | int | str:
    return float(cell) if isinstance(cell, Decimal) else cell
