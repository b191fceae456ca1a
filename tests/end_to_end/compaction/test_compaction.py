"""Compaction as a client and an upstream see it: real sockets, the real proxy, an agent that works turn by turn."""

from itertools import pairwise

import pytest

from tests.support.agent import Agent, compactions, reading
from tests.support.compacting_proxy import FIGURES, LONGER, WORK, find_saved_work, metric, rows, settings
from tests.support.proxy_client import log_of, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_below_the_stride_nothing_changes_and_nothing_is_stored(serve, fresh):
    async with serve(fresh.url, config=settings(default={"clear_at_least": 30_000})) as proxy:
        steps = await Agent(proxy, fresh, "sk-a").work(WORK)
        kept = {path.name.partition(".sqlite")[0] for path in proxy.state.iterdir()}
        (running,) = {name for name in kept if name.startswith("running-")}  # the file by which commands find the proxy
        # What the admin pages need, and the store that was asked for a block.
        assert kept - {running} <= {"admin.key", "chronicle", "deletions.json", "promises"}
        assert rows(proxy.state, "select key from blocks_1 union select key from facts_1") == []  # nothing of the work
    assert len(steps) == 25
    assert all(step.is_verbatim for step in steps)
    assert set(compactions(steps)) == {"none"}
    assert all(step.header(f"x-compaction-{name}") is None for step in steps for name in FIGURES)


async def test_old_results_go_in_strides_and_what_was_forwarded_is_forwarded_again(agent):
    steps = await agent.work(WORK)
    done = compactions(steps)
    assert done.index("none") < done.index("created") < done.index("applied")
    assert 2 <= done.count("created") <= 5
    for earlier, later in pairwise(steps):
        assert later.compaction == "created" or later.extends(earlier)
    for made in (step for step in steps if step.compaction == "created"):
        before, after = made.tokens
        assert after < before - 3_000 + 500
        assert len(made.forwarded) < len(made.sent)


async def test_the_answer_says_what_was_done(agent):
    steps = await agent.work(WORK)
    made = next(step for step in steps if step.compaction == "created")
    applied = next(step for step in steps if step.compaction == "applied")
    assert made.header("x-compaction-reason") == "stride"
    assert made.header("x-compaction-policy") == applied.header("x-compaction-policy") == "default"
    assert made.header("x-compaction-conversation") == applied.header("x-compaction-conversation")
    assert applied.header("x-compaction-reason") is None
    before, after = applied.tokens
    assert 0 < after < before
    conversation = made.header("x-compaction-conversation")
    ended = {"conversation": conversation, "reason": "stride"}
    assert await until(lambda: log_of(agent.proxy, "compaction-ended", **ended))
    assert await metric(agent.proxy, "compactions_total", reason="stride", kind="created") >= 1


async def test_off_makes_no_new_blocks_and_keeps_existing_ones(agent):
    steps = await agent.work(WORK, {"x-compaction": "off"})
    assert set(compactions(steps)) == {"off"}
    assert all(step.is_verbatim for step in steps)
    made = await agent.send(WORK)
    kept = await agent.send(LONGER, {"x-compaction": "off"})
    assert (made.compaction, kept.compaction) == ("created", "applied")
    assert kept.extends(made)


async def test_bypass_sends_the_clients_own_bytes_despite_a_block(agent):
    assert (await agent.send(WORK)).compaction == "created"
    bypassed = await agent.send(WORK, {"x-compaction": "bypass"})
    assert bypassed.compaction == "bypassed"
    assert bypassed.is_verbatim
    assert (await agent.send(WORK)).compaction == "applied"


async def test_observe_changes_nothing_says_what_would_be_and_keeps_what_it_would_shorten(agent, stack):
    work = reading(24, task="Watch me.")
    steps = await agent.work(work, {"x-compaction": "observe"})
    seen = [step for step in steps if step.compaction == "observed"]
    assert all(step.is_verbatim for step in steps)
    assert [step.header("x-compaction-reason") for step in seen].count("stride") >= 2
    before, after = seen[-1].tokens
    assert after == before > int(seen[-1].header("x-compaction-tokens-would-be"))
    conversation = seen[-1].header("x-compaction-conversation")
    assert await until(lambda: log_of(agent.proxy, "compaction-observed", conversation=conversation))
    # Originals that nobody waits for are written some at a time.
    assert await until(lambda: len(find_saved_work(agent.proxy.state, work)[1]) >= len(work) - 4)
    assert len(find_saved_work(agent.proxy.state, work)[0]) == 1
    assert (await agent.send(work)).compaction == "created"
