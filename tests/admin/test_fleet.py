"""The pages of one replica tell the usage and the events of all, and nothing is lost or counted twice by a crash."""

import asyncio
import csv
import os
import signal
import time
from contextlib import asynccontextmanager
from functools import partial

import pytest

from tests.admin import install
from tests.admin.browser import run_scene
from tests.support.admin_client import AdminClient, admin_config, team_key, until_open
from tests.support.agent import Agent, reading, turns
from tests.support.redis_server import needs_redis, running
from tests.support.running_proxy import serving
from tests.support.scripted_upstream import Upstream, text_turn

pytestmark = [pytest.mark.seconds, pytest.mark.timeout(300)]

PRICES = {"*": {"input": 2.0, "cached": 0.5, "output": 10.0}}
SMALL = {"clear_at_least": 2_000, "keep": {"tokens": 1_000}, "summary": {"enabled": False}}


def config_for(up, **more):
    config = admin_config(up.url, **more)
    config["upstreams"][0] |= {"window": 1_000_000, "prices": PRICES}
    config["policies"]["default"] = SMALL
    config["teams"]["search"] = {}
    return config


def script(request):
    """An answer with the usage of its prompt, as an upstream reports it."""
    size = len(request.body) // 4
    return text_turn("Go on.").using(size, 20, size // 2)


def compute_bill(*upstreams):
    """What the upstreams together were sent, in tokens and dollars."""
    sizes = [len(request.body) // 4 for up in upstreams for request in up.requests if request.method == "POST"]
    dollars = sum((size - size // 2) * 2.0 + size // 2 * 0.5 for size in sizes) / 1e6
    return {"requests": len(sizes), "tokens_read": sum(sizes), "paid": pytest.approx(dollars)}


async def work(agents, files, task):
    """The turns of one conversation, each sent to the next replica in rotation."""
    history = [*turns(reading(files, task=task))]
    for number, messages in enumerate(history[5:]):  # the first are too short to be looked at
        step = await agents[number % len(agents)].send(messages)
        assert step.answer.status == 200


async def until_told(admin, expected):
    """Wait until the page of usage tells these figures, and say what it tells if that takes too long."""
    end = time.monotonic() + 60
    while True:
        told = await admin.read("/usage")
        total = {name: told["total"][name] for name in expected}
        if total == expected:
            return told
        assert time.monotonic() < end, (total, expected)
        await asyncio.sleep(0.2)


@asynccontextmanager
async def killed_at_its_end(*arguments, **how):
    """A proxy that is killed where the block ends."""
    try:
        async with serving(None, *arguments, **how) as proxy:
            yield proxy
            os.kill(proxy.process.pid, signal.SIGKILL)
    except AssertionError as ended:
        if "the proxy ended with -9" not in str(ended):
            raise


@needs_redis
async def test_two_replicas_tell_the_sum_of_what_both_upstreams_saw_also_after_a_kill(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    async with Upstream(script) as up, Upstream(script) as other_up:
        with running(tmp_path) as redis:
            place, other_place = (
                {"place": tmp_path / name, "config": config_for(each, state={"url": redis.url})}
                for name, each in (("one", up), ("other", other_up))
            )
            async with serving(None, **place) as one:
                admin = AdminClient(one)
                async with killed_at_its_end(**other_place) as other:
                    for team, task in (("platform", "Mend it."), ("search", "Sort it.")):
                        key = team_key(one, team)
                        await until_open(one, key)
                        await until_open(other, key)
                        await work([Agent(one, up, key), Agent(other, other_up, key)], 14, task)
                    told, told_there = [
                        await until_told(each, compute_bill(up, other_up)) for each in (admin, AdminClient(other))
                    ]
                    assert told["groups"] == told_there["groups"]
                    assert told["total"]["conversations"] == 2
                    assert [machine["own"] for machine in told["machines"]] == [True, False]
                    # A turn that is recorded, and not published yet, when the replica is killed.
                    await Agent(other, other_up, key).send([*turns(reading(15, task="Sort it."))][-1])
                    bill = compute_bill(up, other_up)
                    await until_told(AdminClient(other), {"requests": bill["requests"]})
                assert (await admin.read("/usage"))["total"]["requests"] >= bill["requests"] - 1
                async with serving(None, **other_place) as other:
                    told = await until_told(admin, bill)
                    await check_months(admin, told)
                    redis.flush()
                    told = await until_told(AdminClient(other), bill)
                    await check_pages(admin)
                    redis.kill()
                    assert (await admin.read("/usage"))["total"] == told["total"]
                    for path in ("/overview", "/events", "/usage/months", "/keys"):
                        await admin.read(path)


async def check_months(admin, told):
    """The months of all replicas, as JSON and as CSV."""
    months = (await admin.read("/usage/months"))["months"]
    assert {row["team"] for row in months if row["turns"]} == {"platform", "search"}
    for name in ("paid", "tokens_read", "saved", "conversations", "refetches"):
        assert sum(row[name] for row in months) == pytest.approx(told["total"][name]), name
    answer = await admin.send("GET", "/admin/api/usage/months?format=csv")
    rows = [*csv.DictReader(answer.body.data.decode().splitlines())]
    assert [row["team"] for row in rows] == [row["team"] for row in months]
    assert float(rows[0]["paid"]) == pytest.approx(months[0]["paid"], abs=1e-5)


async def check_pages(admin):
    """The numbers on the page are those of the API."""
    if not install.is_installed():
        return
    requests = (await admin.read("/usage"))["total"]["requests"]
    await run_scene(admin, "usage_is_of_all_replicas_and_conversations_of_one", requests=f"{requests:,}")


@needs_redis
async def test_a_warning_of_one_replica_is_on_the_pages_of_the_other(serve, tmp_path):
    with running(tmp_path) as redis:
        async with Upstream(script) as up:
            config = config_for(up, state={"url": redis.url})
            async with serve(None, config=config) as one, serve(None, config=config) as other:
                file = one.place / "proxy.yaml"
                before = file.read_text()
                file.write_text(before + "nonsense: 1\n")

                def is_refused(found):
                    return [event for event in found["events"] if event["name"] == "config-refused"]

                (here,) = await AdminClient(one).until("/events", is_refused)
                (there,) = await AdminClient(other).until("/events", is_refused)
                assert (here["machine"], here["details"]) == ("", there["details"])
                assert there["machine"].endswith(f":{one.port}")
                file.write_text(before)


async def test_two_workers_of_one_machine_tell_what_the_upstream_saw_also_after_a_kill(tmp_path):
    async with Upstream(script) as up:
        for start, task in ((killed_at_its_end, "Mend it."), (partial(serving, None), "Sort it.")):
            async with start("--workers", "2", place=tmp_path, config=config_for(up)) as proxy:
                key = team_key(proxy, "platform")
                for _ in range(20):  # on both workers
                    await until_open(proxy, key)
                await work([Agent(proxy, up, key)], 12, task)
                told = await until_told(AdminClient(proxy), compute_bill(up))
                assert [machine["own"] for machine in told["machines"]] == [True]
