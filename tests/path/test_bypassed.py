"""Passed on as they came: requests that bypass compaction, but for refused reasoning; streams, but for broken ones."""

from contextlib import nullcontext

import pytest

from proxy.events import SizeRefused
from proxy.foundation.errors import UpstreamBroke
from proxy.store.memory_store import MemoryStore
from proxy.upstream.client import Call
from tests.support.gateway_in_process import GatewayInProcess
from tests.support.messages import assistant, body, user
from tests.support.scripted_upstream import answer, delta, in_turn, stream, text_turn

SIGNED = assistant("Yes.", reasoning_details=[{"type": "reasoning.text", "text": "x", "signature": "c2ln"}])
HISTORY = [*user("a" * 2_000), *SIGNED, *user("b")]
SIGNATURE = answer(
    {"error": {"message": "Invalid `signature` in `thinking` block", "type": "invalid_request_error"}}, 400
)
STREAMED = answer(
    b'data: {"error": {"message": "Invalid `signature` in `thinking` block"}}\n\n',
    headers=[("content-type", "text/event-stream")],
)
LENGTH = answer({"error": {"message": "too long", "code": "context_length_exceeded"}}, 400)


class SilentStore(MemoryStore):
    async def find(self, *_):
        raise AssertionError("the store was read")

    async def put(self, *_):
        raise AssertionError("the store was written")


async def test_a_bypassed_request_is_not_read_and_does_not_wait_for_the_store(up, tmp_path):
    async with GatewayInProcess(up, tmp_path, SilentStore()) as served:
        served.services.known_requests = None
        call = served.call([*user("a" * 9_000), *HISTORY], headers=[("x-compaction", "bypass")])
        await served.relay(call)
        assert up.requests[-1].body == call.body
        assert served.faults == []


@pytest.mark.parametrize(
    ("replies", "messages", "mode", "helped"),
    [
        ([SIGNATURE, text_turn("Hi.")], HISTORY, "bypass", [("signature", True)]),
        ([STREAMED, text_turn("Hi.")], HISTORY, "bypass", [("signature", True)]),
        ([SIGNATURE, SIGNATURE], HISTORY, "bypass", [("signature", False)]),
        ([SIGNATURE], user("a"), "bypass", [("signature", False)]),
        ([LENGTH], HISTORY, "bypass", [("input", False)]),
        ([text_turn("Hi.")], HISTORY, "bypass", []),
        ([SIGNATURE], user("a"), "auto", [("signature", False)]),
    ],
)
async def test_only_refused_reasoning_is_left_out(up, tmp_path, *, replies, messages, mode, helped):
    async with GatewayInProcess(up, tmp_path, retries=0) as served:
        up.script = in_turn(*replies)
        call = served.call(messages, headers=[("x-compaction", mode)])
        data = await served.relay(call)
    first, *again = up.requests
    assert first.body == call.body
    assert [b"c2ln" in request.body for request in again] == [False] * (len(replies) - 1)
    assert (b"Hi." in data) == all(has_helped for _, has_helped in helped)
    assert [(event.kind, event.helped) for event in served.events if isinstance(event, SizeRefused)] == helped


WORD, END = delta(content="Hel"), b"data: [DONE]"
UNFINISHED = "the upstream ended its answer before it was finished"


@pytest.mark.parametrize(
    ("path", "status", "text", "why"),
    [
        ("/chat/completions", 200, WORD, UNFINISHED),
        ("/responses", 200, WORD, UNFINISHED),
        ("/chat/completions", 200, b'data: {"object": "error", "message": "x"}\n\n', "the upstream reported an error"),
        ("/chat/completions", 200, WORD + END, ""),
        ("/chat/completions", 201, WORD, ""),
        ("/x", 200, WORD, ""),
    ],
)
async def test_a_stream_of_a_model_that_reports_an_error_or_has_not_finished_is_broken(
    up, tmp_path, *, path, status, text, why
):
    up.script = stream(text, status=status)
    sent = b"" if path == "/x" else body(user("a"), stream=True)
    async with GatewayInProcess(up, tmp_path) as served:
        with pytest.raises(UpstreamBroke, match=why) if why else nullcontext():
            assert await served.relay(Call("POST", path, "", (("authorization", "Bearer sk-a"),), sent)) == text
