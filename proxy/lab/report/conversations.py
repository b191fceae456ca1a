"""One conversation after the other: how it grew, what was forwarded of it, and what that cost and kept.

The dearest come first and have pictures; of the others a table tells.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from proxy.lab.replay.prices import PRICES, cost, share
from proxy.lab.replay.values import Point, Result, Scores
from proxy.lab.report.comparison import price_bars, retention_bars
from proxy.lab.report.drawing import swatch, thinned, tokens_over_time
from proxy.lab.report.headline import USUAL
from proxy.lab.report.markup import Markup, element, joined, table
from proxy.lab.report.numbers import count, exact, span, whole

PICTURED = 12
_PLAIN = PRICES[USUAL]


def conversations(results: Sequence[Result], name: str) -> Markup:
    by_name: dict[str, dict[str, Result]] = {}
    for result in results:
        by_name.setdefault(result.conversation, {})[result.policy] = result
    found = [each for each in by_name.values() if name in each and each[name].points]
    found.sort(key=lambda each: (-cost(each[name].scores.raw, _PLAIN), each[name].conversation))
    short = _shortened([each[name].conversation for each in found])
    shown = [_conversation(each, name, short[each[name].conversation]) for each in found[:PICTURED]]
    title = "The conversations" if len(found) <= PICTURED else f"The {PICTURED} dearest conversations"
    return element("section", element("h2", title), *shown, *_others(found[PICTURED:], name, short))


def _conversation(results: Mapping[str, Result], name: str, title: str) -> Markup:
    result = results[name]
    scores = {policy: each.scores for policy, each in results.items()}
    parts = (
        element("h3", title),
        element("p", _about(result), class_="soft"),
        _picture(result, title),
        element(
            "div",
            price_bars(result.scores, f"What {result.policy} costs here"),
            retention_bars(scores, "What the next action needed"),
            class_="two",
        ),
        _side_by_side(scores),
    )
    return element("article", *parts)


def _about(result: Result) -> str:
    model = f", {result.model}" if result.model else ""
    why = Counter(point.reason for point in result.points if point.rewrote and point.reason)
    reasons = f" ({', '.join(f'{many} {reason}' for reason, many in why.most_common())})" if why else ""
    long = span(result.points[-1].seconds - result.points[0].seconds)
    price = exact(share(result.scores, _PLAIN))
    return (
        f"{result.source}{model}; {count(len(result.points), 'request')} in {long}. With {result.policy}: {price} of "
        f"the cost of doing nothing, {count(result.scores.rewrites, 'rewrite')}{reasons}, "
        f"{count(result.scores.summary_calls, 'call')} for a summary."
    )


def _picture(result: Result, title: str) -> Markup:
    words = f"{title}: tokens of each request, as sent and as forwarded with {result.policy}"
    marks = ["limit"] if any(_over(point, result.window) for point in result.points) else []
    legend = (
        ("raw", "as the agent sent it"),
        ("ours", f"as {result.policy} forwarded it"),
        ("mark", "rewrite: a block was made"),
        *((("limit", f"window of {whole(result.window)}"),) if marks else ()),
    )
    keys = (element("li", swatch(kind), told) for kind, told in legend)
    return element(
        "figure",
        element("figcaption", "Tokens, request by request"),
        element("ul", *keys, class_="legend"),
        tokens_over_time(result.points, result.window, words),
        _numbers(result),
    )


def _over(point: Point, window: int) -> bool:
    return max(point.raw, point.forwarded) > window


def _numbers(result: Result) -> Markup:
    """The numbers that were drawn."""
    drawn = thinned(result.points)
    rows: list[tuple[str | Markup, ...]] = [
        (
            whole(number + 1),
            whole(point.raw),
            whole(point.forwarded),
            whole(point.cached),
            (point.reason or "yes") if point.rewrote else "",
            whole(point.summaries) if point.summaries else "",
        )
        for number, point in drawn
    ]
    headings = ("request", "sent", "forwarded", "of it cached", "rewrite", "summaries")
    told = "every request" if len(drawn) == len(result.points) else "the highest and lowest of each stretch"
    return element(
        "details", element("summary", "The numbers in this picture"), table(f"Tokens: {told}", headings, rows)
    )


def _side_by_side(scores: Mapping[str, Scores]) -> Markup:
    rows: list[tuple[str | Markup, ...]] = [
        (
            name,
            exact(share(each, _PLAIN)),
            whole(each.rewrites),
            whole(each.peak),
            whole(each.over),
            whole(each.summary_calls),
        )
        for name, each in scores.items()
    ]
    headings = ("policy", f"cost at {USUAL}", "rewrites", "largest request", "over the window", "summaries")
    return table("This conversation under each policy", headings, rows)


def _others(found: Sequence[Mapping[str, Result]], name: str, short: Mapping[str, str]) -> Iterator[Markup]:
    if not found:
        return
    rows: list[tuple[str | Markup, ...]] = []
    for each in found:
        scores = each[name].scores
        sizes = (whole(scores.requests), whole(scores.raw.read), whole(scores.forwarded.read))
        rows.append((short[each[name].conversation], *sizes, exact(share(scores, _PLAIN)), whole(scores.rewrites)))
    headings = ("conversation", "requests", "tokens sent", "forwarded", f"cost at {USUAL}", "rewrites")
    listed = table(f"With {name}, the dearest first", headings, rows, "long")
    yield element("details", element("summary", f"The other {count(len(found), 'conversation')}"), joined(listed))


def _shortened(names: Sequence[str]) -> dict[str, str]:
    """Paths without the folders that all of them share; of a single one the last two stay."""
    paths = [name.split("/") for name in names]
    if len(paths) == 1:
        return {names[0]: "/".join(paths[0][-3:])}
    folders = list(takewhile(lambda level: len(set(level)) == 1, zip(*(path[:-1] for path in paths), strict=False)))
    return {name: "/".join(path[len(folders) :]) for name, path in zip(names, paths, strict=True)}
