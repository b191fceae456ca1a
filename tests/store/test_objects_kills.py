"""Killed at any moment, while it writes, seals, sends or forgets: what was acknowledged is in the spool or the store.

Right after each kill, before anybody could do anything again, every acknowledged message is looked for; in the end the
next process has taken all of it to the store, and every conversation is whole.
"""

import asyncio
import json
import random
import signal
import subprocess
import sys

import pytest

from proxy.store.transcripts.archive import Archive, read_transcript
from proxy.store.transcripts.uploads import Uploads
from proxy.store.transcripts.writer import OriginalsWriter
from tests import ROOT
from tests.support.messages import KEY
from tests.support.object_store.faulty_relay import alternate, delay, drop_connection, pass_through, refuse_with
from tests.support.transcripts import transcript_settings
from tests.support.verification import verify

pytest_plugins = ("tests.support.object_store.fixtures",)

# Three conversations that go on for ever, a turn each in turn; what is written is acknowledged on stdout.
WRITER = f"""
import json, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from tests.support.messages import chat, assistant, user
from tests.support.transcripts import history_of, transcript_settings
from proxy.store.transcripts.writer import OriginalsWriter
from proxy.store.transcripts import uploads
from tests.support.object_store.server import open_bucket
from proxy.store.transcripts.uploads import Uploads

uploads.LOOK_SECONDS, uploads.LONGEST_PAUSE_SECONDS = 0.005, 0.05
run = json.loads(sys.stdin.readline())
bucket = open_bucket(run["url"], endpoint=run["endpoint"], key=run["key"], secret=run["secret"])
sent = Uploads(bucket, Path(run["spool"]), transcript_settings(upload_seconds=0.03, fsync=run["sync"]))
kept = OriginalsWriter(Path(run["spool"]), transcript_settings(fsync=run["sync"]), uploads=sent)
for turn in range(run["turn"], 10_000):
    for talk in range(3):
        pieces = [piece for number in range(turn) for piece in (assistant("Hm."), user(f"{{number}} " + "x" * 300))]
        done = kept.keep(history_of(chat(user(f"conversation {{talk}}"), *pieces))).done
        kept.hurry()
        if done.result():
            print(talk, turn, flush=True)
"""

STARTS_MAX = 3


class KillRun:
    def __init__(self, bucket, s3, relay, spool, dice):
        self.bucket, self.s3, self.relay, self.spool, self.dice = bucket, s3, relay, spool, dice
        self.acknowledged = dict.fromkeys(range(3), -1)

    def run_process(self, seconds):
        """One process, from its first word on, for so long."""
        command = [sys.executable, "-c", WRITER]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        process.stdin.write(json.dumps(self.settings()) + "\n")
        process.stdin.flush()
        text = process.stdout.readline()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        text += process.communicate()[0]
        for line in text.splitlines(keepends=True):
            if line.endswith("\n"):
                talk, turn = map(int, line.split())
                self.acknowledged[talk] = turn

    def settings(self):
        return {
            "url": self.bucket.url, "endpoint": self.relay.url, "spool": str(self.spool),
            "key": self.s3.key, "secret": self.s3.secret,
            "sync": self.dice.choice(["never", "always"]), "turn": max(0, *self.acknowledged.values()),
        }  # fmt: skip

    def missing(self):
        """Acknowledged turns that are nowhere."""
        there = {}
        for one in map(read_transcript, Archive(self.spool, self.bucket).find()):
            messages = [json.loads(words.message)["content"] for words in one.messages.values()]
            there[next(text for text in messages if text.startswith("conversation"))] = messages
        return [
            f"conversation {talk}, turn {number}"
            for talk, turn in self.acknowledged.items()
            for number in range(turn)
            if f"{number} " + "x" * 300 not in there.get(f"conversation {talk}", ())
        ]


async def survive_kills(run, relay, kills):
    behaviors = [
        pass_through,
        drop_connection,
        delay(0.02),
        alternate(refuse_with(503, "SlowDown"), pass_through),
        alternate(drop_connection, pass_through, pass_through),
    ]
    for _ in range(kills):
        relay.now = run.dice.choice(behaviors)
        await asyncio.to_thread(run.run_process, run.dice.uniform(0.02, 0.3))
        relay.now = pass_through
        assert run.missing() == []
    for _ in range(STARTS_MAX):  # each sends for a few seconds, of which a busy machine may leave little
        sent = Uploads(run.bucket, run.spool, transcript_settings(upload_seconds=0.01))
        assert OriginalsWriter(run.spool, transcript_settings(), uploads=sent).close()
        if not list(run.spool.rglob("*.jsonl")):
            break
    assert list(run.spool.rglob("*.jsonl")) == []
    assert run.missing() == []
    found = [read_transcript(one) for one in Archive(run.spool, run.bucket).find()]
    assert [verify(one, KEY).faults for one in found] == [()] * 3
    assert min(run.acknowledged.values()) > kills


@pytest.mark.parametrize("kills", [4, pytest.param(30, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
async def test_kills_lose_nothing_that_was_acknowledged(bucket, s3, relay, tmp_path, kills):
    await survive_kills(KillRun(bucket, s3, relay, tmp_path / "spool", random.Random(kills)), relay, kills)
