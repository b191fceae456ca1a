"""Answers that are unusual: they are relayed where they can be, and else the error says why not."""

import gzip
import json

import pytest

from tests.support.proxy_client import ask, chat, encode_chunked, fault_of
from tests.support.scripted_upstream import answer, close, raw, text_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
PACKED = gzip.compress(b'{"a":1}')


async def test_an_answer_with_hundreds_of_headers_is_relayed(up, proxy):
    up.script = answer(b"{}", headers=[(f"x-{number}", "a") for number in range(500)])
    reply = await ask(proxy, chat())
    assert (reply.status, reply.head.first("x-499")) == (200, "a")


@pytest.mark.parametrize(
    ("headers", "complaint"),
    [
        ([(f"x-{number}", "a") for number in range(1001)], "a response with more than 1,000 headers"),
        ([("x-long", "a" * 70_000)], "a response with a header line longer than 64 KiB"),
    ],
    ids=["too many", "too long"],
)
async def test_a_head_that_is_too_large_is_a_502_that_says_so(up, proxy, headers, complaint):
    up.script = answer(b"{}", headers=headers)
    reply = await ask(proxy, chat())
    assert reply.status == 502
    assert fault_of(reply)["message"].endswith(complaint)


@pytest.mark.parametrize("value", [b"a\x01b", b"a\x7fb", b"a\xffb"])
async def test_a_header_that_cannot_be_written_again_is_left_out(up, proxy, value):
    up.script = raw(HEAD + b"x-odd: %b\r\nx-plain: a\tb\r\ncontent-length: 2\r\n\r\n{}" % value)
    reply = await ask(proxy, chat())
    assert (reply.status, reply.body.data) == (200, b"{}")
    assert (reply.head.first("x-odd"), reply.head.first("x-plain")) == (None, "a\tb")


@pytest.mark.parametrize(
    ("framing", "sent", "encodings"),
    [
        (b"transfer-encoding: gzip, chunked\r\n", encode_chunked(PACKED), [b"gzip"]),
        (b"transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n", encode_chunked(PACKED), [b"gzip"]),
        (b"content-encoding: br\r\ntransfer-encoding: GZip,chunked\r\n", encode_chunked(PACKED), [b"br", b"gzip"]),
        (b"transfer-encoding: gzip\r\nconnection: close\r\n", PACKED, [b"gzip"]),
        (b"transfer-encoding: chunked\r\n", encode_chunked(PACKED), []),
    ],
    ids=["in one list", "on two lines", "twice", "until the end", "none"],
)
async def test_a_coding_below_the_chunks_is_named_to_the_client(up, proxy, framing, sent, encodings):
    """The client gets the bytes as they came, in chunks of its own connection: it could not know how to read them."""
    up.script = raw(HEAD + framing + b"\r\n" + sent, close())
    reply = await ask(proxy, json.dumps({"model": "m"}).encode(), "/embeddings")
    assert (reply.status, reply.body.data) == (200, PACKED)
    assert reply.head.all("content-encoding") == encodings
    assert reply.head.all("transfer-encoding") in ([], [b"chunked"])


async def test_headers_of_the_proxy_are_not_taken_from_an_upstream(up, proxy):
    forged = [("x-compaction", "applied"), ("X-Compaction-Conversation", "forged")]
    up.script = answer(text_turn("hi").completion(), headers=forged)
    chatted, embedded = await ask(proxy, chat()), await ask(proxy, chat(), "/embeddings")
    assert chatted.head.all("x-compaction") == [b"none"]
    assert chatted.head.all("x-compaction-conversation") == []
    assert embedded.head.all("x-compaction") == []


@pytest.mark.parametrize(
    ("reason", "told"), [(b"O\x07K", b""), (b"O\tK", b"O\tK"), (b"Tr\xc3\xa8s bien", b"Tr\xc3\xa8s bien")]
)
async def test_a_reason_phrase_that_cannot_be_written_again_is_left_out(up, proxy, reason, told):
    up.script = raw(HEAD.replace(b"OK", reason) + b"content-length: 2\r\n\r\n{}")
    reply = await ask(proxy, chat())
    assert reply.body.data == b"{}"
    assert reply.head.start == b"HTTP/1.1 200 " + told
