"""A day of an agent left alone, in the other two APIs: 150 turns, 300,000 tokens, before a window of 128,000.

The upstream counts two tokens for every seven bytes and refuses what is over its window. The bill is that of the
provider's own cache, beside the bill of the same run without a proxy before a window without end.
"""

import json
from dataclasses import replace

import pytest

from proxy.lab.demo.agent import sample
from tests.support.apis import MESSAGES, RESPONSES
from tests.support.cache_bills import BYTES_PER_TOKEN, MarkedBill, PrefixBill
from tests.support.proxy_client import ask, log_of
from tests.support.scripted_upstream import Upstream, answer, stream
from tests.support.summary_model import ASKED, account

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WINDOW = 128_000
REQUESTS = [[json.loads(message) for message in messages] for messages in sample().requests()]
TOO_LONG_CODES = {"messages": "invalid_request_error", "responses": "context_length_exceeded"}
TOO_LONG = f"prompt is too long: 128001 tokens > {WINDOW} maximum"


def write_marked(history, **more):
    """With what Claude Code asks for: marks on two blocks of the system prompt and on the last one, a large answer."""
    value = json.loads(MESSAGES.write(history, max_tokens=32_000, **more))
    mark = {"cache_control": {"type": "ephemeral"}}
    texts = ("cc_version=2.1.330;", "You are an agent.", value["system"])
    value["system"] = [{"type": "text", "text": text, **(mark if at else {})} for at, text in enumerate(texts)]
    value["messages"][-1]["content"][-1] |= mark
    return json.dumps(value).encode()


MOST_COST = 0.47
"""Of what the run costs without a proxy; .339 and .338 when this was written."""
MARKED = replace(MESSAGES, write=write_marked)


@pytest.mark.parametrize(("api", "make_bill"), [(MARKED, MarkedBill), (RESPONSES, PrefixBill)])
async def test_a_day_of_an_agent_left_alone(serve, api, make_bill):
    over, asked = [], []

    def script(request):
        if request.method != "POST":
            return answer({}, 404)
        tokens = int(len(request.body) / BYTES_PER_TOKEN)
        if tokens > WINDOW:
            over.append(tokens)
            return api.refuse(TOO_LONG, code=TOO_LONG_CODES[api.name])
        is_question = ASKED.encode() in request.body[-6_000:]
        asked.extend([request.body] if is_question else [])
        return stream(*api.events(account() if is_question else "Go on.", tokens))

    bill, untouched = make_bill(), make_bill()
    async with Upstream(script) as up:
        config = {"upstreams": [{"base_url": up.url, "window": WINDOW}], "log": {"format": "json"}}
        async with serve(None, config=config) as proxy:
            for history in REQUESTS:
                sent, before = api.write(history, stream=True), len(up.requests)
                found = await ask(proxy, sent, api.path, headers={"x-api-key": "sk-a"})
                assert found.status == 200
                untouched.add(sent)
                mine = [each for each in up.requests[before:] if each.body and each.body not in asked]
                bill.add(mine[-1].body)
                assert api.find_faults(mine[-1].body) == []
            made = log_of(proxy, "compaction-ended")
            assert log_of(proxy, "failed-open") == []
    assert len(sent) / BYTES_PER_TOKEN > 300_000
    assert over == []
    assert len(made) <= 18
    assert len(asked) <= 6
    assert bill.share >= 0.9  # 0.901 and 0.9025 when this was written
    assert bill.cost <= MOST_COST * untouched.cost
