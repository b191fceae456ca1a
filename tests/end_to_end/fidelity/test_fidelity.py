"""Where nothing is compacted, bytes out are bytes in: the whole corpus through the real proxy, and through the eyes of
a comparison that is itself shown to see."""

import pytest
import pytest_asyncio

from tests.end_to_end.fidelity.compare import answer_differences, answer_through, request_differences, send_through
from tests.end_to_end.fidelity.large import large_answers, large_requests
from tests.end_to_end.fidelity.stored import RequestCase, load_answers, load_requests
from tests.support import http_client
from tests.support.running_proxy import QUIET
from tests.support.scripted_upstream import Request, Upstream
from tests.support.upstream_replies import answer

REQUESTS = [*load_requests(), *large_requests()]
ANSWERS = [*load_answers(), *large_answers()]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def recorder_and_proxy(serve):
    async with Upstream() as recorder, serve(recorder.url, config={"upstreams": [QUIET]}) as proxy:
        yield recorder, proxy


def test_the_corpus_is_as_large_as_documented():
    assert len(REQUESTS) >= 200
    assert len(ANSWERS) >= 60
    assert len({(sent.source, sent.name) for sent in REQUESTS}) == len(REQUESTS)
    assert {sent.source for sent in REQUESTS} >= {"openai-1", "openai-3", "openai-node", "langchain", "ai-sdk"}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("sent", REQUESTS, ids=lambda sent: f"{sent.source}: {sent.name}")
async def test_a_request_reaches_the_upstream_byte_for_byte(recorder_and_proxy, sent):
    recorder, proxy = recorder_and_proxy

    assert await send_through(proxy.origin, recorder, sent) == []


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("said", ANSWERS, ids=lambda said: said.name)
async def test_an_answer_reaches_the_client_byte_for_byte(recorder_and_proxy, said):
    recorder, proxy = recorder_and_proxy

    assert await answer_through(proxy.origin, recorder, said) == []


@pytest.mark.asyncio(loop_scope="module")
async def test_twenty_of_all_cases_pass_byte_for_byte(recorder_and_proxy):
    """`make quick` runs this one whatever was changed."""
    recorder, proxy = recorder_and_proxy
    for sent in REQUESTS[:: len(REQUESTS) // 10][:10]:
        assert await send_through(proxy.origin, recorder, sent) == [], sent.name
    for said in ANSWERS[:: len(ANSWERS) // 10][:10]:
        assert await answer_through(proxy.origin, recorder, said) == [], said.name


TAGGED = (("X-Tag", "a"), ("x-tag", "b"), ("Connection", "X-Hop"), ("X-Hop", "1"))
SENT = RequestCase("x", "POST", "/v1/x?a=1", TAGGED, b'{"a": 1.0}')


def arrived_request(*headers: tuple[bytes, bytes], target: str = SENT.target, body: bytes = SENT.body) -> Request:
    return Request("POST", target, http_client.Head(b"", headers), began=0, body=body)


@pytest.mark.parametrize(
    ("came", "difference"),
    [
        (arrived_request((b"x-tag", b"a"), (b"X-TAG", b"b"), (b"host", b"up"), body=b'{"a":1.0}'), "body"),
        (arrived_request((b"x-tag", b"a"), (b"x-tag", b"b"), target="/v1/x?a=%31"), "became POST /v1/x?a=%31"),
        (arrived_request((b"x-tag", b"b"), (b"x-tag", b"a")), "x-tag: ['a', 'b'] became ['b', 'a']"),
        (arrived_request((b"x-tag", b"a, b")), "x-tag"),
        (arrived_request(), "lost x-tag"),
        (arrived_request((b"x-tag", b"a"), (b"x-tag", b"b"), (b"via", b"1.1 x")), "added via"),
        (arrived_request((b"x-tag", b"a"), (b"x-tag", b"b"), (b"x-hop", b"1")), "added x-hop"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_comparison_sees_what_became_of_a_request(came, difference):
    (seen,) = request_differences(SENT, came)

    assert difference in seen


def test_the_comparison_sees_what_became_of_an_answer():
    text = answer({"a": 1}, 429, [("retry-after", "7")])
    body = http_client.Body(b'{"a": 2}', (), whole=False)
    came = http_client.Answer(
        http_client.Head(b"HTTP/1.1 500 Oh", ((b"server", b"x"), (b"x-compaction", b"none"))), body
    )

    assert answer_differences(text, came) == [
        "status 429 became 500",
        "lost content-type: ['application/json']",
        "lost retry-after: ['7']",
        "added server: ['x']",
        "body: at byte 6 b'{\"a\": 1}' became b'{\"a\": 2}'",
        "the connection broke before the end",
    ]
