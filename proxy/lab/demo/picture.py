"""A run on a terminal: the growing history, the part that the model reads, totals, and the bill."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from textwrap import wrap

from msgspec import Struct

from proxy.lab.demo.agent import TOOLS, AgentTurn, Run, encode
from proxy.lab.demo.model import CACHED_LEAST, CACHED_STEP, NAME, DemoUsage, ReceivedRequest
from proxy.models.tokenizer import Tokenizer
from proxy.shorten.economics import TokenPrices

MILLION_TOKENS = 1_000_000
CACHED_PRICE_RATIO = 0.1
WARM_REQUESTS = 10


class Bill(Struct, frozen=True):
    prompt: int = 0
    cached: int = 0
    answer: int = 0

    @classmethod
    def of(cls, usages: Iterable[DemoUsage]) -> "Bill":
        bill = cls()
        for usage in usages:
            bill = cls(bill.prompt + usage.prompt, bill.cached + usage.cached, bill.answer + usage.answer)
        return bill

    @property
    def share(self) -> float:
        return self.cached / self.prompt if self.prompt else 0.0

    def cost(self, read: float = CACHED_PRICE_RATIO) -> float:
        """In tokens at full price."""
        return self.prompt - self.cached + self.cached * read

    def dollars(self, prices: TokenPrices) -> float:
        return self.input_dollars(prices) + self.answer * (prices.output or 0.0) / MILLION_TOKENS

    def input_dollars(self, prices: TokenPrices) -> float:
        return ((self.prompt - self.cached) * prices.fresh + self.cached * prices.cached) / MILLION_TOKENS


class Tally(Struct, frozen=True):
    received: Sequence[ReceivedRequest]

    @property
    def turns(self) -> list[ReceivedRequest]:
        return [request for request in self.received if request.kind == "turn" and request.answered]

    @property
    def summaries(self) -> int:
        return sum(request.kind == "summary" for request in self.received)

    @property
    def over(self) -> int:
        return sum(request.too_long for request in self.received)

    @property
    def malformed(self) -> int:
        return sum(request.malformed for request in self.received)

    @property
    def breaks(self) -> int:
        """Turns that did not continue the one before."""
        return sum(request.broke for request in self.received)

    @property
    def peak(self) -> int:
        return max((request.usage.prompt for request in self.received), default=0)

    @property
    def bill(self) -> Bill:
        return Bill.of(request.usage for request in self.received if request.answered)


def measure_waits(turns: Iterable[AgentTurn], requests: Iterable[ReceivedRequest]) -> list[float]:
    """Seconds from the client to the upstream, in a proxy that is warm."""
    arrivals = {request.step: request.at for request in requests if request.kind == "turn" and request.answered}
    return [arrivals[turn.step] - turn.began for turn in turns if turn.step in arrivals and turn.step >= WARM_REQUESTS]


def charge_untouched(run: Run, tokenizer: Tokenizer) -> list[DemoUsage]:
    """Return the usage of each turn without the proxy, if the window is large enough."""
    tools = tokenizer.count(encode(TOOLS))
    usages: list[DemoUsage] = []
    for step, messages in zip(range(len(run.steps)), run.requests(), strict=True):
        prompt = tools + sum(map(tokenizer.count, messages))
        before = usages[-1].prompt if usages else 0
        cached_tokens = before // CACHED_STEP * CACHED_STEP if before >= CACHED_LEAST else 0
        usages.append(DemoUsage(prompt, cached_tokens, tokenizer.count(encode(run.answer(step)))))
    return usages


TITLE = "compaction-proxy demo"
LABEL = "The agent, its task and the model are simulated; proxy and traffic are real."
HEIGHT_LINES = 11
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_AXIS_CHARACTERS = 6


class Ink(Struct, frozen=True):
    coloured: bool

    def strong(self, text: str) -> str:
        return self._in("1", text)

    def faint(self, text: str) -> str:
        return self._in("2", text)

    def good(self, text: str) -> str:
        return self._in("32", text)

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.coloured and text else text


class Scenery(Struct, frozen=True):
    run: Run
    untouched: Sequence[DemoUsage]
    window: int
    prices: TokenPrices

    @property
    def end(self) -> int | None:
        """The first turn that the model would refuse without the proxy."""
        return next((step for step, usage in enumerate(self.untouched) if usage.prompt > self.window), None)


class Moment(Struct, frozen=True):
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
        return Bill.of(self.scenery.untouched[: len(self.turns)])

    @property
    def dollars_without(self) -> float:
        return self.without.dollars(self.scenery.prices)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Per turn, tokens as sent and as read."""
        return [(self.scenery.untouched[turn.step].prompt, turn.usage.prompt) for turn in self.tally.turns]


def draw_panel(moment: Moment, width: int, ink: Ink) -> list[str]:
    scenery, turns = moment.scenery, len(moment.turns)
    sent_tokens, read = moment.sizes[-1] if moment.sizes else (0, 0)
    step_count = len(scenery.run.steps)
    cut = max(0, width - 22)
    return [
        f" {ink.strong(TITLE)}",
        f" {ink.faint(LABEL)}",
        "",
        *draw_chart(moment, width, ink),
        "",
        f" turn {turns:>3} of {step_count}   {ink.faint(describe_step(scenery.run, turns)[:cut])}",
        "",
        _format_pair(
            "the agent sends", f"{sent_tokens:,} tokens", "from the model's cache", f"{moment.tally.bill.share:.1%}"
        ),
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
    """Rows from the top down."""
    scenery, sizes = moment.scenery, moment.sizes
    step_count = len(scenery.run.steps)
    columns = min(width - _AXIS_CHARACTERS - 4, step_count)
    top = max(scenery.untouched[-1].prompt, scenery.window)
    column_sizes = []
    for column in range(1, columns + 1):
        turn = column * step_count // columns - 1
        column_sizes.append(sizes[turn] if turn < len(sizes) else (0, 0))
    line = min(HEIGHT_LINES - 1, scenery.window * HEIGHT_LINES // top)
    labels = {HEIGHT_LINES - 1: _format_thousands(top), line: _format_thousands(scenery.window)}
    rows = []
    for row in reversed(range(HEIGHT_LINES)):
        cells = _draw_row(row, column_sizes, top, "╌" if row == line else " ")
        rows.append(f"{labels.get(row, ''):>{_AXIS_CHARACTERS}} ┤{_colour_row(cells, ink)}")
    legend = f"{ink.faint('░')} the agent sends   {ink.good('█')} the model reads   {ink.faint('╌')} the model's window"
    return [*rows, f"{'':>{_AXIS_CHARACTERS}} └{'─' * columns}", f"{'':>{_AXIS_CHARACTERS}}  {legend}"]


def _draw_row(row: int, column_sizes: Sequence[tuple[int, int]], top: int, empty: str) -> str:
    cells = []
    for sent_tokens, read in column_sizes:
        eighths = round((read / top * HEIGHT_LINES - row) * 8)
        behind = "░" if sent_tokens / top * HEIGHT_LINES > row + 0.5 else empty
        cells.append(_EIGHTHS[min(8, eighths)] if eighths > 0 else behind)
    return "".join(cells)


def _colour_row(row: str, ink: Ink) -> str:
    pieces = []
    for is_solid, cells in groupby(row, _EIGHTHS[1:].__contains__):
        text = "".join(cells)
        pieces.append(ink.good(text) if is_solid else ink.faint(text))
    return "".join(pieces)


def describe_step(run: Run, turns: int) -> str:
    if turns == 0:
        return "reading its task"
    step = run.steps[turns - 1]
    return "   ".join(f"{act.tool} {_first_argument(act.arguments)}" for act in step.acts) or step.says


def _first_argument(arguments: str) -> str:
    return arguments.partition(": ")[2].split(', "')[0].strip('"{}[]')[:40]


def _format_pair(name: str, figure: str, other_name: str, second: str, ink: Ink | None = None) -> str:
    colour_width = 9 if ink is not None and ink.coloured else 0  # the colours take room that is not seen
    return f" {name:<18}{figure:>{18 + colour_width}}    {other_name:<27}{second:>8}"


def format_lines(moment: Moment) -> Iterator[str]:
    """Return lines for an output that is no terminal."""
    number, last = len(moment.turns), moment.turns[-1]
    sent_tokens, read = moment.sizes[-1]
    if last.read_note("") == "created":
        yield f"turn {number:>3}   shortened ({last.read_note('-reason')}): {sent_tokens:,} tokens sent, {read:,} read"
    if number % 10 == 0:
        yield (
            f"turn {number:>3}   sent {sent_tokens:>7,}   read {read:>7,}   cached {moment.tally.bill.share:6.1%}   "
            f"{_format_dollars(moment.dollars)} (without {_format_dollars(moment.dollars_without)})"
        )


def format_closing(moment: Moment, seconds: float, width: int, ink: Ink) -> list[str]:
    scenery, tally, without = moment.scenery, moment.tally, moment.without
    turns = len(moment.turns)
    largest = max((usage.prompt for usage in scenery.untouched[:turns]), default=0)
    over = sum(usage.prompt > scenery.window for usage in scenery.untouched[:turns])
    rows = [
        ("longest request, tokens", f"{tally.peak:,}", f"{largest:,}"),
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
        *_format_totals(rows, bills, ink),
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


def _format_bill(name: str, cost: float, without: float, ink: Ink) -> str:
    row = f" {name:<34}{ink.strong(f'{_format_dollars(cost):>16}')}{_format_dollars(without):>16}"
    return f"{row}   {ink.good(_format_saving(cost, without))}"


def _format_saving(cost: float, without: float) -> str:
    percent = round(100 * (1 - cost / without)) if without else 0
    if not percent:
        return "the same"
    return f"{percent} % less" if percent > 0 else f"{-percent} % more"


def _format_dollars(dollars: float) -> str:
    return f"${dollars:.2f}"


def _format_thousands(tokens: int) -> str:
    return f"{tokens / 1000:.0f}k"
