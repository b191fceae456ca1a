"""What a request of Messages wants of a thread, and which clients are known to send their whole history when asked."""

import json

import pytest

from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.messages_api import (
    MESSAGES_FORMAT,
    THREAD_CLIENTS,
    find_thread_client,
    find_thread_use,
)

MESSAGES = [{"role": "user", "content": 'A "thread".'}]


def body(**more):
    return json.dumps({"model": "claude-opus-5-5", "messages": MESSAGES, **more}).encode()


@pytest.mark.parametrize(
    ("sent", "use"),
    [
        (body(), ""),
        (body(thread=None), ""),
        (body(thread={"type": "create"}), "create"),
        (body(thread={"type": "continue", "previous_message_id": "msg_1"}), "continue"),
        (body(thread="msg_1"), "continue"),
        (body(metadata={"thread": {"type": "create"}}), ""),
        (b'{"thread": {"type": "create"', ""),
        (b'["thread"]', ""),
    ],
)
def test_the_use_of_a_thread_is_read(sent, use):
    assert find_thread_use(sent) == use


def render(sent):
    request = MESSAGES_FORMAT.parse(sent)
    return MESSAGES_FORMAT.render(request, request.messages)


@pytest.mark.parametrize("sent", [body(), body(metadata={"thread": 1})])
def test_a_request_without_a_thread_keeps_its_bytes(sent):
    assert render(sent) == sent


def test_without_its_thread_a_request_is_otherwise_the_same():
    assert render(body(thread={"type": "create"}, stream=True)) == body(stream=True)


EXAMPLES = [
    ("X-Stainless-Helper", "message-thread, BetaToolRunner"),
    ("User-Agent", "claude-cli/2.1.332 (external, cli)"),
]


@pytest.mark.parametrize(("client", "header"), [*zip(THREAD_CLIENTS, EXAMPLES, strict=True)])
def test_each_client_is_known_by_its_header(client, header):
    assert find_thread_client((header,)) is client


def test_other_clients_are_not_known():
    assert find_thread_client((("user-agent", "curl/8.17"), ("x-stainless-helper", "BetaToolRunner"))) is None


@pytest.mark.parametrize(
    ("more", "compacts"),
    [
        ({"compaction": {"type": "summarize"}}, True),
        ({"compaction": None}, False),
        ({"metadata": {"compaction": 1}}, False),
    ],
)
def test_a_request_for_a_compaction_is_known(more, compacts):
    assert MESSAGES_FORMAT.parse(body(**more)).provider_compacts is compacts


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (body(previous_response_id="resp_1"), "history-elsewhere"),
        (body(previous_response_id=None), ""),
        (body(metadata={"previous_response_id": "resp_1"}), ""),
        (b'{"previous_response_id": ', ""),
    ],
)
def test_a_chat_behind_what_a_gateway_keeps_is_known(sent, reason):
    assert CHAT_FORMAT.why_relayed(sent) == reason
