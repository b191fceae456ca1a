"""The work of a turn is proportional to what is new in it, however long the history before it is.

The history is received, compared and sent, which takes time as well. So that time is the measure: what a turn of a
long history takes more than one of a short history, in times of copying and comparing the further bytes once.
"""

import gc
import sys
from time import perf_counter, process_time

import pytest
from msgspec.structs import replace

from proxy.shorten.clear_results import ClipOutput
from proxy.shorten.rules import Rules
from proxy.shorten.summary import SummaryRules
from proxy.upstream.client import Call
from proxy.wire.known_requests import KnownRequests
from tests import ROOT
from tests.support.compaction_worker import BIG, Worker, work
from tests.support.gateway_in_process import GatewayInProcess
from tests.support.messages import assistant, call, history, system, user
from tests.support.scripted_upstream import text_turn
from tests.support.trace import trace_calls

sys.path.append(str(ROOT / "bench"))
from bodies import CHAT, MESSAGES, RESPONSES, growing

SHORT, LONG = 500_000, 4_000_000
WARMING_TURNS, TURNS, TRIES = 3, 8, 3
MOST_COPIES = 50


async def measure_turn(served, path, size, seed):
    """The CPU seconds of the process for a turn, at best."""
    seconds = []
    for number, source in enumerate(growing(size, WARMING_TURNS + TURNS, seed, path)):
        headers = (("authorization", "Bearer sk-of-nobody"), ("content-type", "application/json"))
        began = process_time()
        await served.relay(Call("POST", path.removeprefix("/v1"), "", headers, source))
        await served.notes.wait_idle()
        if number >= WARMING_TURNS:
            seconds.append(process_time() - began)
    return min(seconds)


def measure_copy(size):
    """The seconds for copying and comparing this many bytes, at best."""
    half, seconds = bytes(size // 2), []
    for _ in range(20):
        began = perf_counter()
        assert b"".join((half, half)).startswith(half)
        seconds.append(perf_counter() - began)
    return min(seconds)


RULES = Rules(trigger_tokens=10_000, fold_cold_at_least=0, summary=SummaryRules(enabled=False))
WORDS = [*assistant("Yes."), *user("Go on, please. " * 9)] * 400
RULE_FILE = history(user("Look."), call("Read", path="AGENTS.md", out="Mind this. " * 1_000))
KINDS = {
    "without tools": ("applied", "", RULES, WORDS),
    "output in the user's role": (
        *("applied", "", RULES),
        [*assistant("```bash\nls\n```"), *user(f"Observation:\n{BIG}")] * 40,
    ),
    "nothing to clear, and no fold": ("none", "floor", replace(RULES, fold=()), WORDS),
    "instructions that stay": ("applied", "floor", RULES, [*assistant("Yes."), *system("Mind this. " * 9)] * 400),
    "too few turns": ("none", "min_turns", replace(RULES, min_turns=40), work(600)),
    "nothing to clear at a stride": (
        *("none", "", replace(RULES, trigger=0, trigger_tokens=0, clear_at_least=2_000)),
        WORDS,
    ),
    "a new result is clipped": (
        *("applied", "floor", replace(RULES, fold=(), when_full=(), always=(ClipOutput(over=500),))),
        WORDS,
    ),
}
NEW = {
    "a new result is clipped": [history(call("Read", path=f"{number}.py", out=f"{number}{BIG}")) for number in range(3)]
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_turn_of_four_times_as_long_a_conversation_takes_as_many_calls(kind):
    action, reason, rules, history_ = KINDS[kind]
    totals = []
    for times in (1, 4):
        worker, messages = Worker(rules, known=KnownRequests()), RULE_FILE + history_ * times
        for turn in NEW.get(kind, [[*assistant("Done."), *user("And the next one?")]] * 3):
            messages = messages + turn
            with trace_calls() as traced:
                plan = worker.send(messages).plan
        # Whether the client has left is checked once for every 64 messages.
        totals.append(sum(name != "check_work" for _, name in traced))
        assert (plan.action, plan.reason) == (action, reason)
    assert totals[0] == totals[1]


@pytest.mark.seconds
@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
async def test_a_longer_history_costs_a_turn_little_more_than_to_pass_it_on(up, tmp_path, path):
    up.script = text_turn("Well.")
    copies = []
    async with GatewayInProcess(up, tmp_path, retries=0, window=4_000_000) as served:
        await served.services.tokenizers.load()
        gc.disable()
        try:
            for number in range(TRIES):
                short = await measure_turn(served, path, SHORT, 2 * number)
                long = await measure_turn(served, path, LONG, 2 * number + 1)
                copies.append((long - short) / measure_copy(LONG - SHORT))
                if copies[-1] <= MOST_COPIES:
                    return
        finally:
            gc.enable()
    raise AssertionError(f"{path}: {min(copies):.0f} times what it takes to copy the history")
