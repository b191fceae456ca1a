"""A trial of a policy in a process of its own: within its time, within its memory, and without the environment."""

import json
import subprocess
import sys
import time

import pytest

from proxy.config.policies import Policy

GIBIBYTE = 1024**3


def lines(turns, size=2_000):
    """The originals of a conversation: each message with the link of the one before it."""
    messages = [{"role": "user", "content": "go"}]
    for turn in range(turns):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{turn}", "content": f"{turn} " * (size // 4)})
    messages.append({"role": "assistant", "content": "done"})
    rows = [
        {"v": 1, "at": f"{place + 1:032x}", "after": f"{place:032x}", "message": message, "under": []}
        for place, message in enumerate(messages)
    ]
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows) + b"\n"


def trial(conversations, *, seconds=30.0, memory_bytes=2 * GIBIBYTE):
    policies = [{"name": name, "policy": Policy().model_dump(mode="json")} for name in ("one", "two")]
    job = {"policies": policies, "window": 40_000, "seconds": seconds, "memory_bytes": memory_bytes}
    asked = json.dumps(job).encode() + b"\n" + b"".join(conversations)
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    command = [sys.executable, "-P", "-m", "proxy.lab.what_if"]
    return subprocess.run(command, input=asked, env=environment, capture_output=True, timeout=170, check=False)


def test_each_conversation_is_replayed_under_both_policies():
    done = trial([lines(5), lines(30)])
    answer = json.loads(done.stdout)
    assert answer["conversations"] == 2
    assert [each["policy"] for each in answer["outcomes"]] == ["one", "two"]
    assert [each["requests"] for each in answer["outcomes"]] == [6 + 31, 6 + 31]
    assert answer["outcomes"][0]["tokens_sent"] == answer["outcomes"][1]["tokens_sent"] > 0


def test_it_keeps_to_its_seconds_within_a_conversation_and_answers_for_those_before():
    began = time.monotonic()
    done = trial([lines(3), lines(4_000, size=1_000)], seconds=1.0)
    answer = json.loads(done.stdout)
    assert answer["conversations"] == 1
    assert time.monotonic() - began < 60


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS holds on Linux")
def test_it_keeps_to_its_memory():
    done = trial([lines(3_000, size=100_000)], memory_bytes=GIBIBYTE // 3)
    assert done.returncode != 0
    assert b"MemoryError" in done.stderr
