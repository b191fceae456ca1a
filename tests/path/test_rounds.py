"""Rounds of one answer within the gateway, and what is said of a compaction that was asked for."""

import asyncio

import pytest
from msgspec.structs import replace

from proxy.decide.actions import Decision
from proxy.decide.remedies import plan_untouched
from proxy.events import RecallAnswered
from proxy.recall import PENDING, RECALL
from proxy.serve.rounds import RECALLS_MAX, ROUNDS_MAX, find_room, report_compaction
from proxy.shorten.pipeline import StepReport
from tests.support.agent import reading
from tests.support.client_answers import read_completion
from tests.support.gateway_in_process import GatewayInProcess
from tests.support.messages import request, tool, user
from tests.support.scripted_upstream import Turn, call_turn, hang, in_turn, overflow, stream, text_turn, wait_for

WORK = reading(24)
POLICY = {"recall": "on", "summary": {"enabled": False}, "clear_at_least": 3_000, "keep": {"tokens": 10_000}}
NOTHING = "No message holds this text."
FULL = "no room in the context"


def recalls(times=1, **arguments):
    turn = text_turn("Well.")
    for _ in range(times):
        turn += call_turn(RECALL.name, **(arguments or {"messages": "3"}))
    return turn


def list_results(request):
    results = []
    for message in reversed(request.json["messages"]):
        if message["role"] != "tool":
            break
        results.insert(0, message["content"])
    return results


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
async def relay(request, up, tmp_path):
    async with GatewayInProcess(up, tmp_path, policies={"default": POLICY}, retries=0, window=1_000_000) as served:

        async def send(*replies, messages=WORK):
            up.script, before = in_turn(*replies), len(up.requests)
            call = served.call(messages, tools=[tool("Read", path="string")])
            if not request.param:
                call = replace(call, body=call.body.replace(b'"stream": true', b'"stream": false'))
            return await served.relay(call), up.requests[before:]

        send.events = served.events
        yield send
        assert served.faults == []


@pytest.mark.parametrize(
    ("replies", "results", "events"),
    [
        ([recalls()], [[WORK[3]["content"]]], [(1, 1)]),
        ([recalls() + call_turn("Read")], [[WORK[3]["content"], PENDING]], [(1, 1)]),
        ([recalls(), recalls(2, search="no such text")], [[WORK[3]["content"]], [NOTHING] * 2], [(1, 1), (2, 2)]),
        ([recalls(RECALLS_MAX + 1, search="no such text")], [[NOTHING] * RECALLS_MAX + [FULL]], [(1, RECALLS_MAX + 1)]),
        ([recalls(), overflow("openai")], [[WORK[3]["content"]], [FULL]], [(1, 1)]),
        ([recalls()] * ROUNDS_MAX, [[WORK[3]["content"]]] * ROUNDS_MAX, [(n + 1, 1) for n in range(ROUNDS_MAX)]),
    ],
)
async def test_each_round_brings_the_results_of_the_one_before(relay, replies, results, events):
    data, (_, *following) = await relay(*replies, text_turn("Done.").using(100))
    assert len(following) == len(results)
    for sent, wanted in zip(following, results, strict=True):
        for result, beginning in zip(list_results(sent), wanted, strict=False):
            assert beginning in result
        offered = [definition["function"]["name"] for definition in sent.json["tools"]]
        is_last = len(following) == ROUNDS_MAX and sent is following[-1]
        assert offered == (["Read"] if is_last else ["Read", RECALL.name])
    message = read_completion(data)["choices"][0]["message"]
    said = [reply.text for reply in replies if isinstance(reply, Turn) and reply.text]
    assert message["content"].split("\n\n") == [*said, "Done."]
    calls = [call["function"]["name"] for call in message.get("tool_calls") or ()]
    assert calls == ["Read"] * (PENDING in results[0])
    assert [(event.number, event.calls) for event in relay.events if isinstance(event, RecallAnswered)] == events


async def test_a_refused_round_is_left_before_a_shorter_one_is_asked_for(up, tmp_path):
    """A refusal within a stream need not end it: the rest of it may take minutes."""
    requests = []

    def reply(request):
        requests.append(request)
        if len(requests) == 1:
            return recalls()
        if len(requests) == 2:
            return stream(b"data: %b\n\n" % overflow("openai").body, hang())
        return stream(wait_for(requests[1].ended), *text_turn("Done.").frames())

    up.script = reply
    async with GatewayInProcess(up, tmp_path, policies={"default": POLICY}, retries=0, window=1_000_000) as served:
        async with asyncio.timeout(20):
            data = await served.relay(served.call(WORK, tools=[tool("Read", path="string")]))
    assert (len(requests), served.faults) == (3, [])
    assert read_completion(data)["choices"][0]["message"]["content"].endswith("Done.")


def test_recalls_take_half_of_the_free_window_and_no_more_than_256_kib():
    free = [find_room(usable, 1_000) for usable in (None, 999, 1_000, 1_002, 5_000, 1_000_000)]
    assert free == [64 * 1024, 0, 0, 3, 6_000, 256 * 1024]


REQUEST = request(user("Hello."))


@pytest.mark.parametrize(
    ("reason", "plan_reason", "says"),
    [
        ("floor", "floor", "Nothing to compact: of 5,000 tokens nothing more can go."),
        ("no-summary", "no-summary", "Nothing was compacted.\nNo summary was written"),
        ("focus-unused", "no-summary", "Nothing was compacted.\nNo summary was written"),
        ("originals-unwritable", "", "Nothing was compacted: the originals could not be saved."),
    ],
)
def test_a_compaction_that_came_to_nothing_is_reported_with_its_cause(reason, plan_reason, says):
    decision = Decision("none", reason, plan=plan_untouched(REQUEST, 5_000, plan_reason))
    report = report_compaction(decision, "the parser")
    assert report.startswith(says)
    assert ("focus (the parser) was not used" in report) == (reason == "focus-unused")


@pytest.mark.parametrize(
    ("tokens_before", "says"),
    [
        (23_341, "Compacted: 23,341 -> 1,527 tokens (shortened before -20,048, summary -1,800, ledger +34)."),
        (3_293, "Compacted: 3,293 -> 1,527 tokens (summary -1,800, ledger +34)."),
    ],
)
def test_the_figures_of_a_compaction_add_up_also_behind_an_earlier_one(tokens_before, says):
    reports = (StepReport("clip_output", 0, 0), StepReport("summary", 4, 1_800), StepReport("ledger", 1, -34))
    plan = replace(
        plan_untouched(REQUEST, tokens_before), action="created", reason="forced", tokens_after=1_527, reports=reports
    )
    assert report_compaction(Decision("created", "forced", plan=plan), "") == says
