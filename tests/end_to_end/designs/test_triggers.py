"""Rows 10, 18 and 33: by whose count, and over which share of which window, a history is compacted."""

import json

import pytest

from tests.end_to_end.designs.histories import (
    characters,
    chat_history,
    find_first_shortened,
    structured_summary,
    tool_history,
)
from tests.support.messages import assistant, history, user
from tests.support.proxy_client import log_of
from tests.support.scripted_upstream import text_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")


def counting(ratio):
    """An upstream whose tokens are so many characters."""
    return lambda request: text_turn("Go on.").using(int(len(request.body) / ratio), completion=0)


@pytest.mark.seconds
@pytest.mark.parametrize("characters_a_token", [3, 4, 6])
async def test_row_10_the_trigger_goes_by_reported_usage_whatever_our_own_count_says(up, alone, characters_a_token):
    up.script = counting(characters_a_token)
    policy = {"inherit": "middleware", "trigger_tokens": 20_000, "summary": {"enabled": False}}
    async with alone(up, **policy) as agent:
        start = int(20_000 * characters_a_token / 630 * 0.8)
        sent = await find_first_shortened(agent, tool_history, range(start, start * 2, 2))
    assert 20_000 <= len(json.dumps(sent)) / characters_a_token < 20_000 * 1.05


async def test_row_10_a_trigger_of_zero_is_none(up, alone):
    async with alone(up, inherit="middleware", trigger_tokens=0, window=200_000) as agent:
        assert (await agent.send(chat_history(1_500))).compaction in ("none", None)


async def test_row_18_three_quarters_of_the_window_by_a_quarter_of_the_characters(agent, up):
    up.script = text_turn(structured_summary("The parser was mended, and the tests of the lexer are next."))
    sent = await find_first_shortened(agent, chat_history, range(240, 270), model="jp")
    assert 30_000 < characters(sent) / 4 < 30_400


@pytest.mark.parametrize(("turns", "is_compacted"), [(1, False), (5, False), (6, True)])
async def test_row_18_only_conversations_of_more_than_five_turns_are_compacted(agent, turns, is_compacted):
    """All calls are in the first turn, before the newest one, which this design never touches."""
    talk = [piece for place in range(turns - 1) for piece in (assistant(f"Done {place}."), user("And then?"))]
    sent = [*tool_history(200), *history(*talk)]
    step = await agent.send(sent, model="jp", max_tokens=1_000)
    assert characters(sent) / 4 > 30_000
    assert step.is_verbatim is not is_compacted
    assert (step.header("x-compaction-reason") == "min_turns") is not is_compacted


async def test_row_18_an_unknown_window_compacts_nothing_and_warns(up, alone):
    async with alone(up, inherit="jp", window=0) as agent:
        again = [await agent.send(chat_history(size), model="nobody-knows-1") for size in (300, 301)][-1]
    assert json.loads(up.requests[-1].body)["messages"] == chat_history(301)
    assert again.header("x-compaction-reason") == "window-unknown"
    (line,) = log_of(agent.proxy, "window-unknown")
    assert line["model"] == "nobody-knows-1"
    assert line["level"] == "warning"


@pytest.mark.seconds
async def test_row_33_ninety_percent_of_the_window_less_five_of_headroom(up, alone):
    up.script = counting(4)
    async with alone(up, inherit="blocks", window=100_000) as agent:
        sent = await find_first_shortened(agent, tool_history, range(500, 760, 2), max_tokens=2_000)
    assert 85_000 < len(json.dumps(sent)) / 4 < 87_000


async def test_row_33_a_request_that_would_not_fit_is_compacted_below_that(up, alone):
    """Of a small window the answer takes more than a tenth."""
    up.script = counting(4)
    async with alone(up, inherit="blocks", window=40_000) as agent:
        sent = await find_first_shortened(agent, tool_history, range(160, 300, 2))
    assert 28_000 < len(json.dumps(sent)) / 4 < 29_500
