"""The work for a history is proportional to its length, whatever is in it: parse, chain, decide and render."""

import json

import pytest

from proxy.designs.strategies import DedupOld
from proxy.history.chain import compute_chain
from proxy.history.grouping import repair
from proxy.history.pins import Pins
from proxy.path import planning
from proxy.shorten.block import Block
from proxy.shorten.drop_middle import write_ledger
from proxy.shorten.pipeline import Draft
from proxy.shorten.rules import Facts, Rules
from proxy.shorten.state import ConversationState
from proxy.wire.chat.chat_format import CHAT_FORMAT
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.messages import KEY, TENANT, assistant, body, call, calls, parse_request, user

WORDS = "some words about /src/a.py and x=1 " * 8
END = [*assistant("Done."), *user("Go on."), *assistant("Well."), *user("Go on.")]
RULES = Rules(pins=Pins(tags=("pin",), markers=("MUST",)))


def reads_of_one_file(count):
    """Each read asks for other lines, and none covers another."""
    read = [call("Read", file_path="/a", offset=3 * n, limit=1, out=f"{n} {WORDS}") for n in range(count)]
    return [message for group in read for message in group]


def number_calls(messages):
    for number, message in enumerate(messages):
        for each in message.get("tool_calls", ()):
            each["id"] = f"c{number}"
        if message["role"] == "tool":
            message["tool_call_id"] = f"c{number - 1}"
    return messages


SHAPES = {
    "parts with cache markers": lambda count: user(
        [{"type": "text", "text": f"{n} {WORDS}", "cache_control": {}} for n in range(count)]
    ),
    "words of users and answers in turn": lambda count: [
        message for n in range(count) for message in (*user(f"Do {n}."), *assistant(f"{n} {WORDS}"))
    ],
    "instructions in the midst": lambda count: [
        message
        for n in range(count)
        for message in ({"role": "system", "content": f"Mind {n}."}, *assistant(f"{n} {WORDS}"))
    ],
    "results without calls": lambda count: [
        {"role": "tool", "tool_call_id": f"c{n}", "content": f"{n} {WORDS}"} for n in range(count)
    ],
    "calls without results": lambda count: [
        {**calls(("Read", {"path": f"/{n}"}, ""))[0], "content": WORDS} for n in range(count)
    ],
    "the same result again and again": lambda count: number_calls(
        [message for _ in range(count) for message in call("Read", path="/a", out=WORDS * 3)]
    ),
    "reads of one file": lambda count: number_calls(reads_of_one_file(count)),
    "pins": lambda count: [
        message for n in range(count) for message in (*user(f"<pin>Keep {n}.</pin>"), *assistant(f"{n} {WORDS}"))
    ],
}


def decide(source):
    """Everything that is done for one request, under pressure of its window, by price, and as forced."""
    request = parse_request(source)
    links = compute_chain(request, TENANT, KEY)
    for facts in (Facts(usable_tokens=len(source) // 12), Facts(usable_tokens=len(source)), Facts(force=True)):
        state = ConversationState.of(request, links, None, RULES, facts=facts)
        ready = planning.choose_without_model(planning.decide(state))
        CHAT_FORMAT.render(request, ready.view, ready.tools)
        planning.plan_next_summary(state)
        if ready.block is not None:
            Block.from_bytes(ready.block.to_bytes())


@pytest.mark.seconds
@pytest.mark.parametrize("shape", SHAPES)
def test_the_cost_of_a_request_grows_with_the_length_of_its_history(shape):
    assert_grows_in_proportion(decide, lambda count: body([*user("Begin."), *SHAPES[shape](count), *END]), 120)


def draft_of(count):
    return Draft((), parse_request(body(number_calls(reads_of_one_file(count)))).body)


def test_the_cost_of_calls_that_others_cover_grows_with_their_number():
    assert_grows_in_proportion(DedupOld(), draft_of, 600)


def test_the_cost_of_a_ledger_grows_with_the_reads_of_one_file():
    assert_grows_in_proportion(lambda draft: write_ledger(draft.middle, 6_000), draft_of, 600)


def test_the_cost_of_a_repeated_output_bound_grows_with_its_number():
    def bounds_body(count):
        return b'{"messages":[]' + b',"max_tokens":900' * count + b"}"

    assert CHAT_FORMAT.answer_within(bounds_body(2), 5) == b'{"messages":[],"max_tokens":5,"max_tokens":5}'
    assert_grows_in_proportion(lambda source: CHAT_FORMAT.answer_within(source, 5), bounds_body, 10_000)


def test_the_cost_of_putting_a_shortened_history_together_grows_with_its_length():
    def shorten_results(count):
        request = parse_request(body(number_calls(reads_of_one_file(count))))
        view = [message.with_text("[gone]", "x") if message.is_result else message for message in request.body]
        return request, view

    assert_grows_in_proportion(lambda both: CHAT_FORMAT.render(*both), shorten_results, 2_000)


def test_repair_keeps_its_speed_where_every_call_is_answered():
    whole = parse_request(body(json.loads(json.dumps(number_calls(reads_of_one_file(3)))))).body
    assert repair(whole) == whole
