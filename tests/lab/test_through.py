"""The same turns through a running proxy, with an upstream that repeats what was recorded and counts what it hears."""

import json

import pytest
from aiohttp import web

from proxy.lab.replay.history import encode
from proxy.lab.replay.run import ResultFile
from proxy.lab.replay.through import ProxyTarget, Recorder, replay_through
from proxy.lab.replay.values import Tokens
from proxy.lab.simulated import SimulatedServer
from tests.support.messages import body, call, history, says, user
from tests.support.replay_cases import PLAIN, conversation, recorded, sizes
from tests.support.running_proxy import free_port

LONG = "x = 1\n" * 400
WORK = conversation(user("Mend it."), call("Read", path="src/a.py", out=LONG), call("Run", out="ok"), says("Done."))
SENT = list(WORK.messages)
FIRST, SECOND, THIRD = (sum(sizes(SENT[:many])) for many in (1, 3, 5))


def silent(_done, _of):
    pass


async def scores(door, recorder, *conversations, ledger=None):
    results = await replay_through(conversations, door, recorder, ledger=ledger or ResultFile(), progress=silent)
    return [result.scores for result in results]


class Between:
    """A proxy of the test's own, in front of whatever the recorder listens on."""

    def __init__(self, upstream, change):
        self.upstream, self.change = upstream, change

    async def __aenter__(self):
        app = web.Application(client_max_size=10**8)
        app.router.add_post("/v1/chat/completions", self._chat)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return ProxyTarget(f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1", "between", settle=0)

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _chat(self, request):
        return await self.change(await request.json(), self.upstream)


async def passed_on(sent, upstream):
    said = await upstream.answer(json.dumps(sent, indent=1).encode())
    choice = {"index": 0, "message": dict(said.message), "finish_reason": said.finish}
    return web.json_response({"choices": [choice], "usage": said.usage.as_json()}, status=said.status)


async def test_with_nothing_in_between_all_is_as_it_was_sent():
    recorder = Recorder(PLAIN)
    async with SimulatedServer(recorder) as upstream:
        (told,) = await scores(ProxyTarget(upstream.url, "nothing", settle=0), recorder, WORK)
    assert told.raw == told.forwarded == Tokens(fresh=THIRD, cached=FIRST + SECOND)
    assert (told.requests, told.rewrites, told.failed, told.invalid) == (3, 0, 0, {})


async def test_the_upstream_tells_what_it_has_in_its_cache():
    recorder, usages = Recorder(PLAIN), []

    async def listening(sent, upstream):
        reply = await passed_on(sent, upstream)
        usages.append(json.loads(reply.text)["usage"])
        return reply

    async with Between(recorder, listening) as door:
        await scores(door, recorder, WORK)
    assert [usage["prompt_tokens_details"]["cached_tokens"] > 0 for usage in usages] == [False, True, True]


async def test_a_proxy_may_write_json_anew():
    recorder = Recorder(PLAIN)
    async with Between(recorder, passed_on) as door:
        (told,) = await scores(door, recorder, WORK)
    assert told.forwarded == Tokens(fresh=THIRD, cached=FIRST + SECOND)
    assert told.failed == 0


async def test_what_a_proxy_changes_is_judged_as_it_arrives():
    recorder = Recorder(PLAIN)

    async def clearing(sent, upstream):
        if len(sent["messages"]) > 3:
            sent["messages"][2]["content"] = "[cleared]"
        return await passed_on(sent, upstream)

    async with Between(recorder, clearing) as door:
        (told,) = await scores(door, recorder, WORK)
    cleared = sum(sizes([*SENT[:2], {**SENT[2], "content": "[cleared]"}, *SENT[3:5]]))
    same = sum(sizes(SENT[:2]))
    assert told.rewrites == 1
    assert told.forwarded == Tokens(fresh=SECOND + cleared - same, cached=FIRST + same)


async def test_a_question_of_the_proxys_own_is_a_summary_and_not_a_turn():
    recorder = Recorder(PLAIN)

    async def asking(sent, upstream):
        if len(sent["messages"]) == 3:
            question = {**sent, "messages": [*sent["messages"], *history(user("Summarise under\n## Goal\n## Files"))]}
            answer = json.loads((await passed_on(question, upstream)).text)
            assert answer["choices"][0]["message"]["content"].startswith("## Goal\n")
        return await passed_on(sent, upstream)

    async with Between(recorder, asking) as door:
        (told,) = await scores(door, recorder, WORK)
    assert told.summary_calls == 1
    assert told.summaries.read == SECOND + sizes(history(user("Summarise under\n## Goal\n## Files")))[0]
    assert told.summaries.written > 5
    # The question was put before the turn, which then found all of it in the cache.
    assert told.forwarded == Tokens(fresh=FIRST + THIRD - SECOND, cached=SECOND + SECOND)
    assert told.failed == 0


@pytest.mark.parametrize("broken", ["refused", "other", "gone"])
async def test_an_answer_that_is_not_the_recorded_one_is_counted(broken):
    recorder = Recorder(PLAIN)

    async def failing(sent, upstream):
        if len(sent["messages"]) != 3:
            return await passed_on(sent, upstream)
        if broken == "refused":
            return web.json_response({"error": {"message": "no"}}, status=400)
        if broken == "other":
            await passed_on(sent, upstream)
            return web.json_response({"choices": [{"message": {"role": "assistant", "content": "I would not."}}]})
        return web.Response(text="gone")

    async with Between(recorder, failing) as door:
        (told,) = await scores(door, recorder, WORK)
    assert told.failed == 1
    assert told.forwarded.read == FIRST + SECOND + THIRD


async def test_what_was_done_is_not_done_again(tmp_path):
    ledger, recorder = ResultFile(tmp_path / "out.jsonl"), Recorder(PLAIN)
    async with Between(recorder, passed_on) as door:
        first = await scores(door, recorder, WORK, ledger=ledger)
    assert await scores(door, recorder, WORK, ledger=ledger) == first


async def test_the_real_proxy_is_scored_like_any_other(serve):
    """And nothing that leaves it is worse than what the core makes of the same conversation."""
    reading = [call("Read", path=f"src/{number}.py", out=f"# {number}\n{LONG * 8}") for number in range(16)]
    work, port = conversation(user("Mend it."), *reading, says("Done.")), free_port()
    recorder = Recorder(PLAIN)
    async with SimulatedServer(recorder, port) as upstream, serve(upstream.url) as proxy:
        (told,) = await scores(ProxyTarget(proxy.url, "ours"), recorder, work)
    assert (told.requests, told.failed, told.invalid, told.over) == (17, 0, {}, 0)
    assert told.rewrites > 0
    assert told.forwarded.read < told.raw.read


def test_a_body_is_what_an_agent_would_send():
    case = recorded(user("hi"), says("Done."), model="m", tools=[{"type": "function", "function": {"name": "Read"}}])
    assert json.loads(case.history.body(1)) == {
        "model": "m",
        "tools": [{"type": "function", "function": {"name": "Read"}}],
        "messages": history(user("hi")),
    }
    assert json.loads(recorded(user("hi"), says("x")).history.body(1)) == json.loads(
        body(history(user("hi")), model="")
    )
    assert encode({"a": "é"}) == '{"a": "é"}'.encode()
