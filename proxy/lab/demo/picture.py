"""A run as a person sees it: a picture of the history growing and what the model reads of it, figures, and the bill.

Everything here is text out of values: who has no terminal gets the same words line by line.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import wrap

from proxy.lab.demo.agent import AgentTurn
from proxy.lab.demo.demo_run import Run
from proxy.lab.demo.model import NAME
from proxy.lab.demo.speech import DemoUsage
from proxy.lab.demo.tally import Bill, Tally
from proxy.shorten.economics import TokenPrices

TITLE = "compaction-proxy demo"
LABEL = "The agent, its task and the model are simulated; proxy and traffic are real."
HEIGHT_LINES = 11
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_AXIS_CHARACTERS = 6
TABLE_CHARACTERS = 80
"""Narrower terminals get the totals as lines instead of a table."""


@dataclass(frozen=True, slots=True)
class Ink:
    """How to stress a word, where a terminal can."""

    coloured: bool

    def strong(self, text: str) -> str:
        return self._in("1", text)

    def faint(self, text: str) -> str:
        return self._in("2", text)

    def good(self, text: str) -> str:
        return self._in("32", text)

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.coloured and text else text


@dataclass(frozen=True, slots=True)
class Scenery:
    """Values that are known before the first turn."""

    run: Run
    untouched: Sequence[DemoUsage]
    window: int
    prices: TokenPrices

    @property
    def end(self) -> int | None:
        """The first turn that the model would refuse with nothing in between."""
        return next((step for step, each in enumerate(self.untouched) if each.prompt > self.window), None)


@dataclass(frozen=True, slots=True)
class Moment:
    """A run as far as it has come; turns are added to it as they end."""

    scenery: Scenery
    turns: list[AgentTurn]
    tally: Tally

    @property
    def blocks(self) -> list[AgentTurn]:
        return [turn for turn in self.turns if turn.read_note("") == "created"]

    @property
    def dollars(self) -> float:
        return self.tally.bill.dollars(self.scenery.prices)

    @property
    def without(self) -> Bill:
        """The bill for the same turns with nothing in between."""
        return Bill.of(self.scenery.untouched[: len(self.turns)])

    @property
    def dollars_without(self) -> float:
        return self.without.dollars(self.scenery.prices)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """For each turn, what the agent sent and what the model read."""
        return [(self.scenery.untouched[turn.step].prompt, turn.usage.prompt) for turn in self.tally.turns]


# --- the picture -----------------------------------------------------------------------------------------------------


def draw_panel(moment: Moment, width: int, ink: Ink) -> list[str]:
    """All that is shown while it runs."""
    scenery, turns = moment.scenery, len(moment.turns)
    sent, read = moment.sizes[-1] if moment.sizes else (0, 0)
    whole = len(scenery.run.steps)
    cut = max(0, width - 22)
    return [
        f" {ink.strong(TITLE)}",
        f" {ink.faint(LABEL)}",
        "",
        *draw_chart(moment, width, ink),
        "",
        f" turn {turns:>3} of {whole}   {ink.faint(describe_step(scenery.run, turns)[:cut])}",
        "",
        _format_pair("the agent sends", f"{sent:,} tokens", "from the model's cache", f"{moment.tally.bill.share:.1%}"),
        _format_pair("the model reads", f"{read:,} tokens", "times it was shortened", f"{len(moment.blocks)}"),
        _format_pair(
            "bill so far",
            ink.good(_format_dollars(moment.dollars)),
            "summaries asked for",
            f"{moment.tally.summaries}",
            ink,
        ),
        _format_pair(
            "without", _format_dollars(moment.dollars_without), "requests over the window", f"{moment.tally.over}"
        ),
    ]


def draw_chart(moment: Moment, width: int, ink: Ink) -> list[str]:
    """The history as the agent sends it, and in front of it what the model reads; rows from the top down."""
    scenery, sizes = moment.scenery, moment.sizes
    whole = len(scenery.run.steps)
    columns = min(width - _AXIS_CHARACTERS - 4, whole)
    top = max(scenery.untouched[-1].prompt, scenery.window)
    places = ((column + 1) * whole // columns - 1 for column in range(columns))
    shown = [sizes[place] if place < len(sizes) else (0, 0) for place in places]
    line = min(HEIGHT_LINES - 1, scenery.window * HEIGHT_LINES // top)
    labels = {HEIGHT_LINES - 1: _format_thousands(top), line: _format_thousands(scenery.window)}
    rows = [
        f"{labels.get(row, ''):>{_AXIS_CHARACTERS}} ┤"
        + _colour_row(_draw_row(row, shown, top, "╌" if row == line else " "), ink)
        for row in reversed(range(HEIGHT_LINES))
    ]
    legend = f"{ink.faint('░')} the agent sends   {ink.good('█')} the model reads   {ink.faint('╌')} the model's window"
    return [*rows, f"{'':>{_AXIS_CHARACTERS}} └{'─' * columns}", f"{'':>{_AXIS_CHARACTERS}}  {legend}"]


def _draw_row(row: int, shown: Sequence[tuple[int, int]], top: int, empty: str) -> str:
    """One row of the picture, without its colours."""
    cells = []
    for sent, read in shown:
        filled = round((read / top * HEIGHT_LINES - row) * 8)
        behind = "░" if sent / top * HEIGHT_LINES > row + 0.5 else empty
        cells.append(_EIGHTHS[min(8, filled)] if filled > 0 else behind)
    return "".join(cells)


def _colour_row(row: str, ink: Ink) -> str:
    colour: Callable[[str], bool] = _EIGHTHS[1:].__contains__
    return "".join((ink.good if solid else ink.faint)("".join(cells)) for solid, cells in groupby(row, colour))


def describe_step(run: Run, turns: int) -> str:
    """Calls of the agent in this step, in short."""
    if turns == 0:
        return "reading its task"
    step = run.steps[turns - 1]
    return "   ".join(f"{act.tool} {_first_argument(act.arguments)}" for act in step.acts) or step.says


def _first_argument(arguments: str) -> str:
    """The first argument's value, short."""
    return arguments.partition(": ")[2].split(', "')[0].strip('"{}[]')[:40]


def _format_pair(one: str, figure: str, other: str, second: str, ink: Ink | None = None) -> str:
    more = 9 if ink is not None and ink.coloured else 0  # the colours take room that is not seen
    return f" {one:<18}{figure:>{18 + more}}    {other:<27}{second:>8}"


# --- line by line ----------------------------------------------------------------------------------------------------


def format_lines(moment: Moment) -> Iterator[str]:
    """Lines to print after this turn, where the output is not a terminal."""
    number, last = len(moment.turns), moment.turns[-1]
    if last.read_note("") == "created":
        before, after = int(last.read_note("-tokens-before")), int(last.read_note("-tokens-after"))
        yield f"turn {number:>3}   shortened ({last.read_note('-reason')}): {before:,} tokens sent, {after:,} read"
    if number % 10 == 0:
        sent, read = moment.sizes[-1]
        yield (
            f"turn {number:>3}   sent {sent:>7,}   read {read:>7,}   cached {moment.tally.bill.share:6.1%}   "
            f"{_format_dollars(moment.dollars)} (without {_format_dollars(moment.dollars_without)})"
        )


# --- the end ---------------------------------------------------------------------------------------------------------


def format_closing(moment: Moment, seconds: float, width: int, ink: Ink) -> list[str]:
    """Totals with the proxy and without."""
    scenery, tally, without = moment.scenery, moment.tally, moment.without
    turns = len(moment.turns)
    sent = max((each.prompt for each in scenery.untouched[:turns]), default=0)
    over = sum(each.prompt > scenery.window for each in scenery.untouched[:turns])
    rows = [
        ("longest request, tokens", f"{tally.peak:,}", f"{sent:,}"),
        ("requests over the window", f"{tally.over}", f"{over}"),
        ("tokens read", f"{tally.bill.prompt:,}", f"{without.prompt:,}"),
        ("of them from the model's cache", f"{tally.bill.share:.1%}", f"{without.share:.1%}"),
        ("summaries asked for", f"{tally.summaries}", "0"),
        ("times the cache was broken", f"{tally.breaks}", "0"),
    ]
    prices = scenery.prices
    inputs = tally.bill.input_dollars(prices), without.input_dollars(prices)
    bills = [("bill: input", *inputs), ("bill: input and answers", moment.dollars, moment.dollars_without)]
    return [
        *(f" {line}" for line in wrap(_describe_run(scenery.run, turns, seconds), width - 2)),
        "",
        *(_format_totals(rows, bills, ink) if width >= TABLE_CHARACTERS else _list_totals(rows, bills)),
        "",
        *(f" {ink.faint(line)}" for sentence in _fine_print(moment) for line in wrap(sentence, width - 2)),
    ]


def _describe_run(run: Run, turns: int, seconds: float) -> str:
    nudges = sum(len(run.nudge(step)) for step in range(turns))
    words = f"{nudges + 1} user messages" if nudges else "one user message"
    return f"{turns} turn{'s' * (turns != 1)} of a simulated agent, {words}, in {seconds:.0f} seconds:"


def _fine_print(moment: Moment) -> Iterator[str]:
    scenery, prices = moment.scenery, moment.scenery.prices
    yield (
        f"The bill is at {NAME}'s list prices per million tokens (${prices.input:g} in, ${prices.cached:g} cached, "
        f"${prices.output:g} out), summary calls included. Its tokenizer counts; the cache works as OpenAI's does."
    )
    if scenery.end is not None and scenery.end < len(moment.turns):
        yield (
            f"Without the proxy, a model with a window of {scenery.window:,} tokens refuses turn {scenery.end + 1}, "
            "and the run is over. The other column is for a model that has room for all of it."
        )
    if not moment.blocks:
        return
    if moment.dollars >= moment.dollars_without:
        yield (
            "This run saved nothing. Shortening a history costs once, because the model's cache no longer matches, and "
            "pays back with each later turn: see --turns 150."
        )
        return
    yield "A real agent may look again for what was cleared. This one does not: take the saving as an upper bound."


def _format_totals(
    rows: Sequence[tuple[str, str, str]], bills: Sequence[tuple[str, float, float]], ink: Ink
) -> Iterator[str]:
    yield f" {'':<34}{'with the proxy':>16}{'without':>16}"
    yield from (f" {what:<34}{with_it:>16}{bare:>16}" for what, with_it, bare in rows)
    yield from (_format_bill(*bill, ink) for bill in bills)


def _list_totals(rows: Sequence[tuple[str, str, str]], bills: Sequence[tuple[str, float, float]]) -> Iterator[str]:
    dollars = [(what, _format_dollars(paid), _format_dollars(bare)) for what, paid, bare in bills]
    for what, with_it, bare in (*rows, *dollars):
        yield f" {what}:"
        yield f"   {with_it}, without the proxy {bare}"
    yield f" bill: {_format_saving(*bills[-1][1:])}"


def _format_bill(name: str, paid: float, without: float, ink: Ink) -> str:
    """A row of dollars, and the difference as a share of the bill without the proxy."""
    row = f" {name:<34}{ink.strong(f'{_format_dollars(paid):>16}')}{_format_dollars(without):>16}"
    return f"{row}   {ink.good(_format_saving(paid, without))}"


def _format_saving(paid: float, without: float) -> str:
    percent = round(100 * (1 - paid / without)) if without else 0
    if not percent:
        return "the same"
    return f"{percent} % less" if percent > 0 else f"{-percent} % more"


def _format_dollars(dollars: float) -> str:
    return f"${dollars:.2f}"


def _format_thousands(tokens: int) -> str:
    return f"{tokens / 1000:.0f}k"
