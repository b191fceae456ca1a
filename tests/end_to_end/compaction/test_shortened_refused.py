"""An upstream that calls a shortened history invalid gets it as the client sent it, and the client sees no error."""

import pytest

from tests.support.agent import reading, turns
from tests.support.apis import APIS, KEY, MESSAGES, each_api
from tests.support.compacting_proxy import metric, settings
from tests.support.proxy_client import ask, log_of, until
from tests.support.scripted_upstream import answer

pytestmark = pytest.mark.asyncio(loop_scope="module")

HISTORIES = list(turns(reading(30)))
SENT = {api.name: [api.write(history) for history in HISTORIES] for api in APIS}
INVALID = {
    "error": {"message": "messages.7: this is against a rule that nobody has heard of", "type": "invalid_request"}
}


def accept_only(known, accepted, *, status=400):
    """An upstream that takes no other bodies than these."""
    return lambda request: accepted if request.body in known else answer(INVALID, status)


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
    marked = 1 if api is MESSAGES else 0  # the first body with cache marks of the proxy
    assert sum(request.body not in SENT[api.name] for request in fresh.requests) == 2 + marked
    assert [line["helped"] for line in lines] == [True, True]
    assert counted == 2
    outcomes = [(answer.head.first("x-compaction"), answer.head.first("x-compaction-reason")) for answer in answers]
    first = outcomes.index(("none", "shortened-refused"))
    assert set(outcomes[first:]) == {("none", "shortened-refused")}
    last = answers[-1].head
    assert last.first("x-compaction-tokens-before") == last.first("x-compaction-tokens-after")


@pytest.mark.parametrize("words", ["Your credit balance is too low.", "image exceeds 5 MB maximum: 6291456 bytes"])
async def test_an_error_that_no_other_history_mends_is_delivered_as_it_came(serve, fresh, words):
    """Also with status 400: it is not taken for one that is not understood, and the whole history is not sent."""
    fresh.script = lambda _: answer({"error": {"message": words}}, 400)
    sent = SENT[MESSAGES.name][-1]
    async with serve(fresh.url, config=settings()) as proxy:
        refused = await ask(proxy, sent, MESSAGES.path, headers=KEY)
    assert (refused.status, len(fresh.requests)) == (400, 1)
    assert words.encode() in refused.body.data
