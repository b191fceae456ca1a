"""The work of `test_servers.py` in the other two APIs, before llama.cpp's server, which speaks all three."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.end_to_end.servers.roster import LLAMA_CPP
from tests.end_to_end.servers.work import ANSWER, WORK
from tests.support import http_client, messages_api, responses_api
from tests.support.agent import turns
from tests.support.proxy_client import log_of, request

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

HISTORY = [{**message, "content": message["content"] or None} for message in WORK]


@dataclass(frozen=True)
class Api:
    path: str
    write: Callable[..., bytes]
    bound: str
    ended: bytes


APIS = [
    Api("/v1/messages", messages_api.request, "max_tokens", b"message_stop"),
    Api("/v1/responses", responses_api.request, "max_output_tokens", b"response.completed"),
]


@pytest.fixture(scope="module")
def server():
    if reason := LLAMA_CPP.missing:
        pytest.skip(reason)
    return LLAMA_CPP


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.path)
async def test_a_work_longer_than_the_window_is_done_within_it(server, proxy, api):
    done, prompts = [], []
    for at, history in enumerate(turns(HISTORY)):
        sent = api.write(
            history, **{"model": server.model, api.bound: ANSWER, "temperature": 0, "stream": bool(at % 2)}
        )
        about = request(target=api.path, body=sent, headers={"connection": "close"})
        answer = await http_client.send(proxy.origin, about)
        assert answer.status == 200, answer.body.data[:1000]
        assert answer.body.whole
        assert not at % 2 or api.ended in answer.body.data
        done.append(answer.head.first("x-compaction"))
        if not at % 2:
            prompts.append(prompt_of(json.loads(answer.body.data)["usage"]))
    assert all(prompt + ANSWER <= server.window for prompt in prompts)
    assert 2 <= done.count("created") <= len(done) / 2
    assert log_of(proxy, "refused-for-size") == []


def prompt_of(usage):
    return usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)
