"""The replay's results as one HTML page: figures, tables, charts of the most expensive conversations.

The page is a single file from one template (`report.html`, `report.css`). It loads nothing and runs nothing: its policy
allows its own style sheet only. Names of sessions and policies are data from outside; all text goes through `_text`.
"""

import html
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from importlib import resources
from string import Template

from proxy.lab.replay.conclusion import conclude, describe_bill, exact_percent
from proxy.lab.replay.replay_values import PRICES, Point, Result, cost_unchanged
from proxy.lab.replay.scorecard import (
    OF_A_SOURCE,
    SHAPE,
    TABLES,
    WORTH,
    Cell,
    Column,
    Row,
    by_source,
    describe_prices,
    fill_cells,
    group_rows,
    list_prices,
)

NOTHING, DEFAULT = "nothing", "default"
CHARTS_LIMIT = 12
POINTS_LIMIT = 600
"""Of a line in a chart; longer sessions are thinned."""
_WIDTH, _HEIGHT = 1000, 200
_OF_A_CONVERSATION = ("requests", "tokens", "cost", "with re-reads", "rewrites /100", "spans", "peak", "over")


def page(results: Sequence[Result]) -> str:
    """The whole page. It is about the first price model; the others have a table of the policies each."""
    price_models = list_prices(results)
    prices = price_models[0]
    rows = group_rows(results, prices)
    if not rows:
        return _fill(title="Nothing was replayed", lead="No conversation held a request.")
    name = presented_policy(list(rows))
    own = [result for result in results if result.policy == name and result.prices in ("", prices)]
    own.sort(key=lambda result: (cost_unchanged(result.scores, PRICES.get(prices)), result.conversation), reverse=True)
    conversations = {own_result.conversation: Row([own_result.scores], PRICES.get(prices)) for own_result in own}
    worth = [
        _table(f"What it is worth: {describe_prices(price_model)}", "policy", WORTH, group_rows(results, price_model))
        for price_model in price_models
    ]
    return _fill(
        title=_text(_title(rows[name])),
        lead=_text(conclude(name, rows[name], prices)),
        cards="".join(_cards(rows[name], rows.get(NOTHING), prices)),
        policies="".join([*worth, *(_table(title, "policy", columns, rows) for title, columns in TABLES.items())]),
        sources=_table(f"Policy {name}", "sessions of", OF_A_SOURCE, by_source(results, name, prices)),
        charts="".join(_chart(own_result) for own_result in own[:CHARTS_LIMIT]),
        conversations=_table(f"Policy {name}, dearest first", "conversation", _conversation_columns(), conversations),
    )


def presented_policy(policies: Sequence[str]) -> str:
    """The policy that the page is about: the shipped one, or the first that does anything."""
    if DEFAULT in policies:
        return DEFAULT
    return next((name for name in policies if name != NOTHING), policies[0])


def _fill(**parts: str) -> str:
    folder = resources.files("proxy.lab")
    style = folder.joinpath("report.css").read_text(encoding="utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    names = ("cards", "policies", "sources", "charts", "conversations")
    template = Template(folder.joinpath("report.html").read_text(encoding="utf-8"))
    return template.substitute({**dict.fromkeys(names, ""), **parts, "style": style, "policy": policy})


def _text(value: object) -> str:
    return html.escape(str(value))


def _title(row: Row) -> str:
    if row.cost_with_rereads < 1:
        return f"{exact_percent(1 - row.cost_with_rereads)} less input cost, re-reads charged"
    return f"{100 * row.cost_with_rereads:.0f} % of the input cost of doing nothing, re-reads charged"


def _cards(row: Row, plain: Row | None, prices: str) -> Iterator[str]:
    scores = row.scores
    money = describe_prices(prices)
    yield _card("Input cost, against doing nothing", exact_percent(row.cost), money, is_good=row.cost < 1)
    if bill := describe_bill(row):
        bill_share = scores.bill / scores.raw_bill
        yield _card("The same at list prices", exact_percent(bill_share), bill, is_good=bill_share < 1)
    if scores.needed.asked:
        rereads = f"{scores.needed.rereads:,} results would be read again"
        charged_cost = exact_percent(row.cost_with_rereads)
        yield _card("The same with re-reads charged", charged_cost, rereads, is_good=row.cost_with_rereads < 1)
        spans = f"of {scores.needed.asked:,} passages that the agent quoted next"
        yield _card("What the next actions needed", exact_percent(row.spans.value or 0.0), spans)
    yield _card("Cache broken, per 100 requests", f"{row.rewrites_per_100:.1f}", f"{scores.rewrites:,} rewrites")
    over = f"the largest had {scores.peak:,} tokens" + (f"; doing nothing: {plain.scores.over:,} over" if plain else "")
    yield _card("Requests over the window", f"{scores.over:,}", over, is_good=not scores.over)
    recalls = [recall for name in ("user messages", "pins") if (recall := scores.recall.get(name))]
    if promised_count := sum(recall.asked for recall in recalls):
        present_count, invalid = sum(recall.kept for recall in recalls), max(scores.invalid.values(), default=0)
        is_good = present_count == promised_count and not invalid
        text = f"{present_count:,} of {promised_count:,} user messages and pins; {invalid:,} requests became invalid"
        if (failures := scores.recall.get("failures told")) and failures.asked:  # measured, and never guaranteed
            text += f"; of {failures.asked:,} shortened failures, {failures.kept:,} are told"
        yield _card(
            "Kept of what must not be lost", exact_percent(present_count / promised_count), text, is_good=is_good
        )


def _card(term: str, figure: str, text: str, *, is_good: bool | None = None) -> str:
    kind = {None: "", True: " good", False: " bad"}[is_good]
    return (
        f'<div><dt>{_text(term)}</dt><dd class="figure{kind}">{_text(figure)}</dd>'
        f'<dd class="soft">{_text(text)}</dd></div>'
    )


def _conversation_columns() -> list[Column]:
    columns_by_name = {column.name: column for column in (*SHAPE, *WORTH)}
    return [columns_by_name[name] for name in _OF_A_CONVERSATION]


def _table(title: str, first: str, columns: Sequence[Column], rows: Mapping[str, Row]) -> str:
    heads = "".join(f'<th scope="col" title="{_text(column.title)}">{_text(column.name)}</th>' for column in columns)
    lines = "".join(_row(cells) for cells in fill_cells(rows, columns))
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{_text(title)}"><table><caption>{_text(title)}'
        f'</caption><thead><tr><th scope="col">{_text(first)}</th>{heads}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _row(row: Sequence[Cell]) -> str:
    cells = []
    for cell in row[1:]:
        text = f"{cell:,}" if isinstance(cell, int) else _text(cell)
        cells.append(f"<td>{text}</td>")
    return f'<tr><th scope="row">{_text(row[0])}</th>{"".join(cells)}</tr>'


def _chart(result: Result) -> str:
    """Tokens of each request, as sent and as forwarded, and the window if it is not far above both."""
    top = max((max(point.raw, point.forwarded) for point in result.points), default=0) or 1
    points = list(_thin(result.points))
    count = len(result.points)
    sent_line = _line(points, [point.raw for _, point in points], count, top)
    forwarded_line = _line(points, [point.forwarded for _, point in points], count, top)
    height = _HEIGHT * (1 - result.window / top)
    limit = f'<line class="limit" x1="0" x2="{_WIDTH}" y1="{height:.1f}" y2="{height:.1f}"/>' if height >= 0 else ""
    text = f"{result.scores.requests:,} requests of {result.model or 'an unknown model'}, up to {top:,} tokens"
    return (
        f'<h3>{_text(result.conversation)}</h3><p class="soft">{_text(text)}; window {result.window:,}; '
        f"{result.scores.rewrites:,} rewrites. Upper line: as sent; lower: as forwarded.</p>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{_text(text)}">'
        f'<polyline class="raw" points="{sent_line}"/><polyline class="ours" points="{forwarded_line}"/>{limit}</svg>'
    )


def _thin(points: Sequence[Point]) -> Iterator[tuple[int, Point]]:
    """Not more points than can be seen apart, with all rewrites and both ends."""
    step = max(1, len(points) // POINTS_LIMIT)
    last = len(points) - 1
    return ((at, point) for at, point in enumerate(points) if at % step == 0 or point.rewrote or at == last)


def _line(points: Sequence[tuple[int, Point]], sizes: Iterable[int], point_count: int, top: int) -> str:
    width = _WIDTH / max(1, point_count - 1)
    spots = zip(points, sizes, strict=True)
    return " ".join(f"{at * width:.1f},{_HEIGHT * (1 - size / top):.1f}" for (at, _), size in spots)
