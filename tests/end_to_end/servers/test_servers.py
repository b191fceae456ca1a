"""Real servers behind the proxy: their own tokenizer, their own window, their own refusal, their own cache and stream.

An agent reads one file after the other, turn by turn, until its history is several times as long as the window. The
proxy is set up as docs/upstreams.md says, and with nothing else. What the model answers is nonsense (it is made here,
see `servers/programs/tiny.py`), and does not matter: the next turn of the work is fixed.
"""

import asyncio
import json
import sys
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
import pytest_asyncio

from tests.end_to_end.servers.recipes import upstream_of
from tests.end_to_end.servers.roster import LLAMA_CPP, SERVERS, SMALL
from tests.end_to_end.servers.server import Running, Server
from tests.support import http_client
from tests.support.agent import reading, turns
from tests.support.apis import each_other_api
from tests.support.messages import body
from tests.support.proxy_client import data_of, log_of, request, streaming, until
from tests.support.running_proxy import Proxy

# Some servers refuse a message whose content is null.
WORK = [{**message, "content": message["content"] or ""} for message in reading(40)]
# Longer than a small window: as a first request it is sent before the server has told how large its window is.
SHORT = WORK[: 2 + 2 * 16]
ANSWER = 24
# How each of the other APIs asks for a short answer, and ends its stream.
BOUND = {"messages": "max_tokens", "responses": "max_output_tokens"}
ENDED = {"messages": b"message_stop", "responses": b"response.completed"}
CLOSE, CLOSE_AFTER_A_BLOCK = 0.05, 0.08  # of the server's own count; what a new block says is in words of the proxy
CACHED = 0.95
SOON = 5.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of the work, as its client saw it."""

    answer: http_client.Answer
    usage: dict[str, Any] | None

    @property
    def prompt(self) -> int:
        """As the server counted it."""
        return self.usage["prompt_tokens"]

    @property
    def cached(self) -> int:
        return self.usage["prompt_tokens_details"]["cached_tokens"]

    def header(self, name: str) -> str | None:
        return self.answer.head.first(f"x-compaction{name}")

    @property
    def counted(self) -> int | None:
        """As the proxy expected it."""
        tokens_text = self.header("-tokens-after")
        return int(tokens_text) if tokens_text else None


@pytest.fixture(scope="module", params=SERVERS, ids=lambda server: server.name)
def server(request) -> Server:
    if reason := request.param.missing:
        pytest.skip(reason)
    return request.param


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def finished_work(server: Server, proxy: Proxy) -> list[Step]:
    """The whole work, every other turn as a stream."""
    steps = []
    for at, messages in enumerate(turns(WORK)):
        steps.append(await step(proxy.origin, server, messages, stream=bool(at % 2)))
    return steps


def unknowing(server: Server, running: Running) -> dict[str, Any]:
    """The same without what it says about the window."""
    known = upstream_of(server.name, at=running.origin)["upstreams"]
    return {"upstreams": [{"base_url": each["base_url"]} for each in known], "log": {"format": "json"}}


def asking(server: Server, messages, **more) -> bytes:
    usage = {"stream_options": {"include_usage": True}} if more.get("stream") else {}
    return body(messages, model=server.model, **{"max_tokens": ANSWER, "temperature": 0} | usage | more)


async def step(origin: str, server: Server, messages, **more) -> Step:
    answer = await http_client.send(
        origin, request(body=asking(server, messages, **more), headers={"connection": "close"})
    )
    assert answer.status == 200, answer.body.data[:1000]
    assert answer.body.whole
    events = data_of(answer.body.data) if more.get("stream") else [json.loads(answer.body.data)]
    return Step(answer, next((event["usage"] for event in events if "usage" in event), None))


async def test_a_work_longer_than_the_window_is_done_within_it(server: Server, finished_work: list[Step]):
    assert all(each.prompt + ANSWER <= server.window for each in finished_work if each.usage)
    made = [each for each in finished_work if each.header("") == "created"]
    assert 2 <= len(made) <= len(finished_work) / 2
    assert int(finished_work[-1].header("-tokens-before")) > 1.2 * server.window


async def test_nothing_is_refused_if_the_window_is_known_in_time(proxy: Proxy, finished_work: list[Step]):
    assert log_of(proxy, "refused-for-size") == []
    assert [line for line in log_of(proxy, "request") if line["status"] != 200] == []


async def test_tokens_are_counted_as_the_server_counts_them(finished_work: list[Step]):
    """From the second time on that it tells: at first its tokenizer is not known."""
    known = [each for each in finished_work if each.counted and each.usage][1:]
    assert len(known) > 10
    for each in known:
        is_new = each.header("") == "created"
        assert abs(each.counted - each.prompt) / each.prompt < (CLOSE_AFTER_A_BLOCK if is_new else CLOSE)


async def test_usage_of_streams_is_the_servers_own(server: Server, finished_work: list[Step]):
    assert all(bool(each.usage) is server.tells_usage_of_streams for each in finished_work[1::2])


async def test_tokens_that_the_server_has_read_are_not_read_again(server: Server, finished_work: list[Step]):
    """Unless a block is made: the upstream's own cache is the judge of whether bytes were forwarded again."""
    if not server.tells_cached:
        pytest.skip("it does not tell what it had in its cache")
    kept = [(before, after) for before, after in pairwise(finished_work) if after.header("") != "created"]
    assert all(after.cached >= CACHED * before.prompt for before, after in kept)


@each_other_api
async def test_the_same_work_is_done_in_the_other_apis(server: Server, proxy: Proxy, api):
    if server is not LLAMA_CPP:
        pytest.skip("only llama.cpp speaks all three")
    done, prompts = [], []
    for at, history in enumerate(turns(reading(40))):
        bound = {BOUND[api.name]: ANSWER, "temperature": 0, "stream": bool(at % 2)}
        sent = api.write(history, model=server.model, **bound)
        about = request(target=f"/v1{api.path}", body=sent, headers={"connection": "close"})
        answer = await http_client.send(proxy.origin, about)
        assert answer.status == 200, answer.body.data[:1000]
        assert answer.body.whole
        assert not at % 2 or ENDED[api.name] in answer.body.data
        done.append(answer.head.first("x-compaction"))
        if not at % 2:
            usage = json.loads(answer.body.data)["usage"]
            prompts.append(usage["input_tokens"] + usage.get("cache_read_input_tokens", 0))
    assert all(prompt + ANSWER <= server.window for prompt in prompts)
    assert 2 <= done.count("created") <= len(done) / 2
    assert log_of(proxy, "refused-for-size") == []


async def test_a_history_that_is_too_long_from_the_start_is_still_answered(serve, server: Server, tmp_path_factory):
    """The window is not known yet: the refusal tells it."""
    if not server.refuses:
        pytest.skip("it refuses nothing")
    folder = tmp_path_factory.mktemp("small")
    await asyncio.to_thread(server.make_model, folder)
    async with server.running(folder, SMALL) as small, serve(None, config=unknowing(server, small)) as proxy:
        assert (await http_client.send(small.origin, request(body=asking(server, SHORT)))).status == 400
        first = await step(proxy.origin, server, SHORT)
        again = await step(proxy.origin, server, SHORT)
        (refused,) = await until(lambda: log_of(proxy, "refused-for-size"))
    assert (refused["limit"], refused["helped"]) == (SMALL, True)
    assert (first.header("-reason"), again.header("")) == ("overflow_retry", "applied")
    assert first.prompt == again.prompt < SMALL


async def test_a_stream_arrives_event_by_event(server: Server, proxy: Proxy):
    now = asyncio.get_running_loop().time
    asked = now()
    async with streaming(proxy, asking(server, WORK[:2], stream=True, max_tokens=1_000)) as line:
        arrivals = [now() async for _ in pieces(line)]
    assert arrivals[-1] - arrivals[0] > (arrivals[-1] - asked) / 2


async def pieces(line):
    while piece := await line.reader.read(1 << 16):
        yield piece
        if b"[DONE]" in piece:
            return


async def test_a_client_that_leaves_stops_the_server(server: Server, running: Running, proxy: Proxy):
    if server.name != "llama.cpp":
        pytest.skip("it does not tell what it is doing")
    async with streaming(proxy, asking(server, WORK[:2], stream=True, max_tokens=6_000)) as line:
        await line.until(b"data: ")
        assert await is_busy(running)
        line.leave()
        async with asyncio.timeout(SOON):
            while await is_busy(running):  # noqa: ASYNC110 (another process is looked at)
                await asyncio.sleep(0.01)


async def is_busy(running: Running) -> bool:
    slots = await http_client.send(running.origin, request("GET", "/slots"), method="GET")
    return json.loads(slots.body.data)[0]["is_processing"]


async def test_doctor_names_it_and_its_window(server: Server, running: Running, tmp_path):
    command = [sys.executable, "-m", "proxy", "doctor", "--upstream", running.url, "--model", server.model]
    process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env={}, stdout=asyncio.subprocess.PIPE)
    text = (await process.communicate())[0].decode()
    assert process.returncode == 0, text
    assert f"default: {server.known_as or 'unknown server'}" in text
    # A model of a few kilobytes may have said its line before the first byte is read.
    assert "streams unbuffered" in text or "too fast to tell" in text
    assert f"windows reported: {f'{server.model} {server.window}' if server.tells_window else 'none'}" in text
