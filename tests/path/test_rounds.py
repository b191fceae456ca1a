"""Rounds of one answer within the gateway: what the upstream is asked, and what the client and the operator see."""

import pytest
from msgspec.structs import replace

from proxy.events import RecallAnswered, ViewRefused
from proxy.recall.tool import COMPACT, PENDING, RECALL
from proxy.serve.rounds import COMPACTED_ALREADY, RECALLS_MAX, ROUNDS_MAX, find_room
from tests.support.agent import reading
from tests.support.client_answers import read_completion
from tests.support.gateway_in_process import GatewayInProcess
from tests.support.messages import assistant, tool, user
from tests.support.scripted_upstream import Turn, answer, call_turn, in_turn, overflow, text_turn

WORK = reading(24)
POLICY = {
    "recall": "on",
    "compact_tool": True,
    "summary": {"enabled": False},
    "clear_at_least": 3_000,
    "keep": {"tokens": 10_000},
}
COMPACTS = call_turn(COMPACT.name)
INVALID = answer({"error": {"message": "messages: odd", "type": "invalid_request_error"}}, 400)
NOTHING = "No message holds this text."
FULL = "no room in the context"
REFUSED = "Nothing was compacted: the shortened conversation was refused."


def recalls(times=1, **arguments):
    turn = text_turn("Well.")
    for _ in range(times):
        turn += call_turn(RECALL.name, **(arguments or {"messages": "3"}))
    return turn


def list_results(request):
    """The results at the end of a request."""
    results = []
    for message in reversed(request.json["messages"]):
        if message["role"] != "tool":
            break
        results.insert(0, message["content"])
    return results


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
async def relay(request, up, tmp_path):
    """Send a history, which the upstream answers by these replies."""
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
        ([COMPACTS], [["Compacted: "]], []),
        ([COMPACTS + COMPACTS, recalls() + COMPACTS], [["Compacted: ", COMPACTED_ALREADY], []], [(2, 1)]),
        ([COMPACTS, INVALID], [["Compacted: "], [REFUSED]], []),
        ([COMPACTS + recalls(), overflow("openai")], [["Compacted: ", WORK[3]["content"]], [REFUSED, FULL]], [(1, 1)]),
        ([recalls()] * ROUNDS_MAX, [[WORK[3]["content"]]] * ROUNDS_MAX, [(n + 1, 1) for n in range(ROUNDS_MAX)]),
    ],
)
async def test_each_round_brings_the_results_of_the_one_before(relay, replies, results, events):
    data, (first, *following) = await relay(*replies, text_turn("Done.").using(100))
    assert len(following) == len(results)
    for request, wanted in zip(following, results, strict=True):
        for result, beginning in zip(list_results(request), wanted, strict=False):
            assert beginning in result
        offered = [definition["function"]["name"] for definition in request.json["tools"]]
        is_last = len(following) == ROUNDS_MAX and request is following[-1]
        assert offered == (["Read"] if is_last else ["Read", COMPACT.name, RECALL.name])
        is_compacted = "Compacted: " in str(results[0]) and REFUSED not in wanted
        assert (len(request.body) < len(first.body)) == is_compacted
    message = read_completion(data)["choices"][0]["message"]
    said = [reply.text for reply in replies if isinstance(reply, Turn) and reply.text]
    assert message["content"].split("\n\n") == [*said, "Done."]
    calls = [call["function"]["name"] for call in message.get("tool_calls") or ()]
    assert calls == ["Read"] * (PENDING in results[0])
    assert [(event.number, event.calls) for event in relay.events if isinstance(event, RecallAnswered)] == events
    was_refused = [REFUSED] in [texts[:1] for texts in results]
    assert [event.helped for event in relay.events if isinstance(event, ViewRefused)] == [True] * was_refused


@pytest.mark.parametrize(("second", "place"), [(text_turn("On."), 1), (INVALID, 0)], ids=["accepted", "refused"])
async def test_a_compacted_history_is_stored_once_its_round_was_accepted(relay, second, place):
    _, asked = await relay(COMPACTS, second, text_turn("On."))
    _, (later,) = await relay(text_turn("Yes."), messages=[*WORK, *assistant("On."), *user("Go on.")])
    first, compacted, goes_on = (request.json["messages"][: len(WORK)] for request in (*asked[:2], later))
    assert first != compacted
    assert goes_on == (first, compacted)[place]


def test_recalls_take_half_of_the_free_window_and_no_more_than_256_kib():
    free = [find_room(usable, 1_000) for usable in (None, 999, 1_000, 1_002, 5_000, 1_000_000)]
    assert free == [64 * 1024, 0, 0, 3, 6_000, 256 * 1024]
