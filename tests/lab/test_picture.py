"""The picture of a run: what a person reads is what happened."""

import re

import pytest

from proxy.lab.demo import picture
from proxy.lab.demo.agent import AgentTurn, sample
from proxy.lab.demo.model import DemoUsage, ReceivedRequest
from proxy.lab.demo.picture import Ink, Moment, Scenery, Tally
from proxy.shorten.economics import TokenPrices

PLAIN, COLOURED = Ink(coloured=False), Ink(coloured=True)
RUN = sample(4)
SCENERY = Scenery(
    RUN,
    [DemoUsage(size, size // 2, 10) for size in (10_000, 20_000, 30_000, 40_000)],
    25_000,
    TokenPrices(1.0, 0.1, None, 10.0),
)
CREATED = (
    ("x-compaction", "created"),
    ("x-compaction-reason", "stride"),
    ("x-compaction-tokens-before", "30000"),
    ("x-compaction-tokens-after", "9000"),
)


def moment(*read, notes=()):
    """As many turns as were read; the last one has these headers."""
    turns = [
        AgentTurn(step, 200, 0, 0, notes if step == len(read) - 1 else (), intact=True) for step in range(len(read))
    ]
    requests = [ReceivedRequest("turn", 200, DemoUsage(size, 0, 10), step) for step, size in enumerate(read)]
    return Moment(SCENERY, turns, Tally(requests))


def bare(lines):
    return [re.sub(r"\x1b\[\d+m", "", line) for line in lines]


@pytest.mark.parametrize("width", [80, 96])
@pytest.mark.parametrize("read", [(), (10_000,), (10_000, 20_000, 9_000, 19_000)])
def test_every_line_fits_the_terminal(width, read):
    now = moment(*read)
    shown = bare(picture.draw_panel(now, width, COLOURED) + picture.format_closing(now, 3, width, COLOURED))
    assert [line for line in shown if len(line) > width] == []


def test_the_bill_is_at_the_models_prices_and_beside_it_the_bill_without():
    now = moment(10_000, 20_000, 9_000, 19_000)
    assert now.dollars == pytest.approx((58_000 * 1.0 + 40 * 10.0) / 1e6)
    assert now.dollars_without == pytest.approx((50_000 * 1.0 + 50_000 * 0.1 + 40 * 10.0) / 1e6)


def test_the_end_names_what_is_in_each_bill_and_says_more_where_it_is_more():
    text = picture.format_closing(moment(10_000, 20_000, 9_000, 9_000), 3, 80, PLAIN)
    bills = [line.split("   ")[0].strip() + ": " + line.split("   ")[-1].strip() for line in text if "bill: " in line]
    assert bills == ["bill: input: 13 % less", "bill: input and answers: 13 % less"]
    dearer = picture.format_closing(moment(10_000, 20_000, 29_000, 39_000), 3, 80, PLAIN)
    assert [line.split("   ")[-1] for line in dearer if "bill: " in line] == ["78 % more"] * 2
    same = picture.format_closing(moment(5_500), 3, 80, PLAIN)
    assert [line.split("   ")[-1] for line in same if "bill: " in line] == ["the same"] * 2


def test_the_end_says_when_the_run_would_have_ended_without():
    text = " ".join(picture.format_closing(moment(10_000, 20_000, 9_000, 19_000), 3, 80, PLAIN))
    assert "refuses turn 3" in text
    assert "refuses turn" not in " ".join(picture.format_closing(moment(10_000, 20_000), 3, 80, PLAIN))


@pytest.mark.parametrize(("last", "saved"), [(30_000, False), (1_000, True)])
def test_a_run_that_costs_more_than_it_saves_says_so(last, saved):
    now = moment(10_000, 20_000, last, notes=CREATED)
    text = "".join(picture.format_closing(now, 3, 2_000, PLAIN))
    assert ("This run saved nothing" in text) is not saved
    assert ("upper bound" in text) is saved
