"""Requests and summary calls that are under way while the configuration, and an upstream in it, changes."""

import asyncio
from contextlib import asynccontextmanager
from itertools import count

import pytest

from proxy.config.loading import load
from proxy.server import config_watch
from proxy.server.config_watch import ConfigSource, watch_file
from tests.support.agent import Agent
from tests.support.compacting_proxy import settings
from tests.support.proxy_client import ask, chat, faults_of, log_of, open_line, reload, request, until
from tests.support.scripted_upstream import pace_turn, text_turn
from tests.support.summary_model import (
    BEYOND,
    NEAR,
    OVER,
    SEEN,
    SMALL_WINDOW_SETTINGS,
    WINDOW,
    account,
    answer_late,
    body_has_summary,
    model,
    summary_calls,
)

KEY = {"authorization": "Bearer sk-a"}
NUMBERS = count(1)


def changed(proxy):
    """Its configuration with another setting of every upstream, so that each gets new connections."""
    upstreams = [{**upstream, "connect_seconds": 10 + next(NUMBERS) / 100} for upstream in proxy.config["upstreams"]]
    return {**proxy.config, "upstreams": upstreams}


def config_for(up, **more):
    return {"upstreams": [{"base_url": up.url, "window": 1_000_000, **more}], "log": {"format": "json"}}


@asynccontextmanager
async def summarizing(serve, up, **summary):
    """A proxy in front of a small window, and an agent whose history needs summaries."""
    config = settings(default={**SMALL_WINDOW_SETTINGS, "summary": {**SMALL_WINDOW_SETTINGS["summary"], **summary}})
    config["upstreams"][-1] = {"base_url": up.url, "window": WINDOW, "retries": 0}
    async with serve(None, config=config) as proxy:
        yield proxy, Agent(proxy, up, "sk-a")


async def test_what_an_empty_file_and_an_open_address_mean_is_in_the_log(serve, tmp_path):
    file = tmp_path / "proxy.yaml"
    file.touch()
    environment = {"COMPACTION_PROXY_LOG__FORMAT": "json"}
    async with serve(None, "--config", str(file), "--host", "0.0.0.0", environment=environment) as proxy:
        await until(lambda: len(log_of(proxy, "config-warning")) == 2)
        empty, is_open = log_of(proxy, "config-warning")
    assert (empty["setting"], is_open["setting"]) == (str(file), "listen.host")
    assert "the defaults are in force" in empty["why"]
    assert "whoever reaches it may send requests" in is_open["why"]


@pytest.mark.seconds
async def test_a_request_with_an_unfinished_body_finishes_on_its_configuration(up, serve):
    up.script = text_turn("Hi")
    async with serve(None, config=config_for(up)) as proxy:
        for path in ("/v1/chat/completions", "/v1/embeddings"):  # read whole, and passed on while it comes
            async with open_line(proxy) as line:
                sent = request(target=path, headers=KEY, body=chat())
                await line.write(sent[:-10])
                await asyncio.sleep(0.1)
                await reload(proxy, changed(proxy))
                await line.write(sent[-10:])
                assert (await line.answer()).status == 200
        assert await faults_of(proxy) == []


async def test_a_file_that_changes_before_the_watch_begins_is_read(tmp_path):
    file = tmp_path / "proxy.yaml"
    file.write_text("log: {level: info}\n")
    source = ConfigSource(lambda: load(file, {}), file)
    started = source.read().config
    file.write_text("listen: {max_in_flight: 9}\n")
    applied = asyncio.Queue()

    async def apply(config):
        await applied.put(config.listen.max_in_flight)
        return True

    async with asyncio.timeout(30):
        watching = asyncio.create_task(watch_file(source, started, apply, asyncio.Event(), lambda _: None))
        assert await applied.get() == 9
    watching.cancel()


@pytest.mark.parametrize(("is_requested", "places"), [(False, [5, 8]), (True, [2, 5, 8])])
async def test_a_change_is_read_once_it_has_lasted_for_a_moment_or_at_once_if_asked_for(
    monkeypatch, is_requested, places
):
    monkeypatch.setattr(config_watch, "FILE_SECONDS", 0.0)
    stamps, read, requested = iter([1, 1, 2, 3, 3, 3, 1, 1]), [], asyncio.Event()
    if is_requested:
        requested.set()

    def read_stamp():
        read.append(next(stamps))
        return read[-1]

    seen = []
    async for _ in config_watch._await_changes(read_stamp, 1, requested):
        seen.append(len(read))
        if len(read) == 8:
            break
    assert seen == places


@pytest.mark.seconds
async def test_old_connections_are_closed_after_the_last_request_on_them(up, serve):
    up.script = pace_turn(text_turn("one two three four five six"), 0.1)
    async with serve(None, config=config_for(up)) as proxy:
        asked = asyncio.create_task(ask(proxy, chat(stream=True)))
        await up.wait_for_request()
        for _ in range(3):
            await reload(proxy, changed(proxy))
        assert up.connections == 1
        assert b"[DONE]" in (await asked).body.data
        await until(lambda: up.connections == 0)


@pytest.mark.seconds
async def test_a_turn_that_waits_for_a_summary_is_sent_after_a_reload(up, serve):
    """The connections of its configuration are idle between the summary's answer and its own call."""
    up.script = model(answer_late(text_turn(account()), 1.0))
    async with summarizing(serve, up, wait=5) as (proxy, agent):
        await agent.send(SEEN)
        turn = asyncio.create_task(agent.send(BEYOND))
        await until(lambda: summary_calls(up))
        await reload(proxy, changed(proxy))
        beyond = await turn
        assert beyond.answer.status == 200
        assert beyond.compaction == "created"
        assert body_has_summary(up.requests[-1])
        assert await faults_of(proxy) == []


@pytest.mark.seconds
async def test_a_summary_call_that_outlives_a_reload_is_finished_and_used(up, serve):
    """Its first answer is of no use, so that it has to call again after the reload."""
    up.script = model(answer_late(text_turn("no"), 1.0))
    async with summarizing(serve, up) as (proxy, agent):
        await agent.send(SEEN)
        await agent.send(NEAR)
        await until(lambda: summary_calls(up))
        up.script = model()
        await reload(proxy, changed(proxy))
        (ended,) = await until(lambda: log_of(proxy, "summary-ended"))
        assert (ended["outcome"], ended["tries"]) == ("made", 2)
        assert (await agent.send(OVER)).compaction == "created"
        assert body_has_summary(up.requests[-1])
        assert await faults_of(proxy) == []


async def test_a_setting_without_effect_is_warned_of_at_the_start_and_after_a_reload(serve, up):
    config = {"upstreams": [{"base_url": up.url}], "transcripts": {"keep": "off", "required": True}}
    async with serve(None, config={**config, "log": {"format": "json"}}) as proxy:
        (line,) = await until(lambda: log_of(proxy, "config-warning"))
        assert (line["level"], line["setting"]) == ("warning", "transcripts.required")
        assert "has no effect" in line["why"]
        await reload(proxy, changed(proxy))
        assert len(await until(lambda: log_of(proxy, "config-warning")[1:])) == 1
