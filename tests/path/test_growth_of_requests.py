"""The work for a request is proportional to its length in every list and every text of it, on every way it can take."""

from itertools import count

import pytest

from proxy.upstream.client import Call
from proxy.wire.http_head import ApiPath
from tests.support.cost_growth import assert_served_in_proportion
from tests.support.gateway_in_process import GatewayInProcess
from tests.support.growing_requests import MARKER, MOST, ONLY_IN, PATHS, SHAPES, list_shapes, write
from tests.support.overflow_replies import overflow
from tests.support.scripted_upstream import answer, text_turn

# A window that every history is over, so that the same is done for all of them.
POLICY = {
    "clear_at_least": 1_000,
    "min_groups": 0,
    "keep": {"tokens": 500},
    "pins": {"tags": ["pin"], "markers": [MARKER]},
    "recall": "on",
    "summary": {"enabled": False},
}
WINDOW_TOKENS = 8_000
FIRST, MOST_BYTES = 250, 1_500_000
LATE = {
    "short messages": 1_000,
    "messages with pins": 1_000,
    "instructions in the midst": 1_000,
    "uses of the provider's tools": 1_000,
}
"""Of fewer messages not all that can be done has to be done."""
OF_CHAT = list_shapes("chat")
ANSWER = answer(text_turn("Well.").completion())
"""Given without a look at the request, for some are nested too deeply for Python to read."""


def mark_all(shapes, in_ci, mark):
    """Those that CI runs have this mark; `make soak` runs the others."""
    return [pytest.param(shape, marks=mark if shape in in_ci else pytest.mark.soak) for shape in shapes]


IN_OTHER_APIS = mark_all(SHAPES, tuple(SHAPES)[::10], pytest.mark.seconds)
ON_OTHER_WAYS = mark_all(OF_CHAT, ("tools", "reminders without an end"), pytest.mark.slow)
LATE_IF_REFUSED = {"calls in one message": 2_000}
"""The first ways to shorten are enough for fewer."""


@pytest.fixture
async def served(up, tmp_path):
    async with GatewayInProcess(up, tmp_path, policies={"default": POLICY}, retries=0, window=WINDOW_TOKENS) as gateway:
        yield gateway


def answer_each(up, *, refuses_first=False):
    callers = set()

    def reply(request):
        up.forget()
        caller = request.header("authorization")
        is_first = caller not in callers
        callers.add(caller)
        return overflow("openai") if refuses_first and is_first else ANSWER

    return reply


async def assert_in_proportion(served, api, shape, path="", late=LATE):
    """Each request is the first one of its caller: nothing of it is known from before."""
    callers, first = count(), late.get(shape, FIRST)

    def make(size):
        request = SHAPES[shape](size)
        return write(api, request), request.headers

    async def serve(made):
        source, headers = made
        own = (("authorization", f"Bearer sk-{next(callers)}"), ("content-type", "application/json"))
        await served.relay(Call("POST", path or PATHS[api], "", (*own, *headers), source))
        await served.notes.wait_idle()

    most = MOST.get(shape, MOST_BYTES)
    await assert_served_in_proportion(serve, make, first=min(first, most // 4), most=most, most_bytes=MOST_BYTES)
    assert not served.faults


@pytest.mark.seconds
@pytest.mark.parametrize("shape", OF_CHAT)
async def test_the_work_for_a_chat_of_any_shape_grows_with_its_length(up, served, shape):
    up.script = answer_each(up)
    await assert_in_proportion(served, "chat", shape)


@pytest.mark.parametrize("api", ["messages", "responses"])
@pytest.mark.parametrize("shape", IN_OTHER_APIS)
async def test_the_work_in_other_apis_grows_with_its_length(up, served, api, shape):
    if ONLY_IN.get(shape, api) != api:
        pytest.skip("no other API has it")
    up.script = answer_each(up)
    await assert_in_proportion(served, api, shape)


@pytest.mark.parametrize("shape", ON_OTHER_WAYS)
async def test_the_work_for_a_refused_request_grows_with_its_length(up, served, shape):
    up.script = answer_each(up, refuses_first=True)
    await assert_in_proportion(served, "chat", shape, late=LATE_IF_REFUSED)


@pytest.mark.parametrize("shape", ON_OTHER_WAYS)
async def test_the_work_to_compact_on_request_grows_with_the_length_of_a_history(served, shape):
    await assert_in_proportion(served, "chat", shape, ApiPath.COMPACT)
