"""Running it: health, metrics, logs, reload, workers, limits, and shutdown."""

import asyncio
import json
import os
import re
import resource
import signal
import socket
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from proxy.access.registry import Records, create_team_key
from tests.support.compacting_proxy import metric
from tests.support.process_template import MEASURING
from tests.support.proxy_client import (
    ask,
    chat,
    fault_of,
    log_of,
    open_line,
    page,
    reload,
    request,
    streaming,
    until,
    whole_log,
)
from tests.support.running_proxy import QUIET, Proxy, free_port, serving
from tests.support.scripted_upstream import DONE, Upstream, answer, delta, finish, hang, pause, stream, text_turn


def config_for(up, **blocks):
    return {"upstreams": [{"name": "lab", "base_url": up.url, **QUIET}], **blocks}


@asynccontextmanager
async def two_workers(serve, config):
    async with serve(None, "--workers", "2", config=config) as proxy:
        await until(lambda: len(log_of(proxy, "listening")) == 2)
        yield proxy


async def kill_workers(proxy):
    """Kill all, and wait for those that are started in their place."""
    before = len(log_of(proxy, "listening"))
    for worker in proxy.workers:
        os.kill(worker, signal.SIGKILL)
    await until(lambda: len(log_of(proxy, "listening")) == before + 2)


def limit_files(proxy, soft_limit):
    """Of the proxy and its workers: 0 is as good as a full disk."""
    for process in {proxy.process.pid, *proxy.workers}:
        resource.prlimit(process, resource.RLIMIT_FSIZE, (soft_limit, resource.RLIM_INFINITY))


async def read_state(proxy):
    ready = await page(proxy, "/health/ready")
    return ready.status, json.loads(ready.body.data)["state_writable"]


def is_running(pid):
    """False for a process that has ended, though the parent that is to collect it may not have done so."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_disk_that_takes_no_more_is_reported_and_the_proxy_stays_ready(proxy):
    limit_files(proxy, 0)
    assert await read_state(proxy) == (200, False)
    limit_files(proxy, resource.RLIM_INFINITY)
    assert await read_state(proxy) == (200, True)
    assert [*proxy.state.glob("tmp*")] == []


async def test_live_and_ready_answer_without_a_call(up, proxy):
    live, ready = await page(proxy, "/health/live"), await page(proxy, "/health/ready?verbose=1")
    assert (live.status, json.loads(live.body.data)) == (200, {"status": "live"})
    assert (ready.status, json.loads(ready.body.data)) == (
        200,
        {"status": "ready", "state_writable": True, "originals_writable": True},
    )
    assert (await page(proxy, "/health/live", "HEAD")).status == 200
    assert json.loads((await page(proxy, "/healthz")).body.data) == {"status": "live"}
    assert json.loads((await page(proxy, "/health")).body.data)["status"] == "ready"
    assert not up.requests
    assert (await whole_log(proxy)).count('"event":"request"') == 1, "health is asked for often: it is not logged"


CHATS = {"route": "/v1/chat/completions"}
COUNTED = [
    ("inflight", {}, 1),
    ("requests_total", {**CHATS, "status": "200", "outcome": "completed"}, 2),
    ("requests_total", {**CHATS, "status": "429", "outcome": "completed"}, 1),
    ("requests_total", {"route": "other", "status": "404", "outcome": "refused"}, 1),
    ("upstream_answers_total", {"upstream": "lab", "status": "429"}, 1),
    ("overhead_seconds_count", CHATS, 3),
    ("time_to_first_byte_seconds_count", CHATS, 3),
    ("request_bytes_total", CHATS, 2 * len(chat()) + len(chat(stream=True))),
]


async def test_metrics_count_requests(up, serve):
    async with serve(None, config=config_for(up)) as proxy:
        up.script = text_turn("Hi")
        await ask(proxy, chat())
        await ask(proxy, chat(stream=True))
        up.script = answer({"error": {}}, status=429)
        await ask(proxy, chat())
        await page(proxy, "/nothing")
        up.script = stream(delta(content="Hi"), hang())
        async with streaming(proxy) as line:
            await line.until(b"Hi")
            await asyncio.sleep(0.4)  # the loop has been looked at
            reply = await page(proxy, "/metrics")
            for name, labels, value in COUNTED:
                assert (name, await metric(proxy, name, **labels)) == (name, value)
            assert await metric(proxy, "overhead_seconds_bucket", **CHATS, le="0.00025") <= 3
            assert await metric(proxy, "loop_lag_seconds_count") >= 1
    assert reply.head.first("content-type") == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(reply.body.data.decode()))
    assert all(family.name.startswith("compaction_proxy_") and family.documentation for family in families)


async def test_every_request_is_one_line_with_its_id(up, proxy):
    up.script = text_turn("Hello")
    await ask(proxy, chat())
    refused = await ask(proxy, None, "/../nothing", method="GET")
    up.script = stream(delta(content="Hi"))
    broken = await ask(proxy, chat(stream=True))
    assert not broken.body.whole
    await until(lambda: log_of(proxy, "request", status=200)[1:])
    lines = [json.loads(line) for line in proxy.output.splitlines()]
    assert all({"timestamp", "level", "event"} <= line.keys() for line in lines)
    requests = [line for line in lines if line["event"] == "request"]
    assert [(line["status"], line["outcome"], line["level"]) for line in requests] == [
        (200, "completed", "info"),
        (404, "refused", "info"),
        (200, "upstream-broke", "warning"),
    ]
    assert len({line["request_id"] for line in requests}) == 3
    assert requests[1]["request_id"] == fault_of(refused)["request_id"]
    assert requests[0]["upstream"] == "default"
    assert requests[0]["bytes_out"] == len(json.dumps(text_turn("Hello").completion()).encode())


async def test_text_is_for_people(up, serve):
    async with serve(None, config=config_for(up, log={"format": "text"})) as proxy:
        await ask(proxy, chat())
        await until(lambda: "request_id=" in proxy.output)
        assert f"export OPENAI_BASE_URL={proxy.url}" in proxy.output
        (line,) = [line for line in proxy.output.splitlines() if "request_id=" in line]
        assert re.search(
            r"POST /v1/chat/completions 200 \d+ms scripted-1 \d+B -> \d+B none request_id=cp-\w{16} upstream=lab$", line
        )
        assert len(line) <= 130


@pytest.mark.parametrize("path", ["/chat/completions", "/embeddings", "/responses"])
async def test_every_answer_and_its_line_carry_one_id(proxy, path):
    reply = await ask(proxy, chat(messages=[{"role": "user", "content": "word " * 8_000}]), path)
    request_id, conversation = (reply.head.first(f"x-compaction-{name}") for name in ("request-id", "conversation"))
    (line,) = await until(lambda: log_of(proxy, "request", request_id=request_id))
    assert line.get("conversation") == conversation


@pytest.mark.parametrize(
    ("path", "body", "mode"),
    [
        ("/chat/completions", chat("m-1"), "bypass"),
        ("/chat/completions", b'{"messages": [], "model": "m-1"}', "auto"),
        ("/chat/completions", b'{"messages": [], "model": "m-1%s"}' % (b"1" * 5_000), "auto"),
        ("/responses", b'{"input": [], "model": "m-1", "previous_response_id": "resp_1"}', "auto"),
        ("/messages", b'{"model": "m-1", "messages": "\\ud800"}', "bypass"),
    ],
)
async def test_a_line_names_the_model_where_nothing_was_decided(up, proxy, path, body, mode):
    reply = await ask(proxy, body, path, headers={"x-compaction": mode})
    assert up.requests[-1].body == body
    assert reply.head.first("x-compaction") == {"bypass": "bypassed", "auto": "none"}[mode]
    assert reply.head.first("x-compaction-tokens-before") is None
    (line,) = await until(lambda: log_of(proxy, "request"))
    assert line["model"].startswith("m-1")
    assert len(line["model"]) <= 128


async def test_a_browser_finds_the_dashboard(proxy):
    home = await page(proxy, "/")
    assert (home.status, home.head.first("location")) == (302, "/admin/")


@pytest.mark.parametrize("path", ["/", "/health", "/metrics", "/nothing"])
async def test_no_page_reveals_versions_of_libraries(proxy, path):
    assert (await page(proxy, path)).head.all("server") == [b"compaction-proxy"]


@pytest.mark.seconds
async def test_on_sigterm_it_is_not_ready_at_once_and_open_streams_finish(up, serve):
    frames = [delta(content="Hel"), delta(content="lo"), finish(), DONE]
    up.script = stream(frames[0], pause(1), *frames[1:])
    async with serve(None, config=config_for(up)) as proxy:
        async with streaming(proxy) as line:
            await line.until(frames[0])
            proxy.process.terminate()
            await until(lambda: log_of(proxy, "draining", in_flight=1))
            ready = await page(proxy, "/health/ready")
            assert (ready.status, json.loads(ready.body.data)["status"]) == (503, "draining")
            assert (await page(proxy, "/health/live")).status == 200
            up.script = text_turn("one more")
            late = await ask(proxy, chat())
            assert (late.status, late.head.first("connection")) == (200, "close")
            assert await line.until(b"0\r\n\r\n")
        assert await asyncio.wait_for(proxy.process.wait(), 30) == 0
        assert log_of(proxy, "stopped", unfinished=0)
        assert {text["outcome"] for text in log_of(proxy, "request")} == {"completed"}


async def test_a_stream_that_does_not_end_is_cut_when_the_drain_is_over(up, serve):
    up.script = stream(delta(content="Hi"), hang())
    async with serve(None, config=config_for(up, listen={"drain_seconds": 0.3})) as proxy:
        async with streaming(proxy) as line:
            await line.until(b"Hi")
            proxy.process.terminate()
            assert await asyncio.wait_for(proxy.process.wait(), 30) == 0
            assert not (await line.reader.read()).endswith(b"0\r\n\r\n"), "and not as if it had ended well"
        await up.requests[0].end()
        (line,) = log_of(proxy, "request")
        assert (line["outcome"], line["reason"], line["level"]) == ("failed", "shutdown", "warning")


@pytest.mark.seconds
@pytest.mark.parametrize("path", ["/chat/completions", "/responses", "/messages", "/embeddings"])
async def test_a_request_without_an_answer_gets_a_503_when_the_drain_is_over(up, serve, path):
    up.script = hang()
    async with serve(None, config=config_for(up, listen={"drain_seconds": 0.3})) as proxy:
        asked = asyncio.create_task(ask(proxy, chat(), path))
        await up.wait_for_request()
        proxy.process.terminate()
        reply = await asked
        assert await asyncio.wait_for(proxy.process.wait(), 30) == 0
    assert (reply.status, reply.head.first("retry-after")) == (503, "1")
    error = json.loads(reply.body.data)["error"]
    assert (error["code"], error["type"]) == ("shutdown", "overloaded_error" if path == "/messages" else "proxy_error")
    (line,) = log_of(proxy, "request")
    seen = {name: line[name] for name in ("outcome", "reason", "level", "status")}
    assert seen == {"outcome": "failed", "reason": "shutdown", "level": "warning", "status": 503}
    assert log_of(proxy, "stopped", unfinished=0)
    assert log_of(proxy, "our-fault") == []


@pytest.mark.seconds
async def test_a_client_that_leaves_during_the_drain_is_counted_as_one_that_left(up, serve):
    up.script = hang()
    async with serve(None, config=config_for(up, listen={"drain_seconds": 20})) as proxy:
        async with open_line(proxy) as line:
            await line.write(request(target="/v1/chat/completions", body=chat()))
            await up.wait_for_request()
            proxy.process.terminate()
            await until(lambda: log_of(proxy, "draining", in_flight=1))
        assert await asyncio.wait_for(proxy.process.wait(), 30) == 0
    assert [line["outcome"] for line in log_of(proxy, "request")] == ["client-left"]


@pytest.mark.seconds
@pytest.mark.parametrize("workers", ["1", "2"])
async def test_without_open_requests_it_stops_at_once(up, serve, workers):
    async with serve(up.url, "--workers", workers) as proxy:
        proxy.process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(proxy.process.wait(), 30) == 130  # as a shell reports Ctrl-C


@pytest.mark.seconds
async def test_a_changed_file_is_in_force_within_two_seconds_and_open_streams_finish_on_the_old_one(up, serve):
    up.script = stream(delta(content="from the old"), pause(1.2), finish(), DONE)
    async with Upstream(text_turn("from the new")) as new, serve(None, config=config_for(up)) as proxy:
        async with streaming(proxy) as line:
            await line.until(b"from the old")
            proxy.configure(config_for(new))
            await until(lambda: log_of(proxy, "config-reloaded"), within=2.0)  # as the documents promise
            assert b"from the new" in (await ask(proxy, chat())).body.data
            assert await line.until(b"[DONE]\n\n\r\n0\r\n\r\n")
        assert await metric(proxy, "config_reloads_total", outcome="applied") == 1
        assert len(up.requests) == 1


@pytest.mark.seconds
async def test_a_reload_names_what_waits_for_a_restart(up, serve):
    async with serve(None, config=config_for(up)) as proxy:
        started = proxy.config
        line = await reload(proxy, config_for(up, listen={"workers": 2}) | {"transcripts": {"keep": "off"}})
        assert (line["level"], line["needs_restart"]) == ("warning", "transcripts, listen.workers")
        line = await reload(proxy, started)
        assert (line["level"], "needs_restart" in line) == ("info", False)


@pytest.mark.seconds
async def test_a_reload_writes_what_changed_to_log_and_audit_log_and_no_value(up, serve):
    config = config_for(up) | {"policies": {"default": {"min_groups": 3}}, "teams": {"red": {"upstream": "lab"}}}
    async with serve(None, "--workers", "2", config=config, environment={"RED": "sk-of-red-team-1"}) as proxy:
        changed = config | {
            "policies": {"default": {"min_groups": 9}},
            "teams": {"red": {"upstream": "lab", "key": "env:RED"}, "blue": {}},
        }
        line = await reload(proxy, changed)
        assert line["changed"] == "policies.default.min_groups, teams.red.key, teams.blue"
        assert re.search(r"(^|, )default [0-9a-f]{8} -> [0-9a-f]{8}(,|$)", line["policies"])
        audit = proxy.state / "audit.jsonl"
        await until(audit.exists)
        (act,) = [json.loads(text) for text in audit.read_text().splitlines()]
        assert (act["act"], act["subject"]) == ("reload", str(proxy.place / "proxy.yaml"))
        assert act["details"] == {"changed": line["changed"], "policies": line["policies"]}
        assert "sk-of-red-team-1" not in audit.read_text() + await whole_log(proxy)


SPOILED = {
    "listen: {workers: none}\nupstreams: {}\n": ["proxy.yaml:1: listen.workers: ", "proxy.yaml:2: upstreams: "],
    "upstreams: [\n": ["not YAML"],
    "upstreams: [{ca_file: proxy.yaml}]\n": ["there are no certificates (PEM) in it"],
}


@pytest.mark.seconds
async def test_an_invalid_file_leaves_the_old_one_in_force_and_says_why(up, serve):
    async with serve(None, config=config_for(up)) as proxy:
        for number, (spoiled, why) in enumerate(SPOILED.items()):
            proxy.configure(spoiled)
            (refused,) = await until(lambda n=number: log_of(proxy, "config-refused")[n:])
            assert refused["level"] == "error"
            assert [part for part in why if part not in refused["why"]] == []
            assert (await ask(proxy, chat())).status == 200
        assert await metric(proxy, "config_reloads_total", outcome="refused") == len(SPOILED)
        await reload(proxy, config_for(up, listen={"max_in_flight": 9}))


LOST = {
    "emptied": lambda file: file.write_text(""),
    "only comments": lambda file: file.write_text("# teams: {red: {}}\n"),
    "nothing set": lambda file: file.write_text("teams:\nupstreams:\n"),
    "removed": lambda file: file.unlink(),
}
NAMINGS = {
    "by the working directory": ([], {}),
    "by an option": (["--config", "proxy.yaml"], {}),
    "by a variable": ([], {"COMPACTION_PROXY_CONFIG": "proxy.yaml"}),
}


@pytest.mark.seconds
@pytest.mark.parametrize("naming", NAMINGS)
async def test_a_file_that_is_lost_leaves_the_old_configuration_in_force(up, tmp_path, naming):
    """The operator's key and the upstream are those of the environment: without teams any client would spend it."""
    words, variables = NAMINGS[naming]
    upstream = {"COMPACTION_PROXY_UPSTREAMS__0__BASE_URL": up.url, "COMPACTION_PROXY_UPSTREAMS__0__KEY": "env:REAL"}
    file = tmp_path / "proxy.yaml"
    whole = yaml.safe_dump(config_for(up, teams={"red": {}}))
    file.write_text(whole)
    environment = {"REAL": "sk-real", **upstream, **variables}
    async with serving(None, *words, place=tmp_path, environment=environment) as proxy:
        for number, lose in enumerate(LOST.values()):
            lose(file)
            (refused,) = await until(lambda n=number: log_of(proxy, "config-refused")[n:])
            assert (refused["level"], "proxy.yaml: " in refused["why"]) == ("error", True)
            assert (await ask(proxy, chat())).status == 401
            file.write_text(whole + f"# {number}\n")
            await until(lambda n=number: len(log_of(proxy, "config-reloaded")) > n)
        assert await metric(proxy, "config_reloads_total", outcome="refused") == len(LOST)
    assert up.requests == []


@pytest.mark.seconds
async def test_a_file_that_appears_after_the_start_is_not_read(up, tmp_path):
    async with serving(up.url, place=tmp_path) as proxy:
        proxy.configure("nonsense: 1\n")
        proxy.process.send_signal(signal.SIGHUP)
        await asyncio.sleep(1)
        assert (await ask(proxy, chat())).status == 200
    assert "config-refused" not in proxy.output


@pytest.mark.seconds
async def test_a_file_that_was_empty_at_the_start_may_stay_so_but_not_become_so_again(up, tmp_path):
    (tmp_path / "proxy.yaml").write_text("")
    (tmp_path / "key").write_text("sk-first")
    upstream = {"BASE_URL": up.url, "KEY": f"file:{tmp_path / 'key'}"}
    environment = {f"COMPACTION_PROXY_UPSTREAMS__0__{name}": value for name, value in upstream.items()}
    async with serving(None, place=tmp_path, environment=environment) as proxy:
        await ask(proxy, chat())
        (tmp_path / "key").write_text("sk-second")  # no change of the file shows it
        proxy.process.send_signal(signal.SIGHUP)
        await until(lambda: log_of(proxy, "config-reloaded"))
        await ask(proxy, chat())
        assert [sent.header("authorization") for sent in up.requests] == ["Bearer sk-first", "Bearer sk-second"]
        await reload(proxy, {"teams": {"red": {}}})
        proxy.configure("")
        await until(lambda: log_of(proxy, "config-refused"))
        assert (await ask(proxy, chat())).status == 401


@pytest.mark.seconds
async def test_a_reload_does_not_remove_the_last_team(up, serve):
    """It would open the proxy to all clients; half a file that was written may say so by mistake."""
    teams = {"teams": {"red": {}, "blue": {}}}
    async with serve(None, config=config_for(up, **teams)) as proxy:
        await reload(proxy, config_for(up, teams={"red": {}}))
        proxy.configure(config_for(up))
        (refused,) = await until(lambda: log_of(proxy, "config-refused"))
        assert "the last team is gone" in refused["why"]
        assert (await ask(proxy, chat())).status == 401
        await reload(proxy, config_for(up, teams={"blue": {}}))


@pytest.mark.seconds
async def test_sighup_while_it_starts_does_not_end_it(up, tmp_path):
    port, output = free_port(), tmp_path / "stdout"
    command = [sys.executable, "-m", "proxy", "serve", "--port", str(port), "--upstream", up.url]
    with output.open("w") as stdout:
        process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env=MEASURING, stdout=stdout)
    maps = Path(f"/proc/{process.pid}/maps")
    await until(lambda: "pydantic_core" in maps.read_text())  # the interpreter has started, the modules have not
    async with asyncio.timeout(60):
        while '"listening"' not in output.read_text():
            assert process.returncode is None
            process.send_signal(signal.SIGHUP)
            await asyncio.sleep(0.02)
    process.terminate()
    assert await asyncio.wait_for(process.wait(), 30) == 0


@pytest.mark.seconds
async def test_several_workers_share_a_port_and_one_page_of_metrics(up, serve):
    """Whichever of them answers. No counter falls when they are killed: Prometheus would take it for a restart."""
    async with two_workers(serve, config_for(up)) as proxy:
        assert len(proxy.workers) == 2
        replies = await asyncio.gather(*(ask(proxy, chat()) for _ in range(30)))
        assert {reply.status for reply in replies} == {200}
        async with asyncio.timeout(60):
            while {*await scrape_requests(proxy)} != {30}:  # noqa: ASYNC110 (told to one another once a second)
                await asyncio.sleep(0.1)
        await kill_workers(proxy)
        assert {*await scrape_requests(proxy)} == {30}


async def scrape_requests(proxy):
    """The requests that pages of metrics show, one after the other, each of a worker by chance."""
    return [await metric(proxy, "requests_total", route="/v1/chat/completions") for _ in range(8)]


@pytest.mark.slow
async def test_requests_in_progress_are_reported_by_every_worker(up, serve):
    """A gauge that only the worker asked brings up to date would be old in the snapshots of the others."""
    up.script = stream(delta(content="Hi"), hang())

    async with serve(None, "--workers", "2", config=config_for(up)) as proxy:
        async with AsyncExitStack() as stack:
            for _ in range(5):
                await (await stack.enter_async_context(streaming(proxy))).until(b"Hi")
            async with asyncio.timeout(60):
                while {await metric(proxy, "inflight") for _ in range(6)} != {5}:  # noqa: ASYNC110 (it comes)
                    await asyncio.sleep(0.1)
        await asyncio.sleep(2)  # they tell one another once a second
        assert await metric(proxy, "inflight") == 0


@pytest.mark.seconds
async def test_a_reload_reaches_every_worker_and_one_that_is_started_again_has_the_store_of_the_others(
    up, serve, tmp_path
):
    """What is read at start only is what was read then: else originals and blocks of one worker would be elsewhere."""
    before, after = ({"keep": "all", "dir": str(tmp_path / name)} for name in ("before", "after"))
    async with Upstream(text_turn("new")) as new, two_workers(serve, config_for(up, transcripts=before)) as proxy:
        proxy.configure(config_for(new, transcripts=after))
        await until(lambda: len(log_of(proxy, "config-reloaded")) == 2)
        for _ in range(8):
            await ask(proxy, chat())
        await kill_workers(proxy)
        for _ in range(8):
            await ask(proxy, chat())
        assert (len(up.requests), len(new.requests)) == (0, 16)
        await until(lambda: [*(tmp_path / "before").rglob("*.jsonl")])
    assert not (tmp_path / "after").exists()


@pytest.mark.seconds
async def test_a_port_that_was_free_needs_no_restart(up, tmp_path):
    file = tmp_path / "proxy.yaml"
    config = config_for(up, listen={"port": 0, "workers": 2}, state={"dir": str(tmp_path / "state")})
    file.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "proxy", "serve", "--config", str(file)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)

    async def read_lines(event, count):
        found = []
        async with asyncio.timeout(60):
            while len(found) < count:
                line = json.loads(await process.stdout.readline())
                found += [line] if line["event"] == event else []
        return found

    try:
        assert len({line["url"] for line in await read_lines("listening", 2)}) == 1
        file.write_text(yaml.safe_dump({**config, "listen": {**config["listen"], "max_in_flight": 9}}))
        assert [line for line in await read_lines("config-reloaded", 2) if "needs_restart" in line] == []
        file.write_text(yaml.safe_dump({**config, "listen": {"port": 1, "workers": 2}}))
        assert {line["needs_restart"] for line in await read_lines("config-reloaded", 2)} == {"listen.port"}
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.seconds
async def test_workers_end_with_a_supervisor_that_was_killed_and_leave_the_port(up, tmp_path):
    frames = [delta(content="Hel"), delta(content="lo"), finish(), DONE]
    up.script = stream(frames[0], pause(2), *frames[1:])
    port = str(free_port())
    command = [sys.executable, "-m", "proxy", "serve", "--workers", "2", "--port", port, "--upstream", up.url]
    with (tmp_path / "stdout").open("wb") as stdout, (tmp_path / "stderr").open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command, "--state", str(tmp_path / "state"), stdout=stdout, stderr=stderr
        )
    proxy = Proxy(f"http://127.0.0.1:{port}", process, tmp_path)
    await until(lambda: len(log_of(proxy, "listening")) == 2)
    workers = proxy.workers
    try:
        async with streaming(proxy) as line:
            await line.until(frames[0])
            process.kill()
            await process.wait()
            assert await line.until(b"0\r\n\r\n"), "the drain is that of a stop"
        await until(lambda: not [worker for worker in workers if is_running(worker)])
    finally:
        for worker in filter(is_running, workers):
            os.kill(worker, signal.SIGKILL)
    assert len(log_of(proxy, "supervisor-lost")) == len(log_of(proxy, "stopped", unfinished=0)) == 2
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", int(port)))


@pytest.mark.seconds
async def test_a_worker_that_was_killed_right_before_the_stop_makes_it_no_failure(up, serve):
    async with two_workers(serve, config_for(up)) as proxy:
        os.kill(min(proxy.workers), signal.SIGKILL)
        await until(lambda: len(proxy.workers) == 1)
        proxy.process.send_signal(signal.SIGTERM)
        assert await proxy.process.wait() == 0


@pytest.mark.slow
async def test_a_worker_started_again_has_the_last_valid_configuration_where_the_file_is_lost(up, serve):
    """Not that of the start, which had no teams yet."""
    async with two_workers(serve, config_for(up)) as proxy:
        proxy.configure(config_for(up, teams={"red": {}}))
        await until(lambda: len(log_of(proxy, "config-reloaded")) == 2)
        await asyncio.sleep(3)  # the supervisor looks once a second
        for number, lost in enumerate(("", yaml.safe_dump(config_for(up))), 1):
            proxy.configure(lost)
            await until(lambda n=number: len(log_of(proxy, "config-refused")) >= 2 * n)
            await kill_workers(proxy)
            assert {(await ask(proxy, chat())).status for _ in range(6)} == {401}
    assert up.requests == []


@pytest.mark.seconds
async def test_a_worker_started_again_has_the_last_keys_and_switches_where_the_registry_cannot_be_read(up, serve):
    name, key = create_team_key("red", time.time())
    revoked, other = create_team_key("red", time.time())
    async with two_workers(serve, config_for(up, teams={"red": {}})) as proxy:
        records = Records(proxy.state)
        records.change(lambda known: known.with_key(key).with_key(other))
        records.change(lambda known: known.with_key_revoked(other.id, time.time()))
        await asyncio.sleep(3)  # the supervisor looks once a second
        records.path.write_text("{ torn")
        await until(lambda: len(log_of(proxy, "store-failed")) == 2)
        await kill_workers(proxy)
        await asyncio.sleep(2)  # a worker that dies is started again after a second
        for text, status in ((name, 200), (revoked, 401)):
            headers = {"authorization": f"Bearer {text}"}
            assert {(await ask(proxy, chat(), headers=headers)).status for _ in range(6)} == {status}
        assert len(log_of(proxy, "listening")) == 4
        assert len(log_of(proxy, "store-failed")) == 4, "once by each worker"
        assert proxy.errors == ""


async def test_more_requests_than_the_limit_get_a_503_until_one_has_left(up, serve):
    up.script = stream(delta(content="Hi"), hang())
    async with serve(None, config=config_for(up, listen={"max_in_flight": 1})) as proxy:
        async with streaming(proxy) as line:
            await line.until(b"Hi")
            busy = await ask(proxy, chat())
            assert (busy.status, busy.head.first("retry-after")) == (503, "1")
            assert fault_of(busy)["code"] == "overloaded"
            assert (await page(proxy, "/health/ready")).status == 200
            assert (await page(proxy, "/metrics")).status == 200
        await up.requests[0].end()
        up.script = text_turn("Hi")
        assert (await ask(proxy, chat())).status == 200


COUNTS_COLLECTIONS = """
import gc, sys
gc.callbacks.append(lambda phase, info: phase == "stop" or print("collected", info["generation"], file=sys.stderr))
from proxy.cli import main
sys.exit(main())
"""


@pytest.mark.slow  # some twenty requests at once, over and over
async def test_many_requests_at_once_do_not_keep_the_garbage_collector_busy(up, serve):
    """A look through all objects holds up every request for 50 ms, and it came every thousand small requests."""
    up.script = text_turn("Hi")
    async with serve(up.url, program=("-c", COUNTS_COLLECTIONS)) as proxy:
        await asyncio.gather(*(ask(proxy, chat()) for _ in range(24)))
        before = proxy.errors.count("collected")
        for _ in range(12):
            await asyncio.gather(*(ask(proxy, chat()) for _ in range(24)))
        assert proxy.errors.count("collected") - before <= 3


TELLS_OF_TRIMS = """
import sys
from types import SimpleNamespace
from proxy.server import worker
repeat = worker.Jobs.repeat
worker.Jobs.repeat = lambda jobs, pause, act: repeat(jobs, min(pause, 0.05), act)
library = SimpleNamespace(malloc_trim=lambda pad: print("trimmed", file=sys.stderr, flush=True))
worker.ctypes = SimpleNamespace(CDLL=lambda name: library)
from proxy.cli import main
sys.exit(main())
"""


@pytest.mark.slow
async def test_free_memory_goes_back_to_the_system_again_and_again(up, serve):
    async with serve(up.url, program=("-c", TELLS_OF_TRIMS)) as proxy:
        await until(lambda: proxy.errors.count("trimmed") > 2)
