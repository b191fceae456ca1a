"""Ten strangers with 2 MB each: meanwhile a small chat of a known client and `/health/ready` are answered at once.

The upstream refuses a stranger's key, but only after the proxy has worked on the history. It is named by `localhost`:
to look up its address takes one of asyncio's threads.
"""

import asyncio
import gzip
import os
from pathlib import Path
from time import perf_counter

import pytest

from proxy.foundation.work import BUDGET_SECONDS_PER_MIB
from tests.support import http_client
from tests.support.agent import reading
from tests.support.messages import assistant, body, user
from tests.support.proxy_client import request
from tests.support.running_proxy import READY
from tests.support.scripted_upstream import answer, text_turn

STRANGERS = 10
MEBIBYTE = 1024 * 1024
WAIT_SECONDS = 0.5
ROUNDS = 3
"""A busy machine may hold up an answer by itself, but not in each of three rounds."""


def work_of_an_agent(number):
    return reading(350, size=6_000, task=f"Task {number}.")


def one_long_text(number):
    return user(f"word{number} and other words that go on, " * 55_000)


def short_messages(number):
    return [message for place in range(22_000) for message in user(f"m{number} {place}") + assistant("ok")]


KINDS = {
    "work of an agent": (work_of_an_agent, bytes),
    "one long text": (one_long_text, bytes),
    "short messages": (short_messages, bytes),
    "compressed": (work_of_an_agent, gzip.compress),
}


def chat(key, sent, *, is_compressed=False):
    headers = {"authorization": f"Bearer {key}"}
    if is_compressed:
        headers["content-encoding"] = "gzip"
    return request(headers=headers, body=sent)


def read_cpu_seconds(process_id):
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def time_answer(origin, message, method="POST"):
    begun = perf_counter()
    assert (await http_client.send(origin, message, method=method)).status == 200
    return perf_counter() - begun


async def watch(origin, strangers):
    """The longest wait for each of the two, until all strangers are answered."""
    small = chat("sk-known", body(user("Hello?")))
    waits = {"chat": 0.0, "ready": 0.0}
    while not all(stranger.done() for stranger in strangers):
        waits["ready"] = max(waits["ready"], await time_answer(origin, READY, "GET"))
        waits["chat"] = max(waits["chat"], await time_answer(origin, small))
        await asyncio.sleep(0.02)
    return waits


@pytest.mark.seconds
@pytest.mark.parametrize(("make", "pack"), KINDS.values(), ids=KINDS)
async def test_strangers_hold_up_neither_a_small_chat_nor_readiness(up, serve, make, pack):
    def script(asked):
        if asked.header("authorization") == "Bearer sk-known":
            return text_turn("Well.")
        return answer({"error": {"message": "no such key"}}, 401)

    up.script = script
    rounds = []
    async with serve(up.url.replace("127.0.0.1", "localhost")) as proxy:
        await time_answer(proxy.origin, chat("sk-known", body(user("Hello?"))))
        for number in range(ROUNDS):
            bodies = [body(make(STRANGERS * number + place)) for place in range(STRANGERS)]
            sent = [
                chat(f"sk-{place}", pack(each), is_compressed=pack is gzip.compress)
                for place, each in enumerate(bodies)
            ]
            before = read_cpu_seconds(proxy.process.pid)
            strangers = [asyncio.create_task(http_client.send(proxy.origin, message)) for message in sent]
            rounds.append(await watch(proxy.origin, strangers))
            assert {stranger.result().status for stranger in strangers} == {401}
            seconds = read_cpu_seconds(proxy.process.pid) - before
            # No usual history comes near the budget of a stranger.
            assert seconds < BUDGET_SECONDS_PER_MIB / 4 * sum(map(len, bodies)) / MEBIBYTE
            if max(rounds[-1].values()) < WAIT_SECONDS:
                return
    raise AssertionError(rounds)
