"""Whatever an agent needs in view, its task ends, and takes few more steps and little more money than without a proxy.

Decision 0026 states the bound. The agents are scripted, the provider's prompt cache and its prices are simulated; what
is driven is the program that serves.
"""

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from proxy.shorten.rules import Facts, Rules
from proxy.shorten.summary import SummaryRules
from tests.support.compaction_worker import Worker
from tests.support.working_set import KINDS, Task, work_directly, work_through

RULES = Rules(summary=SummaryRules(enabled=False))
DEAREST = {0.1: 1.10, 0.05: 1.20, 0.025: 1.30, 0.5: 1.20}
"""By the price of cached tokens, the most that a small working set may cost, in costs without a proxy."""
SMALL_TOKENS, SMALL_SHARE, LARGEST_SHARE = 24_000, 0.25, 1 / 3
USABLE_TOKENS = (45_600, 91_200, 159_600, 900_000)


def compare(task, usable_tokens=91_200):
    """The steps and the costs, in those without a proxy."""
    direct = work_directly(task)
    through = work_through(task, Worker(RULES, Facts(usable_tokens=usable_tokens)))
    assert through.is_done
    return through.steps / direct.steps, through.cost / direct.cost


@pytest.mark.seconds
@pytest.mark.parametrize("cached_price", DEAREST)
@pytest.mark.parametrize("needed", [4, 8, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_a_small_working_set_takes_few_more_steps(kind, needed, cached_price):
    steps, cost = compare(Task(kind, needed, cached_price=cached_price))
    assert steps <= 1.25
    assert cost <= DEAREST[cached_price]


@pytest.mark.seconds
@pytest.mark.parametrize("task", [*(Task(kind, 28) for kind in KINDS), Task("sliding", 10, file_bytes=16_000)])
def test_a_large_working_set_ends(task):
    steps, cost = compare(task)
    assert steps <= 1.35
    assert cost <= 1.5


TASKS = st.builds(
    Task,
    st.sampled_from(KINDS),
    st.integers(2, 40),
    files=st.integers(20, 80),
    file_bytes=st.sampled_from((1_500, 3_000, 5_000, 8_000, 12_000)),
    cached_price=st.sampled_from(tuple(DEAREST)),
)


@pytest.mark.seconds
@settings(max_examples=max(2, settings.default.max_examples // 4))
@example(Task("late", 16), 91_200)
@given(task=TASKS, usable_tokens=st.sampled_from(USABLE_TOKENS))
def test_the_harm_of_shortening_is_bounded(task, usable_tokens):
    assume(task.needed <= task.files and task.needed_tokens <= usable_tokens * LARGEST_SHARE)
    steps, cost = compare(task, usable_tokens)
    if task.needed_tokens <= min(SMALL_TOKENS, usable_tokens * SMALL_SHARE):
        assert steps <= 1.25
        # Of a task that ends right after a fold nothing is left by which that could pay for itself.
        assert cost <= DEAREST[task.cached_price] + 0.1
    else:
        assert steps <= 1.5
        assert cost <= 2.0
