"""The work of `test_servers.py` in the other two APIs, before llama.cpp's server, which speaks all three."""

import json

import pytest

from tests.end_to_end.servers.roster import LLAMA_CPP
from tests.end_to_end.servers.work import ANSWER, WORK
from tests.support import http_client
from tests.support.agent import turns
from tests.support.apis import each_other_api
from tests.support.proxy_client import log_of, request

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

HISTORY = [{**message, "content": message["content"] or None} for message in WORK]


# How each asks for a short answer, and ends its stream.
BOUND = {"messages": "max_tokens", "responses": "max_output_tokens"}
ENDED = {"messages": b"message_stop", "responses": b"response.completed"}


@pytest.fixture(scope="module")
def server():
    if reason := LLAMA_CPP.missing:
        pytest.skip(reason)
    return LLAMA_CPP


@each_other_api
async def test_a_work_longer_than_the_window_is_done_within_it(server, proxy, api):
    done, prompts = [], []
    for at, history in enumerate(turns(HISTORY)):
        sent = api.write(
            history, **{"model": server.model, BOUND[api.name]: ANSWER, "temperature": 0, "stream": bool(at % 2)}
        )
        about = request(target=f"/v1{api.path}", body=sent, headers={"connection": "close"})
        answer = await http_client.send(proxy.origin, about)
        assert answer.status == 200, answer.body.data[:1000]
        assert answer.body.whole
        assert not at % 2 or ENDED[api.name] in answer.body.data
        done.append(answer.head.first("x-compaction"))
        if not at % 2:
            prompts.append(prompt_of(json.loads(answer.body.data)["usage"]))
    assert all(prompt + ANSWER <= server.window for prompt in prompts)
    assert 2 <= done.count("created") <= len(done) / 2
    assert log_of(proxy, "refused-for-size") == []


def prompt_of(usage):
    return usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)
