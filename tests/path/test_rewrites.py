"""Clients that shorten their own results at every turn are told, once; what they have taken out stays out."""

from time import perf_counter

import pytest

from proxy.events import ClientRewrites, RequestFinished
from proxy.serve.services import REWRITES_MIN
from tests.support.agent import page, reading, turns
from tests.support.gateway_in_process import GatewayInProcess, WithoutSocket
from tests.support.messages import assistant, call, history, system, user
from tests.support.scripted_upstream import text_turn

SMALL = {"default": {"clear_at_least": 2_000, "keep": {"tokens": 500}}}
WORK = reading(24)
FIRST_SHORTENED = 5
"""The first request of `WORK` in which `clear_old` shortens a result."""


def clear_old(messages, kept=4):
    """All but the newest results are cleared, as LangChain's `ContextEditingMiddleware` does at each turn."""
    results = [place for place, message in enumerate(messages) if message["role"] == "tool"]
    for place in results[:-kept]:
        messages = [*messages[:place], {**messages[place], "content": "[cleared]"}, *messages[place + 1 :]]
    return messages


async def read_reasons(served, requests):
    reasons = []
    for messages in requests:
        record = RequestFinished("cp-1", "POST", "/v1/chat/completions", received_at=perf_counter())
        await served.gateway.serve(WithoutSocket(served.call(messages), []), record)
        await served.notes.wait_idle()
        reasons.append(record.reason)
    return reasons


@pytest.fixture
def warned():
    return lambda served: [event for event in served.events if isinstance(event, ClientRewrites)]


@pytest.mark.parametrize("policies", [None, SMALL], ids=["below every threshold", "shortened"])
async def test_a_client_that_shortens_results_at_every_turn_is_told_in_each_answer_and_once_in_the_log(
    up, tmp_path, warned, policies
):
    up.script = text_turn("Go on.")
    async with GatewayInProcess(up, tmp_path, policies=policies) as served:
        reasons = await read_reasons(served, map(clear_old, turns(WORK)))
        (event,) = warned(served)
    first_told = FIRST_SHORTENED + REWRITES_MIN
    assert "client-rewrites" not in reasons[:first_told]
    assert set(reasons[first_told:]) <= {"client-rewrites", "opening", "stride"}
    assert reasons.count("client-rewrites") > 10
    assert event.model == "gpt-4o"
    assert event.conversation


def summarize(messages):
    """Each tenth turn a client's own compaction clears all results."""
    results = sum(message["role"] == "tool" for message in messages)
    return clear_old(messages, max(1, results % 10))


def regenerate(messages):
    return [*messages[:-1], {**messages[-1], "content": page(len(messages), 1_000)}]


@pytest.mark.parametrize("change", [list, summarize, regenerate])
async def test_other_clients_are_not_told_so(up, tmp_path, warned, change):
    up.script = text_turn("Go on.")
    async with GatewayInProcess(up, tmp_path, policies=SMALL) as served:
        reasons = await read_reasons(served, map(change, turns(WORK)))
        assert warned(served) == []
    assert "client-rewrites" not in reasons


async def test_conversations_that_begin_alike_and_use_the_same_ids_are_no_rewriting_client(up, tmp_path, warned):
    up.script = text_turn("Go on.")

    def work(sizes):
        reads = [call("Read", out=page(number, size), path="a.py") for number, size in enumerate(sizes)]
        return history(system("You are a coding agent."), user("Make the tests pass."), *reads)

    pairs = [(work([300, 2_000] * number), work([2_000, 300] * number)) for number in range(1, 9)]
    async with GatewayInProcess(up, tmp_path) as served:
        await read_reasons(served, [messages for pair in pairs for messages in pair])
        assert warned(served) == []


async def test_a_rewriting_client_is_noticed_though_others_begin_with_the_same_instructions(up, tmp_path, warned):
    up.script = text_turn("Go on.")
    instructions = system("You are a coding agent.")
    ours, others = ([*instructions, *user(task), *WORK[1:]] for task in ("Mend it.", "Look at it."))
    pairs = zip(map(clear_old, turns(ours)), turns(others), strict=True)
    async with GatewayInProcess(up, tmp_path) as served:
        await read_reasons(served, [messages for pair in pairs for messages in pair])
        assert len(warned(served)) == 1


@pytest.mark.parametrize("policies", [None, SMALL])
async def test_text_that_a_client_has_taken_out_is_never_forwarded_again(up, tmp_path, policies):
    up.script = text_turn("Go on.")
    secret = "the number of the card is 4929-1111"
    said = [*WORK[:4], *assistant("And?"), *user(secret), *WORK[4:]]
    without = [*WORK[:4], *assistant("And?"), *user("(taken out)"), *WORK[4:]]
    read = [*WORK[:3], {**WORK[3], "content": f"{WORK[3]['content']}\n{secret}"}, *WORK[4:]]
    async with GatewayInProcess(up, tmp_path, policies=policies) as served:
        for messages, later in ((said, without), (read, clear_old(read))):
            await read_reasons(served, turns(messages))
            assert secret.encode() in b"".join(request.body for request in up.requests)
            up.forget()
            await read_reasons(served, list(turns(later))[-8:])
            assert secret.encode() not in b"".join(request.body for request in up.requests)
            up.forget()
