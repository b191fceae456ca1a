"""Compaction as a client and an upstream see it: real sockets, the real proxy, an agent that works turn by turn."""

import sqlite3
import stat
from itertools import pairwise

import pytest

from tests.support.agent import Agent, compactions, reading
from tests.support.compacting_proxy import (
    FIGURES,
    LONGER,
    WORK,
    database,
    find_saved_work,
    metric,
    rows,
    settings,
)
from tests.support.messages import body
from tests.support.proxy_client import ask, fault_of, log_of, streaming, until, whole_log
from tests.support.scripted_upstream import answer, hang, text_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")


# --- quiet, created, applied -----------------------------------------------------------------------------------------


async def test_below_the_stride_nothing_changes_and_nothing_is_stored(serve, fresh):
    async with serve(fresh.url, config=settings(default={"clear_at_least": 20_000})) as proxy:
        steps = await Agent(proxy, fresh, "sk-a").work(WORK)
        kept = {path.name.partition(".sqlite")[0] for path in proxy.state.iterdir()}
        # What the admin pages need, and the store that was asked for a block.
        assert kept <= {"admin.key", "chronicle", "promises"}
        with sqlite3.connect(database(proxy.state)) as db:
            counts = [db.execute(f"select count(*) from {table}").fetchone() for table in ("blocks_1", "facts_1")]
        db.close()
        assert counts == [(0,), (0,)]  # nothing of the work
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
    ended = {"conversation": conversation, "reason": "stride", "threshold": "clear_at_least: 3000"}
    assert await until(lambda: log_of(agent.proxy, "compaction-ended", **ended))
    assert await metric(agent.proxy, "compactions_total", reason="stride", kind="created") >= 1


async def test_a_body_that_cannot_be_understood_is_relayed(agent, up):
    up.script = answer({"error": {"message": "what?"}}, status=400)
    for odd in (b'{"model": "m", "messages": [', b'{"model": "m", "messages": {"role": "user"}}', b"\xff\xfe", b"[]"):
        reply = await ask(agent.proxy, odd)
        assert up.requests[-1].body == odd
        assert reply.status == 400
        assert reply.head.first("x-compaction") == "none"
        assert reply.head.first("x-compaction-reason") == "not-understood"


# --- what a request asks for -----------------------------------------------------------------------------------------


async def test_an_invalid_mode_is_refused_and_nothing_reaches_the_upstream(agent, up):
    refused = await agent.send(WORK, {"x-compaction": "please"})
    assert refused.answer.status == 400
    assert "x-compaction must be one of auto, off, force, observe, bypass" in fault_of(refused.answer)["message"]
    assert up.requests == []


async def test_words_to_the_proxy_stay_with_the_proxy(agent, up):
    words = {"X-Compaction": "AUTO", "x-compaction-focus": "dates", "x-conversation-id": "7"}
    assert (await agent.send(WORK, words)).compaction == "created"
    assert not [name for name, _ in up.requests[-1].headers if name.lower().startswith((b"x-comp", b"x-conv"))]


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
    (_,), lines = await until(lambda: (saved := find_saved_work(agent.proxy.state, work))[1] and saved)
    assert len(lines) >= len(work) - 4
    assert (await agent.send(work)).compaction == "created"


async def test_a_policy_switched_off_at_run_time_keeps_existing_blocks_and_makes_none(serve, fresh):
    async with serve(fresh.url, config=settings()) as proxy:
        agent, file = Agent(proxy, fresh, "sk-a"), proxy.place / "proxy.yaml"
        made = await agent.send(WORK)
        file.write_text(file.read_text().replace("default:\n", "default:\n    mode: 'off'\n"))
        await until(lambda: log_of(proxy, "config-reloaded"))
        steps = [await agent.send(WORK), await agent.send(LONGER)]
        stranger = await Agent(proxy, fresh, "sk-b").send(WORK)
    assert compactions(steps) == ["applied", "applied"]
    assert steps[0].forwarded == made.forwarded
    assert steps[1].extends(made)
    assert stranger.compaction == "off"
    assert stranger.is_verbatim


# --- whose conversation it is ----------------------------------------------------------------------------------------


async def test_two_credentials_never_share(serve, fresh):
    async with serve(fresh.url, config=settings()) as proxy:
        one, other = Agent(proxy, fresh, "sk-canary-one"), Agent(proxy, fresh, "sk-canary-other")
        steps = [await each.send(WORK) for each in (one, other, one, other)]
        assert compactions(steps) == ["created", "created", "applied", "applied"]
        keys = [key for (key,) in rows(proxy.state, "select key from blocks_1 union select key from facts_1")]
        tenants = {key.partition("/")[0] for key in keys}
        links = [{key.rpartition("/")[2] for key in keys if key.startswith(tenant)} for tenant in tenants]
        assert len(links) == 2
        assert all(links)
        assert set.intersection(*links) == set()
        everything = b"".join(file.read_bytes() for file in proxy.state.rglob("*") if file.is_file())
        assert b"sk-canary" not in everything
        assert "sk-canary" not in await whole_log(proxy)


# --- what the upstream counts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_the_upstreams_count_is_the_start_of_the_next_count(agent, up, stream):
    more = {"stream": stream, "stream_options": {"include_usage": True}} if stream else {}
    first = await agent.send(WORK, **more)
    up.script = text_turn("Go on.").using(prompt=first.tokens[1] + 777)
    answer = await agent.send(WORK, **more)
    counted = await agent.send(WORK, **more)
    assert answer.tokens[1] == first.tokens[1]
    assert counted.tokens[1] == first.tokens[1] + 777
    assert counted.forwarded == answer.forwarded


async def test_a_refused_answer_stores_no_block(agent, up):
    up.script = answer({"error": {"message": "no", "type": "invalid_request_error"}}, status=400)
    refused = await agent.send(WORK)
    up.script = text_turn("Go on.")
    accepted = await agent.send(WORK)
    assert compactions([refused, accepted]) == ["created", "created"]
    assert refused.answer.status == 400


# --- the originals ---------------------------------------------------------------------------------------------------


async def test_the_originals_are_kept_before_the_upstream_answers_the_first_lossy_request(agent, up):
    work = reading(24, task="Keep these very words.")
    assert (await agent.send(work[:6])).is_verbatim
    up.script = hang()
    async with streaming(agent.proxy, body(work), headers={"authorization": f"Bearer {agent.key}"}):
        lossy = await up.wait_for_request(2)
        await until(lambda: len(find_saved_work(agent.proxy.state, work)[1]) == len(work))
        assert not lossy.ended.is_set()
    files, lines = find_saved_work(agent.proxy.state, work)
    assert b"[Shortened by the context proxy: " in lossy.body
    assert len(files) == 1  # and none of the agent whose short history lost nothing
    assert [line["message"] for line in lines if "head" in line] == work[:1]
    assert [line["message"] for line in lines if "at" in line] == work[1:]
    assert [line["after"] for line in lines if "at" in line][1:] == [line["at"] for line in lines if "at" in line][:-1]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert {stat.S_IMODE(file.parent.stat().st_mode) for file in files} == {0o700}


async def test_every_message_that_was_ever_folded_away_is_kept_once(agent):
    work = reading(24, task="Keep these words, too.")
    steps = await agent.work(work)
    await until(lambda: len(find_saved_work(agent.proxy.state, work)[1]) == len(work))
    assert compactions(steps).count("created") > 1
    assert [line["message"] for line in find_saved_work(agent.proxy.state, work)[1] if "at" in line] == work[1:]
