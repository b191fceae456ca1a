"""How much happens for a request: calls of Python functions of the package, the same on every machine.

The history is that of an agent that lists files: each result is a list of names, no two alike, as in recorded work.
"""

from collections import Counter, defaultdict

import pytest
import pytest_asyncio

from tests.support.gateway_in_process import GatewayInProcess, Listening
from tests.support.messages import body, call, history, system, user
from tests.support.scripted_upstream import Upstream, text_turn
from tests.support.trace import ask_as_agent, trace_calls

USUAL_CALLS = {"left alone": 140, "applied": 850, "created": 13_400}
"""The aims are 150, 800 and 14,000."""
MOST_CALLS_APPLIED = 900
"""The dearest takes 820."""
NAMES_PER_RESULT = 90
BEFORE_BYTES, MOST_BYTES = 80_000, 115_000


def list_files(number):
    return "\n".join(
        f"src/module_{number}_{line}/handler_{number * 7919 % 997}_{line}.py" for line in range(NAMES_PER_RESULT)
    )


def working(steps):
    calls = [call("Bash", command=f"ls -R src/part_{step}", out=list_files(step)) for step in range(steps)]
    return history(system("You are a coding agent. " * 20), user("Mend the failing tests."), *calls)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calls(tmp_path_factory):
    """The calls of each request of about 100 kB, by what was done to it."""
    requests = defaultdict(list)
    async with (
        Upstream(text_turn("Hi").using(prompt=100)) as up,
        GatewayInProcess(up, tmp_path_factory.mktemp("state")) as served,
        Listening(served).listening() as proxy,
    ):
        with trace_calls() as traced:
            await ask_as_agent(proxy, user("Hello?"))  # policies are compiled once
            await served.notes.wait_idle()
            traced.clear()
            await ask_as_agent(proxy, user("Hello?"))
            await served.notes.wait_idle()
            requests["left alone"].append(Counter(name for _, name in traced))
            for steps in range(2, 60):
                messages = working(steps)
                size = len(body(messages))
                traced.clear()
                outcome = await ask_as_agent(proxy, messages)
                await served.notes.wait_idle()
                if BEFORE_BYTES < size < MOST_BYTES:
                    requests[outcome].append(Counter(name for _, name in traced))
        assert not served.faults
    return requests


@pytest.mark.parametrize("outcome", USUAL_CALLS)
def test_a_request_usually_takes_few_calls(calls, outcome):
    usual = sorted(calls[outcome], key=Counter.total)[len(calls[outcome]) // 2]
    assert usual.total() <= USUAL_CALLS[outcome], usual.most_common(8)


def test_no_request_under_a_block_goes_over_its_history_again_and_again(calls):
    dearest = max(calls["applied"], key=Counter.total)
    assert dearest.total() <= MOST_CALLS_APPLIED, dearest.most_common(8)
