"""The policies beside each other: a picture of cost and retention, the tables of the scorecard, kinds of agents."""

from collections.abc import Iterator, Mapping, Sequence

from proxy.lab.replay.prices import PRICES, share
from proxy.lab.replay.scorecard import OLD, TABLES, by_source, rows
from proxy.lab.replay.values import Result, Scores
from proxy.lab.report.drawing import gauge
from proxy.lab.report.headline import NOTHING, USUAL
from proxy.lab.report.markup import Markup, element, table
from proxy.lab.report.numbers import cell, exact, whole


def comparison(results: Sequence[Result], totals: Mapping[str, Scores], name: str) -> Markup:
    parts = [element("h2", "The policies beside each other"), _bars(totals, name)]
    for title, columns in TABLES.items():
        heads = tuple(column.name for column in columns)
        figures = [(str(row[0]), *map(cell, row[1:])) for row in rows(totals, columns)]
        words = "; ".join(f"{column.name}: {column.title}" for column in columns if column.name != column.title)
        listed = table(f"{title}, by policy", ("policy", *heads), figures)
        parts.append(element("details", element("summary", title), listed, element("p", words, class_="soft small")))
    parts += _prices(totals[name], name)
    parts += _sources(results, name)
    return element("section", *parts)


def price_bars(scores: Scores, caption: str) -> Markup:
    """The cost under each price model; the fullest bar is the dearest, or all of doing nothing."""
    shares = {label: share(scores, prices) for label, prices in PRICES.items()}
    full = max(1.0, *shares.values())
    cells: list[tuple[str | Markup, ...]] = [
        (_terms(label), gauge(each, exact(each), full)) for label, each in shares.items()
    ]
    return table(caption, ("a token costs", "all of it, against doing nothing"), cells, "bars")


def retention_bars(scores: Mapping[str, Scores], caption: str) -> Markup:
    """What the next action needed, by policy."""
    cells: list[tuple[str | Markup, ...]] = [(name, _kept(name, each)) for name, each in scores.items()]
    return table(caption, ("policy", "still in context"), cells, "bars")


def _terms(label: str) -> Markup:
    prices = PRICES[label]
    said = "no cache" if prices.read == prices.write else f"cached {prices.read:g}, new {prices.write:g}"
    return element("abbr", said, title=label)


def _bars(totals: Mapping[str, Scores], presented: str) -> Markup:
    costs = {name: share(scores, PRICES[USUAL]) for name, scores in totals.items()}
    full = max(1.0, *costs.values())
    cells: list[tuple[str | Markup, ...]] = [
        (
            element("strong", name) if name == presented else name,
            gauge(costs[name], exact(costs[name]), full, _kind(name)),
            _kept(name, scores),
            whole(scores.rewrites),
            whole(scores.over),
        )
        for name, scores in totals.items()
    ]
    headings = ("policy", f"cost at {USUAL}", "needed next, still in context", "rewrites", "over window")
    return table("What each costs against doing nothing, and what it keeps", headings, cells, "bars both")


def _kept(name: str, scores: Scores) -> Markup | str:
    kept = scores.kept_of(OLD)
    if not kept.asked:
        return "nothing was needed"
    part = kept.in_context / kept.asked
    return gauge(part, exact(part), kind=_kind(name))


def _kind(name: str) -> str:
    return "plain" if name == NOTHING else "fill"


def _prices(scores: Scores, name: str) -> Iterator[Markup]:
    yield element("h2", "Whatever the provider's prices")
    yield price_bars(scores, f"{name}, by what cached and new tokens cost, in parts of the plain input price")


def _sources(results: Sequence[Result], name: str) -> Iterator[Markup]:
    """Where there is more than one."""
    found = by_source(results, name)
    if len(found) < 2:  # noqa: PLR2004 (one is no comparison)
        return
    costs = {source: share(scores, PRICES[USUAL]) for source, scores in found.items()}
    full = max(1.0, *costs.values())
    cells: list[tuple[str | Markup, ...]] = [
        (source, gauge(costs[source], exact(costs[source]), full), whole(scores.requests))
        for source, scores in found.items()
    ]
    yield element("h2", "By kind of agent")
    yield table(f"{name}, against doing nothing", ("sessions of", f"cost at {USUAL}", "requests"), cells, "bars")
