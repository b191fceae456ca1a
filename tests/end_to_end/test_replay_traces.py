"""Recorded conversations of real agents, turn by turn through the real proxy: nothing that was right comes out wrong,
and every worker forwards the same bytes, before and after a restart.

Every conversation, the malformed ones included. To bound the time, of a conversation's turns every third is sent, the
three after each new block, and the last: agents that skip turns are what the store meets after an outage anyway. Three
lanes share the corpus: the defaults, a small window, and every step there is in small strides.
"""

import asyncio
import json
import random
import re
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice

import pytest

from proxy.history.observations import OBSERVATIONS
from proxy.lab.replay.validity import find_breaches
from tests.support import recorded_traces
from tests.support.agent import turns
from tests.support.proxy_client import ask, log_of, page, until
from tests.support.scripted_upstream import Upstream, text_turn

pytestmark = [recorded_traces.needed, pytest.mark.asyncio]

STEPS = (
    *("clear_results", "clear_observations", "clear_arguments", "tool_hints", "dedup_old", "strip_reasoning"),
    *("strip_attachments", "one_liners"),
)
LANES = {
    "default": (200_000, {}),
    "narrow": (32_000, {}),
    "thorough": (
        32_000,
        {
            "clear_at_least": 4_000,
            "keep": {"tokens": 2_000},
            "always": [{"clip_output": {"over": 6_000}}, {"dedup_arrivals": {}}],
            "when_full": [{step: {}} for step in STEPS],
        },
    ),
}
AT_ONCE = 3
BATCH = 40


@dataclass(frozen=True)
class Recording:
    """One conversation, as an agent in this lane would send it."""

    number: int
    lane: str
    messages: list
    tools: list | None
    pieces: list = field(default_factory=list)

    @property
    def start(self):
        """The bytes of every request up to its first message."""
        tools = f'"tools": {json.dumps(self.tools)}, ' if self.tools else ""
        return f'{{"model": "{self.lane}", {tools}"messages": ['.encode()

    def body(self, stop):
        return self.start + b", ".join(self.pieces[:stop]) + b"]}"

    @property
    def key(self):
        return f"sk-{self.number}"


def recording(number, record):
    pieces = [json.dumps(message).encode() for message in record["messages"]]
    return Recording(number, [*LANES][number % len(LANES)], record["messages"], record.get("tools"), pieces)


def corpus(every=1):
    """Every so manieth conversation of each file."""
    number = 0
    for file in recorded_traces.FILES:
        for record in islice(recorded_traces.conversations(file.name), None, None, every):
            yield recording(number, record)
            number += 1


def settings(up):
    upstreams = [
        {"name": lane, "models": [lane], "policy": lane, "base_url": up.url, "window": window}
        for lane, (window, _) in LANES.items()
    ]
    # A summary comes when it comes: whether it is there in time is no matter of the history.
    alone = {"summary": {"enabled": False}}
    policies = {lane: {**alone, **policy} for lane, (_, policy) in LANES.items()}
    return {"upstreams": upstreams, "policies": policies, "log": {"format": "json", "level": "warning"}}


def count_by_own_rule(request):
    """An upstream that counts by a rule of its own, and tells."""
    return text_turn("Go on.").using(prompt=len(request.body) * 2 // 7)


@dataclass
class Replay:
    """Conversations on their way through one proxy. What was forwarded is remembered by its hash."""

    proxy: object
    up: Upstream
    place: object = None
    forwarded: dict = field(default_factory=dict)
    actions: Counter = field(default_factory=Counter)
    noticed: int = 0
    every: int = 3
    """So manieth turns are sent, and those around a block; 1: each."""

    async def play(self, recording):
        """A conversation, judged turn by turn."""
        stops = [len(messages) for messages in turns(recording.messages)]
        earlier, eager = b"", 0
        for at, stop in enumerate(stops):
            if eager > 0 or at % self.every == 0 or at == len(stops) - 1:
                action, reason, left = await self.send(recording, stop)
                is_valid_and_shorter(recording, stop, left)
                assert left.startswith(earlier[:-2]) or (action == "created" and reason != "opening"), at
                earlier, eager = left, 3 if action == "created" else eager - 1

    async def send(self, recording, stop):
        sent, mark = recording.body(stop), f"{recording.number}/{stop}"
        headers = {"authorization": f"Bearer {recording.key}", "x-mark": mark}
        reply = await ask(self.proxy, sent, headers=headers)
        left = next(request for request in self.up.requests if request.header("x-mark") == mark)
        self.up.requests.remove(left)
        action = reply.head.first("x-compaction")
        assert reply.status == 200
        assert action in ("none", "applied", "created"), mark
        assert action != "none" or left.body == sent, mark
        self.forwarded[recording.number, stop] = blake2b(left.body).digest()
        self.actions[recording.lane, action, reply.head.first("x-compaction-reason")] += 1
        await self.wait_until_noted(reply)
        return action, reply.head.first("x-compaction-reason"), left.body

    async def wait_until_noted(self, reply):
        """Another worker may serve the next turn: it comes once this one has noted what it learned."""
        if self.place and reply.head.first("x-compaction-tokens-after"):
            self.noticed += 1
            await until(lambda: count_noted(self.place) >= self.noticed, within=60)


def count_noted(place):
    with closing(sqlite3.connect(place / "promises.sqlite", timeout=10)) as db:
        return db.execute("select count(*) from facts_1 where key like '%/anchor/%'").fetchone()[0]


def is_valid_and_shorter(recording, stop, left):
    """Valid as it was, its head and the user's last words to the byte, and no longer than it came."""
    before, after = recording.messages[:stop], json.loads(left)
    assert find_breaches(after["messages"]) <= find_breaches(before), (recording.number, stop)
    head = next((at for at, message in enumerate(before) if message["role"] not in ("system", "developer")), stop)
    assert left.startswith(recording.start + b", ".join(recording.pieces[:head]))
    spoken = last_words(before)
    assert spoken is None or recording.pieces[spoken] in left
    assert len(left) <= len(recording.body(stop))
    assert after.get("tools") == recording.tools or not recording.tools


def last_words(messages):
    """The last message of a real user. What an environment says in a user's clothes begins like one of these."""
    answered = next((at for at, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
    for at in reversed(range(len(messages))):
        if messages[at]["role"] == "user" and (at < answered or not is_observation(messages[at]["content"])):
            return at
    return None


def is_observation(content):
    text = content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
    return any(re.search(pattern, text) for pattern in OBSERVATIONS)


async def one_worker(serve, recordings, every):
    """All of it through one worker, judged; and nothing failed on the way."""
    async with Upstream(count_by_own_rule) as up, serve(None, config=settings(up), fresh=True) as proxy:
        replay, line = Replay(proxy, up, every=every), asyncio.Semaphore(AT_ONCE)

        async def play(recording):
            async with line:
                await replay.play(recording)

        async with asyncio.TaskGroup() as group:
            for each in recordings:
                group.create_task(play(each))
        metrics = (await page(proxy, "/metrics")).body.data
    assert b"failed_open_total{" not in metrics
    assert b"compaction_proxy_faults_total{" not in metrics
    assert not log_of(proxy, "store-failed")
    return replay


async def two_workers(serve, recordings, sent, place):
    """The same requests through two workers, with a restart somewhere in the midst of each conversation."""
    forwarded, dice, noticed = {}, random.Random(20), 0
    stops = {each.number: sorted(stop for number, stop in sent if number == each.number) for each in recordings}
    cuts = {number: dice.randint(0, len(its)) for number, its in stops.items()}
    for half in (0, 1):
        async with (
            Upstream(count_by_own_rule) as up,
            serve(None, "--workers", "2", "--state", str(place), config=settings(up), fresh=True) as proxy,
        ):
            replay = Replay(proxy, up, place, noticed=noticed)
            for each in recordings:
                cut = cuts[each.number]
                for stop in (stops[each.number][:cut], stops[each.number][cut:])[half]:
                    await replay.send(each, stop)
        forwarded |= replay.forwarded
        noticed = replay.noticed
    return forwarded


async def replay_corpus(serve, recordings, place, every=3):
    """Judged in one run, and in another one, batch by batch, so that no cache has time to go cold, found the same."""
    first = await one_worker(serve, recordings, every)
    assert {action for _, action, _ in first.actions} == {"none", "applied", "created"}
    again = {}
    for batch in range(0, len(recordings), BATCH):
        again |= await two_workers(serve, recordings[batch : batch + BATCH], first.forwarded, place / str(batch))
    assert again.keys() == first.forwarded.keys()
    assert [mark for mark, sent in first.forwarded.items() if sent != again[mark]] == []
    return first


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_tenth_of_the_corpus_stays_valid_and_gets_the_same_bytes_from_any_worker(serve, tmp_path):
    await replay_corpus(serve, [*corpus(every=10)], tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(5_400)
async def test_the_whole_corpus_stays_valid_and_gets_the_same_bytes_from_any_worker(serve, tmp_path):
    done = await replay_corpus(serve, [*corpus()], tmp_path, every=1)
    assert {lane for lane, action, _ in done.actions if action == "created"} == {*LANES}
