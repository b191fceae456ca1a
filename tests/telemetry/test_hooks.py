"""Hooks call a real server. Whatever that does delays no request."""

import asyncio
import base64

import pytest

from proxy.events import CompactionStarted, SizeRefused
from proxy.telemetry.hooks import Hook, Receiver
from proxy.upstream.client import find_proxy
from tests.support.agent import Agent
from tests.support.compacting_proxy import SMALL, WIDE, WORK, metric
from tests.support.proxy_client import log_of, until
from tests.support.scripted_upstream import Upstream, answer, close, hang, pause, raw, text_turn

REFUSED = SizeRefused("cp-1", "openai", "input", None, helped=False)


def make_hook(url, warn, seconds=5.0):
    return Hook(("refused-for-size",), Receiver("hook", url, seconds, warn, find_proxy(url)))


async def complaint(url, seconds=5.0):
    """What the log says of a hook that was called."""
    found = []
    make_hook(url, found.append, seconds)(REFUSED)
    await until(lambda: found)
    return found[0]


def hook_config(up, *hooks):
    return {
        "upstreams": [{**WIDE, "base_url": up.url}],
        "policies": {"default": SMALL},
        "hooks": list(hooks),
        "log": {"format": "json"},
    }


async def test_urls_are_called_and_one_that_fails_or_hangs_holds_up_no_other(serve):
    async with Upstream(text_turn("Go on.")) as up, Upstream(answer(b"")) as listener, Upstream(hang()) as silent:
        absent = {"url": "http://127.0.0.1:1/hook"}
        hanging = {"url": silent.origin, "seconds": 0.2}
        url = {"events": ["compaction-started", "compaction-ended"], "url": f"{listener.origin}/hook"}
        async with serve(None, config=hook_config(up, absent, hanging, url)) as proxy:
            step = await Agent(proxy, up, "sk-a").send(WORK)
            await until(lambda: len(listener.requests) == 2)
            await asyncio.gather(*(request.end() for request in listener.requests))
            await until(lambda: len(log_of(proxy, "hook-failed")) == 2)
            assert await metric(proxy, "store_faults_total") == 0
    event = listener.requests[1].json
    assert step.compaction == "created"
    assert (event["tokens_before"], event["tokens_after"]) == step.tokens
    assert [request.json["event"] for request in listener.requests] == ["compaction-started", "compaction-ended"]
    assert "hook 127.0.0.1 failed: ConnectionRefusedError" in proxy.output
    assert "hook 127.0.0.1 failed: TimeoutError" in proxy.output


@pytest.mark.parametrize("status", [302, 307, 500])
async def test_a_refusal_is_reported_without_the_path_and_a_redirect_is_not_followed(status):
    async with Upstream(answer(b"")) as elsewhere:
        refusal = answer(b"", status, [("location", f"{elsewhere.origin}/admin")])
        async with Upstream(refusal) as listener:
            assert await complaint(f"{listener.origin}/services/T0/sk-canary") == f"hook 127.0.0.1 answered {status}"
        assert not elsewhere.requests


async def test_a_url_gets_its_own_credentials_and_none_of_netrc_and_no_complaint_quotes_them(monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("default login ann password sk-canary\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with Upstream(answer(b"", 500)) as listener:
        assert await complaint(listener.origin) == "hook 127.0.0.1 answered 500"
        assert await complaint(listener.origin.replace("//", "//bob:sk-canary@")) == "hook 127.0.0.1 answered 500"
        credentials = [request.header("authorization") for request in listener.requests]
    assert credentials == [None, f"Basic {base64.b64encode(b'bob:sk-canary').decode()}"]


async def test_a_url_is_called_by_the_proxy_of_the_environment(monkeypatch):
    async with Upstream(answer(b"", 407)) as way:
        monkeypatch.setenv("http_proxy", way.origin)
        monkeypatch.setenv("no_proxy", "")
        assert await complaint("http://hooks.example/services") == "hook hooks.example answered 407"
        assert way.requests[0].target == "http://hooks.example/services"


async def test_a_url_that_answers_byte_by_byte_is_left_when_its_time_is_up():
    async with Upstream(raw(b"HTTP/1.1 200 OK\r\nx: ", *[pause(0.1), b"a"] * 100)) as slow:
        assert await complaint(slow.origin, seconds=0.5) == "hook 127.0.0.1 failed: TimeoutError"


async def test_after_an_invalid_answer_the_next_event_is_still_delivered():
    found = []
    async with Upstream(raw(b"\x00 what is this\r\n\r\n", close())) as listener:
        hook = make_hook(listener.origin, found.append)
        hook(REFUSED)
        await until(lambda: found)
        hook(REFUSED)
        await until(lambda: len(listener.requests) == 2)


async def test_events_beyond_the_queue_are_dropped_and_reported_once_without_waiting():
    found = []
    async with Upstream(hang()) as silent:
        hook = make_hook(silent.origin, found.append, seconds=30.0)
        hook(REFUSED)
        await until(lambda: silent.requests)
        for _ in range(1_500):
            hook(REFUSED)
        assert found == ["hook 127.0.0.1 is slow: 1000 events are waiting, further ones are dropped"]
        hook.close()


def test_a_hook_gets_only_the_events_it_asks_for():
    make_hook("http://127.0.0.1:1", pytest.fail)(CompactionStarted("c0ffee", "default", "stride", 100))
