"""The same turns through a running proxy, with an upstream that repeats what was recorded and counts what it hears."""

import json

import pytest
from aiohttp import web

from proxy.lab.demo.model import SimulatedServer
from proxy.lab.replay.replay_jobs import ResultFile
from proxy.lab.replay.replay_values import Tokens
from proxy.lab.replay.through import AllFailedError, ProxyTarget, Recorder, replay_through
from tests.support.commands import run_command
from tests.support.messages import assistant, call, history, user
from tests.support.replay_cases import PLAIN, conversation, sizes
from tests.support.running_proxy import free_port

LONG = "x = 1\n" * 400
WORK = conversation(
    user("Mend it."), call("Read", path="src/a.py", out=LONG), call("Run", out="ok"), assistant("Done.")
)
SENT = list(WORK.messages)
FIRST, SECOND, THIRD = (sum(sizes(SENT[:many])) for many in (1, 3, 5))


async def scores(door, recorder, *conversations, ledger=None):
    results = await replay_through(
        conversations, door, recorder, ledger=ledger or ResultFile(), progress=lambda _done, _of: None
    )
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
    text = await upstream.answer(json.dumps(sent, indent=1).encode())
    choice = {"index": 0, "message": dict(text.message), "finish_reason": text.finish}
    return web.json_response({"choices": [choice], "usage": text.usage.as_json()}, status=text.status)


async def test_with_nothing_in_between_all_is_as_it_was_sent():
    recorder = Recorder(PLAIN)
    async with SimulatedServer(recorder) as upstream:
        (text,) = await scores(ProxyTarget(upstream.url, "nothing", settle=0), recorder, WORK)
    assert text.raw == text.forwarded == Tokens(fresh=THIRD, cached=FIRST + SECOND)
    assert (text.requests, text.rewrites, text.failed, text.invalid) == (3, 0, 0, {})


async def test_a_history_changed_by_a_proxy_is_judged_as_it_arrives():
    recorder = Recorder(PLAIN)

    async def clearing(sent, upstream):
        if len(sent["messages"]) > 3:
            sent["messages"][2]["content"] = "[cleared]"
        return await passed_on(sent, upstream)

    async with Between(recorder, clearing) as door:
        (text,) = await scores(door, recorder, WORK)
    cleared = sum(sizes([*SENT[:2], {**SENT[2], "content": "[cleared]"}, *SENT[3:5]]))
    same = sum(sizes(SENT[:2]))
    assert text.rewrites == 1
    assert text.forwarded == Tokens(fresh=SECOND + cleared - same, cached=FIRST + same)


async def test_a_question_of_the_proxys_own_is_a_summary_and_not_a_turn():
    recorder = Recorder(PLAIN)

    async def asking(sent, upstream):
        if len(sent["messages"]) == 3:
            question = {**sent, "messages": [*sent["messages"], *history(user("Summarise under\n## Goal\n## Files"))]}
            answer = json.loads((await passed_on(question, upstream)).text)
            assert answer["choices"][0]["message"]["content"].startswith("## Goal\n")
        return await passed_on(sent, upstream)

    async with Between(recorder, asking) as door:
        (text,) = await scores(door, recorder, WORK)
    assert text.summary_calls == 1
    assert text.summaries.read == SECOND + sizes(history(user("Summarise under\n## Goal\n## Files")))[0]
    assert text.summaries.written > 5
    # The question was put before the turn, which then found all of it in the cache.
    assert text.forwarded == Tokens(fresh=FIRST + THIRD - SECOND, cached=SECOND + SECOND)
    assert text.failed == 0


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
        (text,) = await scores(door, recorder, WORK)
    assert text.failed == 1
    assert text.forwarded.read == FIRST + SECOND + THIRD


@pytest.mark.parametrize("broken", ["refused", "other upstream"])
async def test_a_proxy_that_fails_every_request_is_not_scored(tmp_path, broken):
    ledger, recorder = ResultFile(tmp_path / "out.jsonl"), Recorder(PLAIN)

    async def failing(_sent, _upstream):
        if broken == "refused":
            return web.json_response({"error": {"message": "no"}}, status=401)
        return web.json_response({"choices": [{"message": {"role": "assistant", "content": "I would not."}}]})

    async with Between(recorder, failing) as door:
        with pytest.raises(AllFailedError, match="every request failed at"):
            await scores(door, recorder, WORK, ledger=ledger)
    assert ledger.read() == {}, "the next run does not take it for a result"


async def test_a_proxy_that_is_not_running_is_not_scored(tmp_path):
    target = f"http://127.0.0.1:{free_port()}/v1"
    (tmp_path / "work.json").write_text(json.dumps({"model": "gpt-4o", "messages": SENT}))
    command = ("replay", "work.json", "--through", target, "--listen", str(free_port()), "--json")
    ended = await run_command(*command, place=tmp_path)
    assert (ended.code, ended.out) == (1, "")
    assert ended.complaint.splitlines()[-1] == f"no answer from {target}: is the proxy running?"


async def test_finished_turns_are_not_played_again(tmp_path):
    ledger, recorder = ResultFile(tmp_path / "out.jsonl"), Recorder(PLAIN)
    async with Between(recorder, passed_on) as door:
        first = await scores(door, recorder, WORK, ledger=ledger)
    assert await scores(door, recorder, WORK, ledger=ledger) == first


@pytest.mark.seconds
async def test_the_real_proxy_is_scored_like_any_other(serve):
    """And nothing that leaves it is worse than what the core makes of the same conversation."""
    reading = [call("Read", path=f"src/{number}.py", out=f"# {number}\n{LONG * 8}") for number in range(16)]
    work, port = conversation(user("Mend it."), *reading, assistant("Done.")), free_port()
    recorder = Recorder(PLAIN)
    async with SimulatedServer(recorder, port) as upstream, serve(upstream.url) as proxy:
        (text,) = await scores(ProxyTarget(proxy.url, "ours"), recorder, work)
    assert (text.requests, text.failed, text.invalid, text.over) == (17, 0, {}, 0)
    assert text.rewrites > 0
    assert text.forwarded.read < text.raw.read
