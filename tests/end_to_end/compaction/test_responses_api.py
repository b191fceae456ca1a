"""OpenAI Responses through the running proxy: what an upstream gets, and what the client sees."""

import json

import pytest

from tests.support.agent import reading
from tests.support.apis import RESPONSES, TOO_LONG, ApiAgent
from tests.support.compacting_proxy import settings
from tests.support.responses_api import answer_events, refused_events, render
from tests.support.scripted_upstream import pause, stream

pytestmark = pytest.mark.asyncio(loop_scope="module")


LIMIT = 9_000


def refuse_behind_repeated_instructions(asked):
    """As OpenAI does: each of the first two events repeats the instructions and the tools."""
    events = [json.loads(frame.partition(b"data: ")[2]) for frame in refused_events(TOO_LONG)]
    for number in (0, 1):
        events[number]["response"] |= {"instructions": asked.json["instructions"], "tools": []}
    begun, in_progress, *refusal = (render(event, event["sequence_number"]) for event in events)
    return stream(begun, in_progress, pause(0.1), *refusal)


def refuse_behind_other_events(_):
    limits = render({"type": "codex.rate_limits", "plan_type": "plus"}, 0)
    metadata = render({"type": "codex.response.metadata", "headers": {}}, 1)
    return stream(limits, pause(0.05), metadata, pause(0.05), *refused_events(TOO_LONG))


def refuse_in_two_packets(_):
    events = b"".join(refused_events(TOO_LONG))
    at = events.index(b"},", events.index(b'"type": "error"')) + 1
    return stream(events[:at], pause(0.1), events[at:])


@pytest.mark.parametrize(
    "refuse", [refuse_behind_repeated_instructions, refuse_behind_other_events, refuse_in_two_packets]
)
async def test_an_overflow_is_recovered_from_whatever_comes_before_it(serve, fresh, refuse):
    fresh.script = lambda asked: RESPONSES.answer(asked) if len(asked.body) // 4 <= 2 * LIMIT else refuse(asked)
    instructions = {"role": "system", "content": "You are an agent. " * 2_000}
    async with serve(fresh.url, config=settings(default={"clear_at_least": 1_000_000})) as proxy:
        _, forwarded, reply = await ApiAgent(RESPONSES, proxy, fresh, {"stream": True}).send(
            [instructions, *reading(60)[1:]]
        )
    assert len(forwarded) == 2
    assert b"context_length_exceeded" not in reply.body.data
    assert reply.body.data == b"".join(answer_events("Go on.", prompt=len(forwarded[-1]) // 4))
