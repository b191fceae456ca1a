"""An upstream that calls a shortened history invalid gets it as the client sent it, and the client sees no error."""

import json

import pytest

from tests.support.agent import reading, turns
from tests.support.apis import APIS, KEY, each_api
from tests.support.compacting_proxy import metric, settings
from tests.support.messages import body
from tests.support.proxy_client import ask, log_of, until
from tests.support.scripted_upstream import answer, text_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")

HISTORIES = list(turns(reading(30)))
SENT = {api.name: [api.write(history) for history in HISTORIES] for api in APIS}
INVALID = {
    "error": {"message": "messages.7: this is against a rule that nobody has heard of", "type": "invalid_request"}
}


def accept_only(known, accepted, *, status=400):
    """An upstream that takes no other bodies than these."""
    return lambda request: accepted if request.body in known else answer(INVALID, status)


def count_refused(up, known):
    return sum(request.body not in known for request in up.requests)


@pytest.mark.seconds
@pytest.mark.parametrize("status", [400, 422])
@each_api
async def test_it_is_sent_as_it_came_and_after_two_refusals_at_once(serve, fresh, api, status):
    fresh.script = accept_only(SENT[api.name], api.reply(), status=status)
    async with serve(fresh.url, config=settings()) as proxy:
        answers = [await ask(proxy, sent, api.path, headers=KEY) for sent in SENT[api.name]]
        await until(lambda: len(log_of(proxy, "shortened-refused")) == 2)  # the log is written in batches
        lines = log_of(proxy, "shortened-refused")
        counted = await metric(proxy, "refused_as_shortened_total", outcome="helped")
    assert {answer.status for answer in answers} == {200}
    assert count_refused(fresh, SENT[api.name]) == 2
    assert [line["helped"] for line in lines] == [True, True]
    assert counted == 2
    outcomes = [(answer.head.first("x-compaction"), answer.head.first("x-compaction-reason")) for answer in answers]
    first = outcomes.index(("none", "shortened-refused"))
    assert set(outcomes[first:]) == {("none", "shortened-refused")}
    last = answers[-1].head
    assert last.first("x-compaction-tokens-before") == last.first("x-compaction-tokens-after")


async def test_a_stream_is_helped_as_well(serve, fresh):
    sent = [body(history, stream=True) for history in HISTORIES]
    fresh.script = accept_only(sent, text_turn("Go on."))
    async with serve(fresh.url, config=settings()) as proxy:
        answers = [await ask(proxy, each, headers=KEY) for each in sent]
    assert {answer.status for answer in answers} == {200}
    assert all(answer.body.data.rstrip().endswith(b"[DONE]") for answer in answers)


async def test_a_request_that_is_invalid_either_way_gets_the_first_error(serve, fresh):
    """It is the client's request that is wrong: the history is shortened as before once that is mended."""
    *before, last = SENT["chat"]

    def script(request):
        if len(request.body) == len(last) or request.body in before or not is_spoiled:
            return answer({"error": {"message": "the client's own"}}, 400) if is_spoiled else text_turn("Go on.")
        return answer(INVALID, 400)

    is_spoiled = False
    fresh.script = script
    async with serve(fresh.url, config=settings()) as proxy:
        for sent in before:
            await ask(proxy, sent, headers=KEY)
        is_spoiled, asked = True, len(fresh.requests)
        refused = [await ask(proxy, last, headers=KEY) for _ in range(3)]
        is_spoiled, tries = False, fresh.requests[asked:]
        mended = await ask(proxy, last, headers=KEY)
    assert [(each.status, json.loads(each.body.data)) for each in refused] == [(400, INVALID)] * 3
    assert [request.body == last for request in tries] == [False, True] * 3
    assert mended.status == 200
    assert mended.head.first("x-compaction") in ("applied", "created")


@pytest.mark.seconds
async def test_a_history_that_does_not_fit_is_not_sent_unshortened(serve, fresh):
    fresh.script = accept_only(SENT["chat"], text_turn("Go on."))
    config = settings({"name": "small", "models": ["*"], "base_url": fresh.url, "window": 12_000})
    async with serve(None, config={**config, "upstreams": config["upstreams"][:1]}) as proxy:
        answers = [await ask(proxy, sent, headers=KEY) for sent in SENT["chat"]]
        assert log_of(proxy, "failed-open") == []
    assert answers[-1].status == 400
    assert json.loads(answers[-1].body.data) == INVALID
    assert fresh.requests[-1].body != SENT["chat"][-1]
