"""Transcripts as a running proxy writes them: whose, when, with which answers, and what of a disk that fails."""

import asyncio
import json

import pytest
import pytest_asyncio

from tests.support import compacting_proxy
from tests.support.agent import Agent, compactions, reading
from tests.support.compacting_proxy import metric, rows
from tests.support.messages import assistant, chat, system, user
from tests.support.proxy_client import ask, fault_of, log_of, page, streaming, until, whole_log
from tests.support.running_proxy import Proxy
from tests.support.scripted_upstream import Upstream, answer, call_turn, delta, hang, stream, text_turn
from tests.support.transcripts import texts, transcripts
from tests.support.verification import duplicates, torn, verify

pytestmark = pytest.mark.asyncio(loop_scope="module")

CANARY = "sk-canary-7d1e5a"
HELLO = chat(user("Hello there"))
WORK = reading(16)


def settings(**transcripts):
    return {**compacting_proxy.settings(), "transcripts": transcripts}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(serve):
    """A proxy that keeps everything."""
    async with Upstream() as up, serve(up.url, config=settings(keep="all")) as proxy:
        yield up, proxy


@pytest.fixture
def up(stack):
    stack[0].forget()
    stack[0].script = text_turn("Hello to you.")
    return stack[0]


@pytest.fixture
def proxy(stack, up):
    return stack[1]


@pytest_asyncio.fixture(loop_scope="module")
async def fresh():
    async with Upstream(text_turn("Go on.")) as upstream:
        yield upstream


def read_transcripts(proxy: Proxy):
    return transcripts(proxy.state / "originals")


def secret_of(proxy: Proxy) -> bytes:
    ((key,),) = rows(proxy.state, "select value from documents_2 where key = 'secret'")
    return key


async def conversation(proxy, first, *, answers=0, messages=1):
    """The transcript that begins with these words, as soon as so much of it is written."""

    def find_conversation():
        for one in read_transcripts(proxy):
            began = texts(one.messages.values())[:1] == [first]
            if began and len(one.answers) >= answers and len(one.messages) >= messages:
                return one
        return None

    return await until(find_conversation)


def words(answered):
    return [json.loads(one.message).get("content") for one in answered]


@pytest.mark.parametrize("streamed", [False, True])
async def test_everything_is_kept_with_its_answer_however_it_was_asked_for(proxy, up, streamed):
    up.script = (text_turn("Let me see.") + call_turn("Read", path="a.py")).using(70, 9)
    first = f"Is it streamed? {streamed}"
    await ask(proxy, chat(system("Be kind."), user(first), stream=streamed, stream_options={"include_usage": True}))
    found = await conversation(proxy, first, answers=1)
    (answered,) = found.answers
    assert json.loads(answered.message) == up.script.message
    assert (answered.usage, answered.finish, answered.cut) == (up.script.usage, "tool_calls", False)
    assert answered.link == found.leaves()[0]
    assert texts(found.head_of(*found.messages.values())) == ["Be kind."]


async def test_an_agents_work_is_kept_once_though_it_sends_it_with_every_turn(proxy, up):
    steps = await Agent(proxy, up, "sk-agent").work(WORK)
    found = await conversation(proxy, "Make the tests pass.", answers=len(steps), messages=len(WORK) - 1)
    path = found.path(found.leaves()[0])
    assert [json.loads(text.message) for text in path] == WORK[1:]
    assert {"none", "created", "applied"} <= {*compactions(steps)}
    report = verify(found, secret_of(proxy))
    assert (report.faults, report.derived, duplicates(found), torn(found)) == ((), len(WORK) - 1, 0, 0)


@pytest.mark.parametrize("wish", ["bypass", "off", "observe"])
async def test_requests_that_bypass_compaction_are_stored_too(proxy, up, wish):
    await ask(proxy, chat(user(f"Please {wish}.")), headers={"x-compaction": wish})
    assert words((await conversation(proxy, f"Please {wish}.", answers=1)).answers) == ["Hello to you."]


async def test_nothing_is_kept_that_the_upstream_did_not_accept(proxy, up):
    up.script = answer({"error": {"message": "no"}}, status=400)
    assert (await ask(proxy, chat(user("refused")))).status == 400
    up.script = text_turn("Yes.")
    await ask(proxy, chat(user("accepted")))
    await conversation(proxy, "accepted", answers=1)
    assert "refused" not in [text for one in read_transcripts(proxy) for text in texts(one.messages.values())]


async def test_a_request_that_is_no_conversation_is_not_stored_and_is_no_fault(proxy, up):
    up.script = answer(text_turn("What?").completion())
    for strange in (b'{"messages": []}', b'{"messages": "no"}', b"not json", chat(system("Only a head."))):
        assert (await ask(proxy, strange)).status == 200
    await whole_log(proxy)
    assert log_of(proxy, "failed-open") == []
    assert log_of(proxy, "store-failed") == []


async def test_the_part_that_a_leaving_client_received_is_stored_as_a_cut_answer(proxy, up):
    up.script = stream(delta(role="assistant", content="As far "), delta(content="as this"), hang())
    async with streaming(proxy, chat(user("I leave early"), stream=True)) as line:
        await line.until(b"as this")
        line.leave()
    (answered,) = (await conversation(proxy, "I leave early", answers=1)).answers
    assert (json.loads(answered.message)["content"], answered.cut) == ("As far as this", True)


async def test_a_secret_in_a_conversation_reaches_no_file_and_the_chain_still_holds(proxy, up):
    up.script = text_turn(f"I remember {CANARY}.")
    await ask(proxy, chat(system(f"Use {CANARY}."), user("The key?"), user(f"It is {CANARY}."), stream=True))
    found = await conversation(proxy, "The key?", answers=1)
    assert words(found.answers) == ["I remember [redacted: api-key]."]
    assert CANARY.encode() not in b"".join(path.read_bytes() for path in proxy.state.rglob("*.jsonl"))
    assert CANARY.encode() in up.requests[-1].body
    assert verify(found, secret_of(proxy)).faults == ()


async def test_where_only_what_is_lossy_is_kept_the_rest_is_not(serve, fresh):
    async with serve(fresh.url, config=settings()) as proxy:
        await ask(proxy, HELLO)
        steps = await Agent(proxy, fresh, "sk-a").work(WORK)
        lossy = len(steps) - compactions(steps).index("created")
        found = await conversation(proxy, "Make the tests pass.", answers=lossy, messages=len(WORK) - 1)
        assert len(read_transcripts(proxy)) == 1
    assert len(found.answers) == lossy
    assert words(found.answers) == ["Go on."] * lossy


async def test_where_nothing_is_to_be_kept_nothing_is_and_compaction_goes_on(serve, fresh):
    async with serve(fresh.url, config=settings(keep="off")) as proxy:
        assert "created" in compactions(await Agent(proxy, fresh, "sk-a").work(WORK))
    assert not (proxy.state / "originals").exists()


async def test_transcripts_are_flushed_before_the_proxy_stops(serve, fresh):
    async with serve(fresh.url, config=settings(keep="all")) as proxy:
        await asyncio.gather(*(ask(proxy, chat(user(f"number {number}"))) for number in range(50)))
    assert sorted(text for one in read_transcripts(proxy) for text in texts(one.messages.values())) == sorted(
        f"number {number}" for number in range(50)
    )
    assert all(len(one.answers) == 1 for one in read_transcripts(proxy))


def broken(proxy: Proxy):
    """No folder can be made in place of a file."""
    place = proxy.state / "originals"
    place.write_bytes(b"")
    return place


async def health(proxy: Proxy):
    return json.loads((await page(proxy, "/health/ready")).body.data)


@pytest.mark.seconds
async def test_while_originals_cannot_be_written_nothing_new_is_folded_and_no_request_fails(serve, fresh):
    async with serve(fresh.url, config=settings(keep="all")) as proxy:
        assert (await health(proxy))["originals_writable"]
        place = broken(proxy)
        steps = await Agent(proxy, fresh, "sk-a").work(WORK)
        assert {step.answer.status for step in steps} == {200}
        assert {*compactions(steps)} == {"none"}
        assert "originals-unwritable" in {step.header("x-compaction-reason") for step in steps}
        assert not (await health(proxy))["originals_writable"]
        assert '"failed-open"' not in await whole_log(proxy)
        assert await metric(proxy, "store_faults_total") > 0
        place.unlink()
        async with asyncio.timeout(60):
            while not (await health(proxy))["originals_writable"]:  # noqa: ASYNC110 (the proxy looks once a second)
                await asyncio.sleep(0.05)
        assert (await Agent(proxy, fresh, "sk-a").send(WORK)).compaction == "created"
        found = await conversation(proxy, "Make the tests pass.", answers=1, messages=len(WORK) - 1)
    assert verify(found, secret_of(proxy)).faults == ()


async def test_a_command_to_compact_is_refused_while_its_original_cannot_be_written(serve, fresh):
    async with serve(fresh.url, config=settings()) as proxy:
        agent = Agent(proxy, fresh, "sk-a")
        await agent.send(reading(2))
        broken(proxy)
        refused = await agent.send([*WORK, *assistant("Done."), *user("/compact")])
        assert (refused.answer.status, fault_of(refused.answer)["code"]) == (503, "transcripts_unavailable")


async def test_where_originals_are_required_a_lossy_request_is_refused_until_the_disk_is_back(serve, fresh):
    async with serve(fresh.url, config=settings(required=True)) as proxy:
        agent, place = Agent(proxy, fresh, "sk-a"), broken(proxy)
        assert (await agent.send(reading(3))).answer.status == 200
        asked = len(fresh.requests)
        refused = await agent.send(WORK)
        assert refused.answer.status == 503
        assert fault_of(refused.answer)["code"] == "transcripts_unavailable"
        assert refused.answer.head.first("retry-after") == "5"
        assert len(fresh.requests) == asked
        place.unlink()
        assert (await agent.send(WORK)).compaction == "created"
        assert len(lines_there(proxy)) >= len(WORK)


def lines_there(proxy: Proxy):
    """What is required is there when the answer is."""
    return b"".join(path.read_bytes() for path in proxy.state.rglob("*.jsonl")).splitlines()


@pytest.mark.parametrize("read_transcripts", [{}, {"required": True, "fsync": "always"}])
async def test_originals_are_written_before_anything_is_folded_away_for_the_first_time(serve, fresh, read_transcripts):
    async with serve(fresh.url, config=settings(**read_transcripts)) as proxy:
        there = []
        await Agent(proxy, fresh, "sk-a").send(reading(2))  # from now on the upstream knows this client

        def looks(request):
            there.append(len(lines_there(proxy)))
            return text_turn("Go on.")

        fresh.script = looks
        assert (await Agent(proxy, fresh, "sk-a").send(WORK)).compaction == "created"
    assert there == [len(WORK)]


async def test_a_policy_can_keep_nothing_of_what_goes_by_it(serve, fresh):
    config = settings(keep="all")
    config["policies"]["private"] = {"transcripts": False}
    shared = {**compacting_proxy.WIDE, "base_url": fresh.url}
    config["upstreams"] = [{**shared, "name": "private", "models": ["private"], "policy": "private"}, shared]
    async with serve(None, config=config) as running:
        agent = Agent(running, fresh, "sk-a")
        steps = await agent.work(WORK, model="private")
        await agent.send(WORK, {"x-compaction": "bypass"}, model="private")
        await agent.send(reading(2, task="Something else."))
    assert "created" in compactions(steps)
    assert [
        conversation for conversation in read_transcripts(running) if "Make the tests pass." in str(conversation)
    ] == []
    assert len(read_transcripts(running)) == 1
