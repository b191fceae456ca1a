"""The benchmark of the way through the proxy: what is sent, what is answered, and how figures become marks."""

import json
from dataclasses import replace
from itertools import pairwise

import contestants
import load
import pytest
import recorded
import relay
import report
from bodies import CHAT, MESSAGES, RESPONSES, STREAMED, growing
from contestants import BARE, DIRECT, LITELLM, OURS, Contestant
from fake_upstream import FakeUpstream, Line
from scores import Round, Scenario, Score

from proxy.shorten.pipeline import estimate_tokens
from tests.support import http_client
from tests.support.messages import assistant, call, system, user
from tests.support.replay_cases import conversation

LISTS = {CHAT: "messages", MESSAGES: "messages", RESPONSES: "input"}
# Longer than either end of a body that the upstream reads.
SIZE = 100_000
IDLE = report.IdleFigures(OURS.name, 0.5, 60.0, 90.0, 0.01)
SPOKEN = [call("Read", path=f"{n}.py", out="x" * 500) for n in range(9)]


@pytest.fixture
def upstream_requests(monkeypatch):
    """The path and the number of bytes of each request that a fake upstream answers."""
    found, answer = [], Line.answer

    def note(line):
        found.append((line._path.decode(), line._length))
        answer(line)

    monkeypatch.setattr(Line, "answer", note)
    return found


def conversations():
    return [
        conversation(system("Help."), user(f"Task {n}."), *SPOKEN[: 3 + n], assistant("Done."), model="gpt-4o")
        for n in range(6)
    ]


async def post(url, body):
    return await http_client.send(url, load.request_bytes(url + CHAT, body))


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_a_growing_request_is_the_one_before_and_one_more_call_with_its_result(path):
    bodies = [json.loads(body) for body in growing(SIZE, 4, 1, path)]
    for before, after in pairwise(bodies):
        history, longer = before.pop(LISTS[path]), after[LISTS[path]]
        assert longer[: len(history)] == history
        assert len(longer) == len(history) + 2
        assert before.items() <= after.items()


@pytest.mark.parametrize("order", [("messages", "stream", "stream_options", "tools"), ("stream_options", "stream")])
async def test_the_upstream_streams_with_usage_wherever_a_client_asks_for_it(order):
    body = json.loads(next(growing(SIZE, 1, 1))) | STREAMED
    sent = json.dumps({name: body.pop(name) for name in order} | body).encode()
    async with FakeUpstream(relay.QUICK_PACE) as upstream:
        reply = await post(upstream.url, sent)
    events = [json.loads(line[6:]) for line in reply.body.data.splitlines() if line.startswith(b"data: {")]
    assert events[-1]["usage"]["prompt_tokens"] == pytest.approx(estimate_tokens(sent), rel=0.05)
    assert sum(bool(event["choices"]) for event in events) == relay.QUICK_PACE.chunks + 1


def test_a_day_has_all_requests_of_each_conversation_in_order():
    day = recorded.plan_day(conversations(), 1_000)
    requests = list(day.requests(1))
    by_key = {key: [body for other, body in requests if other == key] for key, _ in requests}
    assert len(by_key) == 6
    for history, bodies in zip(day.histories, (by_key[f"sk-of-caller-1-{n}"] for n in range(6)), strict=True):
        values = [json.loads(body) for body in bodies]
        assert [len(value["messages"]) for value in values] == history.places
        assert all(STREAMED.items() <= value.items() for value in values)
        assert values[-1]["messages"] == list(history.conversation.messages[: history.places[-1]])
    assert day.new_bytes == sum(len(bodies[-1]) for bodies in by_key.values()) / len(requests)
    again = recorded.plan_day(conversations(), 1_000)
    assert list(again.requests(1)) == requests
    assert not {key for key, _ in again.requests(2)} & by_key.keys()


async def test_a_day_is_sent_whole_and_evenly_to_the_slow(upstream_requests):
    scenario = relay._day("sample", recorded.plan_day(conversations(), 1_000))
    lengths = [len(body) for _, body in scenario.replay(1)]
    async with FakeUpstream(relay.QUICK_PACE) as upstream:
        straight = Contestant(DIRECT, upstream.url)
        await relay.once(straight, [straight], scenario, 1)
        assert [length for _, length in upstream_requests] == lengths
        upstream_requests.clear()
        await relay.once(replace(straight, slower=10), [straight], scenario, 1)
    assert [length for _, length in upstream_requests] == lengths[: scenario.times // 10 * 10 : 10]


@pytest.mark.seconds
async def test_a_day_goes_through_the_proxy_and_is_reported(tmp_path):
    scenario = relay._day("sample", recorded.plan_day(conversations(), 1_000))
    async with FakeUpstream(relay.PACE) as upstream:
        with contestants.contestants((OURS, BARE), upstream.url, tmp_path) as field:
            scores = await relay.measure(upstream, field, [scenario], 1)
    page = report.report(1, [scenario], scores, [IDLE], [], absent={LITELLM.name})
    assert page.count("| day of 6 sample conversations, 1 at once |") == 2, "once for time, once for delay"
    assert "Not installed where this was measured: LiteLLM." in page
    assert all(len(score.rounds) == 1 for score in scores[scenario.title].values())


def rounds(*seconds):
    return Score([Round(cpu, 0, cpu, cpu, 1 / cpu, 0, 0) for cpu in seconds])


def scenario_of(name, **more):
    return Scenario(name, b"", 1, 1, **{"new_bytes": 700, **more})


def test_the_slope_is_the_growth_from_the_shortest_to_the_longest_history_round_by_round():
    asked = [scenario_of(f"{size}, growing") for size in ("10 kB", "1 MB", "10 MB")]
    asked += [scenario_of("Messages, 10 MB, growing"), scenario_of("1 MB, streamed, growing")]
    ours, bare = [(0.002, 0.004), (1, 1), (0.010, 0.010), (9, 9), (9, 9)], [(0.001, 0.002), (1, 1), (0.005, 0.008)]
    bare += [(9, 9), (9, 9)]
    scores = {
        each.title: {OURS.name: rounds(*one), BARE.name: rounds(*other)}
        for each, one, other in zip(asked, ours, bare, strict=True)
    }
    (target,) = report._slope_target(asked, scores)
    assert target.found == pytest.approx((8 / 4 + 6 / 6) / 2)
    assert target.promise.endswith("10 kB to 10 MB, growing")
    assert not target.is_met
    assert replace(target, found=1.3).is_met
