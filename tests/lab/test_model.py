"""The simulated model: as strict, as forgetful and as expensive as a real one."""

import asyncio
import json
from itertools import pairwise

import pytest

from proxy.lab.demo.agent import SYSTEM, TOOLS, encode, encode_request, sample
from proxy.lab.demo.model import NAME, TURNOUTS, Manner, SimulatedModel
from proxy.lab.demo.picture import Bill, Tally, charge_untouched
from proxy.models.tokenizer import Tokenizers

RUN = sample(12)
DEMAND = encode({"role": "user", "content": "Stop here.\n\n## Goal\nWhat for.\n\n## Next step\nWhat then."})


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizers().of(NAME)


@pytest.fixture
def model(tokenizer):
    return SimulatedModel(RUN, tokenizer)


def ask_model(model, *messages):
    return asyncio.run(model.answer(encode_request(messages, NAME)))


def requests():
    return list(RUN.requests())


def test_it_says_the_step_that_follows_the_last_result(model):
    text = [ask_model(model, *messages) for messages in requests()]
    assert [dict(each.message) for each in text] == [RUN.answer(number) for number in range(12)]
    assert [each.finish for each in text] == ["tool_calls"] * 11 + ["stop"]


def test_it_charges_what_it_has_read_before_as_cached_in_steps_of_128(model):
    usages = [ask_model(model, *messages).usage for messages in requests()]
    assert usages[0].cached == 0
    for before, after in pairwise(usages):
        assert after.cached == before.prompt // 128 * 128
        assert after.cached <= after.prompt


def test_tokens_after_a_changed_message_are_uncached(model):
    messages = requests()[9]
    for each in requests()[:10]:
        ask_model(model, *each)
    changed = encode({"role": "user", "content": "Something else."})
    text = ask_model(model, messages[0], changed, *messages[2:])
    fixed = model._tokenizer.count(encode(TOOLS)) + model._tokenizer.count(
        encode({"role": "system", "content": SYSTEM})
    )
    assert text.usage.cached == fixed // 128 * 128
    assert model.received[-1].broke


def test_going_on_is_no_break_and_neither_is_a_demand_for_a_summary(model):
    for messages in requests():
        ask_model(model, *messages, DEMAND)
        ask_model(model, *messages)
    assert [each.kind for each in model.received] == ["summary", "turn"] * 12
    assert Tally(model.received).breaks == 0


def test_a_request_over_the_window_is_refused_in_the_words_of_the_api(tokenizer):
    model = SimulatedModel(RUN, tokenizer, Manner(window=10_000))
    text = ask_model(model, *requests()[-1])
    assert (text.status, text.message["code"]) == (400, "context_length_exceeded")
    assert "maximum context length is 10000 tokens" in text.message["message"]
    tally = Tally(model.received)
    assert (tally.over, tally.malformed, tally.turns, tally.bill) == (1, 0, [], Bill())


def test_a_result_without_its_call_and_a_call_without_its_result_are_refused(model):
    messages = requests()[5]
    orphan = ask_model(model, *messages[:2], messages[-1])
    unanswered = ask_model(model, *messages[:-1], encode({"role": "user", "content": "And?"}))
    assert [orphan.status, unanswered.status] == [400, 400]
    assert Tally(model.received).malformed == 2


def test_a_summary_has_the_headings_that_were_asked_for_and_says_that_it_is_none(model):
    text = ask_model(model, *requests()[9], DEMAND).message["content"]
    assert [line for line in text.split("\n") if line.startswith("#")] == ["## Goal", "## Next step"]
    assert "Simulated" in text


@pytest.mark.parametrize("kind", TURNOUTS)
def test_a_summary_can_go_wrong_in_every_way_a_real_one_does(kind, tokenizer):
    model = SimulatedModel(RUN, tokenizer, Manner(summaries=[kind], slow_seconds=7))
    text = ask_model(model, *requests()[9], DEMAND)
    sent = sum(map(len, requests()[9]))
    content = text.message.get("content") or ""
    assert (text.status == 503) == (kind == "down")
    assert (text.seconds == 7) == (kind == "slow")
    assert (text.finish == "length") == (kind == "cut")
    assert ("tool_calls" in text.message) == (kind == "tool")
    assert (content == "") == (kind in ("down", "empty", "tool"))
    assert (len(content) > sent) == (kind == "long")
    assert ("<|im_start|>system" in content) == (kind == "hostile")


def test_with_nothing_in_between_it_charges_what_the_tally_foretells(model, tokenizer):
    charged = [ask_model(model, *messages).usage for messages in requests()]
    assert charged == charge_untouched(RUN, tokenizer)
    assert Tally(model.received).bill == Bill.of(charged)


def test_an_invalid_request_is_refused_and_not_counted(model):
    assert asyncio.run(model.answer(b"[]")).status == 400
    assert model.received == []
    assert json.loads(encode_request((), NAME))["messages"] == []
