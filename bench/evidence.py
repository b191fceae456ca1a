"""Write the figures of docs/evidence.md and README.md from replays, between the marks that the pages have for them.

compaction-proxy replay FILE ... --policy default --policy blocks ... --json > new.json
python bench/evidence.py new.json 0.2=old.json [--sentences sentences.txt]

More files are replays of the same conversations; the `default` of `NAME=FILE` is called NAME. `--sentences` is what
`bench/sentences.py` has printed; it is shown as it is.
`--choice` says which conversations these are, if they are not all: "`--part 1/4`".
"""

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace
from tables import figure, table

from proxy import __version__
from proxy.lab.replay.designs import NOTHING
from proxy.lab.replay.replay_values import FRESH_PRICE_RATIO, PRICES, Result, cost_unchanged, cost_with_rereads
from proxy.lab.replay.scorecard import Row, find_interval, group_rows

ROOT = Path(__file__).parents[1]
PAGES = ("docs/evidence.md", "README.md")
LARGE_TOKENS = 80_000
OWN = "default"
HEADLINE = "twentieth"
MODELS = {
    "tenth": "Claude Fable 5, Haiku 4.5",
    "twentieth": "Claude Opus 5.5, Sonnet 5.5",
    "fortieth": "Claude Fable 5.1",
}
"""Models of Anthropic that have these prices, in `proxy/models/data/models.json`."""
COLUMNS = (
    "policy",
    "cost",
    "re-reads x1",
    f"x1, {PRICES[HEADLINE].read:g}",
    "against `default`, x1",
    f"x2, {PRICES[HEADLINE].read:g}",
    "against `default`, x2",
    f"x4, {PRICES[HEADLINE].read:g}",
    "needed spans",
    "own words",
    "rewrites /100",
    "lambda",
)
"""`cost`, `re-reads x1` and `lambda` have a figure for each price model, or that of the headline's alone."""


def read_results(argument: str) -> list[Result]:
    """The results in FILE, or in NAME=FILE."""
    name, separator, path = argument.rpartition("=")
    rows = json.loads(Path(path).read_text(encoding="utf-8"))["conversations"]
    results = [msgspec.convert(row, Result) for row in rows]
    if separator:
        results = [replace(result, policy=name if result.policy == OWN else result.policy) for result in results]
    return [result for result in results if result.policy != NOTHING]


def keep_large(results: Sequence[Result]) -> list[Result]:
    """The results of the conversations whose largest request has at least 80,000 tokens as the agent sent it."""
    return [result for result in results if max(point.raw for point in result.points) >= LARGE_TOKENS]


def format_share(parts: Sequence[tuple[float, float]], digits: int = 1, scale: int = 100) -> str:
    """The sum of the parts over the sum of the wholes, with its interval."""
    interval = find_interval(parts)
    if interval is None:
        return "-"
    value = sum(part for part, _ in parts) / sum(whole for _, whole in parts)
    low, high = (figure(scale * end, digits) for end in interval)
    return f"{figure(scale * value, digits)} ({low}..{high})"


def compare_costs(row: Row, times: int = 1) -> list[tuple[float, float]]:
    """Of each conversation: its cost with re-reads charged so many times, and the cost of doing nothing."""
    prices = row.prices
    return [(cost_with_rereads(scores, prices, times), cost_unchanged(scores, prices)) for scores in row.conversations]


def compare_policies(row: Row, default: Row, times: int) -> list[tuple[float, float]]:
    """Of each conversation: how much more it costs than under the default, and the cost of doing nothing."""
    pairs = zip(compare_costs(row, times), compare_costs(default, times), strict=True)
    return [(cost - default_cost, whole) for (cost, whole), (default_cost, _) in pairs]


def fill_row(policy: str, rows: Mapping[str, Mapping[str, Row]]) -> list[str]:
    """The figures of one policy. `rows`: by price model, of which some policies have one, and by policy."""
    own = [prices[policy] for prices in rows.values() if policy in prices]
    row, default = rows[HEADLINE][policy], rows[HEADLINE][OWN]
    scores = row.scores
    needs = [conversation.needed for conversation in row.conversations if conversation.needed.asked]
    break_even = [each.break_even for each in own]
    return [
        f"`{policy}`",
        " / ".join(figure(100 * each.cost, 1) for each in own),
        " / ".join(figure(100 * each.cost_with_rereads, 1) for each in own),
        format_share(compare_costs(row)),
        "" if policy == OWN else format_share(compare_policies(row, default, 1)),
        figure(100 * row.repeat_rereads(2), 1),
        "" if policy == OWN else format_share(compare_policies(row, default, 2)),
        figure(100 * row.repeat_rereads(4), 1),
        format_share([(needed.kept / needed.asked, 1.0) for needed in needs], 3, 1),
        figure(scores.own.kept / scores.own.asked, 3) if scores.own.asked else "-",
        figure(row.rewrites_per_100, 1),
        " / ".join("-" if value is None else figure(value, 1) for value in break_even),
    ]


def fill_row_of_nothing(rows: Mapping[str, Mapping[str, Row]]) -> list[str]:
    """Doing nothing, and how much more that costs than the default."""
    default = rows[HEADLINE][OWN]
    savings = [
        format_share([(whole - cost, whole) for cost, whole in compare_costs(default, times)]) for times in (1, 2)
    ]
    whole = ["100.0", "100.0", "100.0", savings[0], "100.0", savings[1], "100.0"]
    return ["doing nothing", *whole, "1.000", "1.000", "0.0", "-"]


def make_table(results: Sequence[Result]) -> str:
    rows = {name: group_rows(results, name) for name in PRICES}
    return table(COLUMNS, [fill_row_of_nothing(rows), *(fill_row(policy, rows) for policy in rows[HEADLINE])])


def describe(results: Sequence[Result], choice: str) -> str:
    """Conversations, requests, sources, window, version and date."""
    own = [result for result in results if result.policy == OWN and result.prices == HEADLINE]
    return (
        f"{len(own):,} conversations of {len({result.source for result in own})} sources{choice}, "
        f"{sum(result.scores.requests for result in own):,} requests, a window of {own[0].window:,} tokens; "
        f"{datetime.now(UTC):%Y-%m-%d}, version {__version__}."
    )


def make_figures(results: Sequence[Result], others: Sequence[Result], choice: str) -> str:
    """The tables. `others`: results with a smaller window."""
    large = keep_large(results)
    sections = {
        f"Conversations of at least {LARGE_TOKENS:,} tokens": large,
        "All conversations": results,
    }
    for window in sorted({result.window for result in others}, reverse=True):
        sections[f"A window of {window:,} tokens"] = [result for result in others if result.window == window]
    texts = [f"### {name}\n\n{describe(own, choice)}\n\n{make_table(own)}" for name, own in sections.items() if own]
    return "\n\n".join(texts)


def describe_saving(row: Row) -> str:
    """`saves 41 % (37 to 46)`."""
    costs = compare_costs(row)
    saving = format_share([(whole - cost, whole) for cost, whole in costs], 0)
    return saving.replace(" (", " % (", 1).replace("..", " to ")


def make_headline(results: Sequence[Result], choice: str) -> str:
    prices = PRICES[HEADLINE]
    large, everything = (group_rows(chosen, HEADLINE)[OWN] for chosen in (keep_large(results), results))
    sources = len({result.source for result in results})
    text = (
        f"**In sessions of at least {LARGE_TOKENS:,} tokens it saves {describe_saving(large)} of the input cost**; in "
        f"all recorded ones {describe_saving(everything)}. Prices: Anthropic's {MODELS[HEADLINE]}, cached input at "
        f"{prices.read:g} and new input at {FRESH_PRICE_RATIO:g} of the list price. Summaries are included, and a step "
        "is charged for each result that the agent would have to read again. In brackets: 95 of 100 samples of the "
        f"{len(large.conversations):,} and {len(everything.conversations):,} conversations of {sources} sources"
        f"{choice}."
    )
    return textwrap.fill(text, 120)


def make_prices(results: Sequence[Result]) -> str:
    lines = []
    for name, prices in PRICES.items():
        large, everything = (group_rows(chosen, name)[OWN] for chosen in (keep_large(results), results))
        costs = compare_costs(everything)
        dearer = [cost / whole - 1 for cost, whole in costs if cost > whole]
        shown = f"{len(dearer)} of {len(costs):,}"
        if dearer:
            shown += f", by up to {max(dearer):.0%}".replace("%", " %")
        price = f"{prices.read:g} / {FRESH_PRICE_RATIO:g}"
        shares = (format_share(compare_costs(row), 0) for row in (large, everything))
        lines.append([price, MODELS[name], *shares, shown])
    return table(("cached / new input", "Anthropic's", "at least 80,000 tokens, %", "all, %", "dearer"), lines)


def replace_blocks(page: str, blocks: dict[str, str]) -> str:
    """Put each block between `<!-- NAME, by bench/evidence.py -->` and `<!-- end of NAME -->`, if the page has them."""
    for name, text in blocks.items():
        start, end = f"<!-- {name}, by bench/evidence.py -->", f"<!-- end of {name} -->"
        pattern = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
        block = f"{start}\n{text}\n{end}"
        page = pattern.sub(block.replace("\\", r"\\"), page)
    return page


def main(argv: list[str] | None = None, root: Path = ROOT) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("replays", metavar="[NAME=]FILE", nargs="+")
    parser.add_argument("--choice", metavar="TEXT", default="")
    parser.add_argument("--sentences", metavar="FILE", type=Path)
    args = parser.parse_args(argv)
    results = [result for argument in args.replays for result in read_results(argument)]
    choice = f" ({args.choice})" if args.choice else ""
    results.sort(key=lambda result: (result.source, result.conversation))
    window = max(result.window for result in results)
    others = [result for result in results if result.window != window]
    results = [result for result in results if result.window == window]
    if not keep_large(results):
        sys.exit(f"no conversation of {LARGE_TOKENS:,} tokens in {', '.join(args.replays)}")
    blocks = {
        "figures": make_figures(results, others, choice),
        "headline": make_headline(results, choice),
        "prices": make_prices(results),
    }
    if args.sentences:
        blocks["sentences"] = f"```text\n{args.sentences.read_text(encoding='utf-8').strip()}\n```"
    for name in PAGES:
        page = root / name
        page.write_text(replace_blocks(page.read_text(encoding="utf-8"), blocks), encoding="utf-8")


if __name__ == "__main__":
    main()
