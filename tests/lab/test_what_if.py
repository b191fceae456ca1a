"""A trial of a policy in a process of its own: within its time, within its memory, and without the environment."""

import json
import signal
import subprocess
import sys

import pytest

from proxy.config.policies import Policy
from tests.support.messages import assistant, call, history, user

GIBIBYTE = 1024**3


def lines(turns, size=2_000):
    """The originals of a conversation: each message with the link of the one before it."""
    reads = [call("read", path="a.py", out=f"{turn} " * (size // 4)) for turn in range(turns)]
    messages = history(user("go"), *reads, assistant("done"))
    rows = [
        {"v": 1, "at": f"{place + 1:032x}", "after": f"{place:032x}", "message": message, "under": []}
        for place, message in enumerate(messages)
    ]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows) + b"\n"


def job_line(*, seconds=170.0, memory_bytes=2 * GIBIBYTE):
    policies = [{"name": name, "policy": Policy().model_dump(mode="json")} for name in ("one", "two")]
    job = {"policies": policies, "seconds": seconds, "memory_bytes": memory_bytes}
    return json.dumps(job).encode() + b"\n"


def start():
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-m", "proxy.lab.what_if"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, **pipes)


def trial(conversations, **limits):
    process = start()
    output, errors = process.communicate(job_line(**limits) + b"".join(conversations), timeout=170)
    return subprocess.CompletedProcess([], process.returncode, output, errors)


@pytest.mark.seconds
def test_each_conversation_is_replayed_under_both_policies():
    done = trial([lines(5), lines(30)])
    answer = json.loads(done.stdout)
    assert answer["conversations"] == 2
    assert [each["requests"] for each in answer["outcomes"]] == [6 + 31, 6 + 31]
    assert answer["outcomes"][0]["tokens_sent"] == answer["outcomes"][1]["tokens_sent"] > 0


@pytest.mark.seconds
@pytest.mark.parametrize(("seconds", "turns", "finished"), [(170.0, (3, 200), 1), (0.1, (3,), 0)])
def test_when_its_seconds_are_over_within_a_conversation_it_answers_for_those_before(seconds, turns, finished):
    with start() as process:
        # Two are more than a pipe holds: once all of it is written, the process is at the second conversation.
        process.stdin.write(job_line(seconds=seconds) + b"".join(map(lines, turns))[:-1])
        process.stdin.flush()
        if finished:
            process.send_signal(signal.SIGALRM)  # what its own timer sends
        assert json.loads(process.stdout.read())["conversations"] == finished


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS holds on Linux")
def test_it_keeps_to_its_memory():
    done = trial([lines(3_000, size=100_000)], memory_bytes=GIBIBYTE // 3)
    assert done.returncode != 0
    assert b"MemoryError" in done.stderr
