"""Upstreams are asked for their windows where the answer counts, for each credential apart, beside the requests."""

import asyncio
import gzip
import json

import pytest
from msgspec.structs import replace

from proxy.config.settings import Upstream as Settings
from proxy.decide.actions import ProbeWindow
from proxy.decide.remember import recognize
from proxy.events import WindowSmall
from proxy.serve import request_context
from proxy.serve.request_context import WindowProbe, make_window_scope
from proxy.shorten.economics import Window
from proxy.shorten.rules import Facts
from proxy.store.memory_store import MemoryStore
from proxy.upstream.client import Call, Client
from tests.support.compaction_worker import Driver, Worker
from tests.support.gateway_in_process import GatewayInProcess
from tests.support.messages import body, parse_request, user
from tests.support.proxy_client import until
from tests.support.scripted_upstream import Upstream, answer, by_path, hang, stream, text_turn, wait_for

VLLM = answer({"data": [{"id": "qwen3", "max_model_len": 32_768}]})
OURS = (("authorization", "Bearer sk-a"), ("cookie", "c=1"), ("x-request", "1"))
THEIRS = (("authorization", "Bearer sk-b"),)
NOTHING = answer({"error": "what?"}, status=404)


@pytest.fixture
async def up():
    async with Upstream(by_path({"/v1/models": VLLM}, NOTHING)) as upstream:
        yield upstream


@pytest.fixture
async def client(up):
    async with Client(Settings(base_url=up.url), lambda _: None) as opened:
        yield opened


def calling(headers):
    return Call("POST", "/chat/completions", "", headers, b"")


def scope(client, model, headers):
    return make_window_scope(client.upstream, model, calling(headers))


async def probe_window(probe, client, model="qwen3", headers=OURS):
    probe.start(client, calling(headers), scope(client, model, headers))
    await probe._probing.wait_idle()
    return probe.find(scope(client, model, headers))


@pytest.mark.parametrize(("tokens", "is_asked"), [(2_048, False), (2_049, True)])
def test_a_request_larger_than_the_smallest_window_asks_for_its_window(tokens, is_asked):
    words = "x" * (3 * tokens - len(body(user(""))))
    driver = Driver(Worker(), parse_request(body(user(words))))
    assert isinstance(next(recognize(driver.asked)), ProbeWindow) == is_asked


class ProbedDriver(Driver):
    """Counts the probes of its request."""

    probes = 0

    async def probe_window(self):
        self.probes += 1


@pytest.mark.parametrize(
    ("origin", "command", "tokens", "probes"),
    [
        *(("bundled", "Go on.", 20_000, 0), ("bundled", "Go on.", 40_000, 0), ("bundled", "Go on.", 60_000, 1)),
        *(("bundled", "/compact", 20_000, 1), ("bundled", "/compact", 40_000, 1), ("bundled", "/compact", 60_000, 1)),
        *(("config", "Go on.", 60_000, 0), ("config", "/compact", 60_000, 0)),
    ],
)
def test_the_window_counts_if_a_history_is_near_its_threshold_or_its_user_asks_to_compact_it(
    origin, command, tokens, probes
):
    """With 128,000 tokens a history is looked up from 26,875 on, and a summary may be due from 53,750 on."""
    sent = body(user("Begin.") + user("word " * (4 * tokens // 5)) + user(command))
    driver = ProbedDriver(Worker(facts=Facts(usable_tokens=128_000)), parse_request(sent))
    driver.asked = replace(driver.asked, window=replace(driver.asked.window, origin=origin))
    driver.prepare()
    assert driver.probes == probes


async def test_a_window_reported_by_an_upstream_is_known_from_then_on(client):
    assert await probe_window(WindowProbe(), client) == Window(total=32_768, origin="live")


async def test_it_is_asked_once_for_each_model_and_each_credential(client, up):
    probe = WindowProbe()
    await probe_window(probe, client)
    once = len(up.requests)
    await probe_window(probe, client)
    assert len(up.requests) == once
    assert probe.find(scope(client, "qwen3", THEIRS)) is None
    assert probe.find(scope(client, "llama", OURS)) is None
    await probe_window(probe, client, headers=THEIRS)
    await probe_window(probe, client, "llama")
    assert len(up.requests) == 3 * once


async def test_it_is_asked_again_after_a_while(client, up, monkeypatch):
    probe = WindowProbe()
    await probe_window(probe, client)
    once = len(up.requests)
    monkeypatch.setattr(WindowProbe, "INTERVAL_SECONDS", 0.0)
    up.script = by_path({"/v1/models": answer({"data": [{"id": "qwen3", "max_model_len": 65_536}]})}, NOTHING)
    assert await probe_window(probe, client) == Window(total=65_536, origin="live")
    assert len(up.requests) == 2 * once


async def test_only_the_clients_credentials_go_along(client, up):
    await probe_window(WindowProbe(), client)
    sent = {(each.method, each.body, each.header("authorization"), each.header("x-request")) for each in up.requests}
    assert sent == {("GET", b"", "Bearer sk-a", None)}


@pytest.mark.parametrize(
    "odd",
    [
        answer(b"not JSON"),
        answer(gzip.compress(json.dumps({"data": []}).encode()), headers=[("content-encoding", "gzip")]),
        answer({"data": [{"id": "qwen3", "max_model_len": 1}]}, status=401),
        answer(b'{"data": []}' + b" " * (WindowProbe.ANSWER_MAX_BYTES + 1)),
    ],
    ids=["text", "gzip", "401", "huge"],
)
async def test_an_odd_answer_teaches_nothing(client, up, odd):
    up.script = odd
    assert await probe_window(WindowProbe(), client) is None


async def test_an_upstream_that_is_not_there_teaches_nothing():
    async with Client(Settings(base_url="http://127.0.0.1:9/v1", retries=0), lambda _: None) as client:
        assert await probe_window(WindowProbe(), client) is None


async def test_no_request_waits_for_a_silent_upstream(client, up):
    up.script = hang()
    probe = WindowProbe()
    probe.start(client, calling(OURS), scope(client, "qwen3", OURS))
    await up.wait_for_request()
    assert probe.find(scope(client, "qwen3", OURS)) is None
    up.script = NOTHING
    await probe.close()


@pytest.mark.parametrize(
    ("url", "model", "is_asked"),
    [
        ("https://api.openai.com/v1", "gpt-4o", False),
        ("https://api.openai.com/v1", "a-model-nobody-knows", True),
        ("http://localhost:8000/v1", "gpt-4o", True),
        ("http://ollama:11434/v1", "gpt-4o", True),
        ("http://gpu.lan/v1", "gpt-4o", True),
        ("http://10.0.0.7/v1", "gpt-4o", True),
        ("http://[::1]:8000/v1", "gpt-4o", True),
        ("http://8.8.8.8/v1", "gpt-4o", False),
    ],
)
def test_a_private_server_is_asked_before_the_table_and_a_public_one_only_for_unknown_models(url, model, is_asked):
    assert request_context._is_worth_probing(Settings(base_url=url), model) == is_asked


async def test_the_probe_remembers_a_bounded_number(client, monkeypatch):
    monkeypatch.setattr(request_context, "REMEMBERED_MAX_BYTES", 4_000)
    probe = WindowProbe()
    for number in range(10):
        await probe_window(probe, client, f"model-{number}" * 20)
        assert probe._probed_at.bytes <= 4_000
        assert len(probe._probed_at) <= 3


class LeavingStore(MemoryStore):
    relaying = None

    async def write_fact(self, *fact, **more):
        relaying, self.relaying = self.relaying, None
        if relaying is not None:
            relaying.cancel()
            await asyncio.sleep(0)
        await super().write_fact(*fact, **more)


async def test_the_turn_of_a_client_that_leaves_while_the_probed_window_is_shared_is_accounted_for(tmp_path):
    talk = [{"role": "user", "content": f"question {number} " + "word " * 90} for number in range(60)]
    models = answer({"data": [{"id": "qwen3", "max_model_len": 22_000}]})
    script = by_path({"/v1/models": models, "/v1/chat/completions": text_turn("Hi.")}, answer({}, 404))
    store = LeavingStore()
    async with Upstream(script) as up, GatewayInProcess(up, tmp_path, store, window=None) as served:
        await served.relay(served.call(talk, model="qwen3"))
        await until(lambda: served.services.window_probe.unshared.bytes)
        await served.notes.wait_idle()
        served.events.clear()
        store.relaying = relaying = asyncio.ensure_future(served.relay(served.call(talk, model="qwen3")))
        await asyncio.wait({relaying})
        assert store.relaying is None
        await served.notes.wait_idle()
        assert [turn.action for turn in served.turns] == ["none"]
        assert served.faults == []


async def test_a_window_that_is_told_while_a_request_is_under_way_is_shared_with_it(tmp_path):
    talk = [{"role": "user", "content": f"question {number} " + "word " * 300} for number in range(120)]
    is_told = asyncio.Event()
    turn = stream(wait_for(is_told), *text_turn("Hi.").frames(usage=False, model="qwen3"))
    script = by_path({"/v1/models": VLLM, "/v1/chat/completions": turn}, NOTHING)
    async with Upstream(script) as up, GatewayInProcess(up, tmp_path, window=None) as served:
        relaying = asyncio.ensure_future(served.relay(served.call(talk, model="qwen3")))
        await until(lambda: served.services.window_probe.unshared.bytes)
        is_told.set()
        await relaying
        await served.notes.wait_idle()
        assert not served.services.window_probe.unshared.bytes


@pytest.mark.parametrize(
    ("tokens", "settings", "told"),
    [
        (31_999, {}, [("up", "qwen3", 31_999)]),
        (32_000, {}, []),
        (31_999, {"policy": "default"}, []),
        (31_999, {"policy": "small-window"}, []),
    ],
)
async def test_an_operator_is_told_once_that_a_window_is_small(tokens, settings, told, tmp_path):
    reports = answer({"data": [{"id": "qwen3", "max_model_len": tokens}]})
    routes = {"/v1/models": reports, "/v1/chat/completions": text_turn("Go on.")}
    async with (
        Upstream(by_path(routes, NOTHING)) as up,
        GatewayInProcess(up, tmp_path, window=None, **settings) as served,
    ):
        for size in (3_000, 3_100, 3_200):
            await served.relay(served.call([{"role": "user", "content": "word " * size}], model="qwen3"))
            await served.notes.wait_idle()
            await served.services.window_probe._probing.wait_idle()
        small = [event for event in served.events if isinstance(event, WindowSmall)]
    assert [(event.upstream, event.model, event.window) for event in small] == told
