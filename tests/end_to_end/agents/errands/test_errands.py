"""Real agents, unmodified, on sixty errands through the real proxy: at the end, what came of each is still told.

Each runs them twice: by itself, which shows that the agent sends all that is to be told, and through the proxy before a
window that its history does not fit. Only the last request counts, which is all that a model would know.
What is found goes into docs/clients.md by `python -m tests.end_to_end.agents.page`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from proxy.lab.replay.validity import find_breaches
from tests.end_to_end.agents.agent import Work, require
from tests.end_to_end.agents.errands.facts import DONE_ONCE, FACTS, texts, told_facts
from tests.end_to_end.agents.errands.model import Operator, errand_model, main_requests
from tests.end_to_end.agents.errands.plan import STEPS, WORD
from tests.end_to_end.agents.errands.roster import OPERATORS
from tests.end_to_end.agents.model import body_of, tokens_of
from tests.end_to_end.agents.page import ERRANDS, keep
from tests.end_to_end.agents.record import find_faults_of_its_api
from tests.support.proxy_client import whole_log
from tests.support.scripted_upstream import Request, Upstream

pytestmark = [pytest.mark.slow, pytest.mark.timeout(450), pytest.mark.asyncio(loop_scope="module")]

# Its histories are folded several times.
SMALL_WINDOW = 32_000
NAMES = [fact.name for fact in FACTS]


@dataclass(frozen=True, slots=True)
class Day:
    work: Work
    requests: list[Request]
    """Those of the conversation itself, as the upstream got them."""
    log: str = ""

    @property
    def last(self) -> dict[str, Any]:
        return body_of(self.requests[-1])

    @property
    def blocks(self) -> int:
        return self.log.count('"event":"compaction-ended"')


@pytest.fixture(scope="module", params=OPERATORS, ids=lambda operator: operator.agent.name)
def operator(request) -> Operator:
    require(request.param.agent)
    return request.param


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def direct_day(operator: Operator, tmp_path_factory) -> Day:
    async with Upstream(errand_model(operator)) as up:
        done = await operator.agent.work(up.url, tmp_path_factory.mktemp("agent"))
        return Day(done, main_requests(up.requests))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def proxied_day(operator: Operator, tmp_path_factory, serve) -> Day:
    return await run_through_the_proxy(operator, tmp_path_factory.mktemp("agent"), serve, operator.window)


async def run_through_the_proxy(operator: Operator, place: Path, serve, window: int) -> Day:
    async with Upstream(errand_model(operator)) as up:
        config = {"upstreams": [{"base_url": up.url, "window": window}]}
        async with serve(None, config=config) as proxy:
            done = await operator.agent.work(proxy.url, place)
            return Day(done, main_requests(up.requests), await whole_log(proxy))


async def test_by_itself_the_agent_sends_all_and_more_than_the_window(operator: Operator, direct_day: Day):
    assert told_facts(direct_day.last) == NAMES
    assert tokens_of(direct_day.requests[-1]) > operator.window


async def test_the_errands_are_done_with_the_proxy_and_without(direct_day: Day, proxied_day: Day):
    for day in (direct_day, proxied_day):
        assert day.work.code == 0, day.work.output[-2000:]
        assert WORD in day.work.output.split()
        assert len(day.requests) == STEPS + 1


async def test_the_last_request_tells_every_fact_and_is_much_shorter(direct_day: Day, proxied_day: Day):
    # A cell of a table that `psql` quotes is no failure of the command; the call is named, and can be made again.
    assert told_facts(proxied_day.last) == [name for name in NAMES if name != "the settlement that failed"]
    assert tokens_of(proxied_day.requests[-1]) < 0.6 * tokens_of(direct_day.requests[-1])


async def test_every_forwarded_history_is_as_valid_as_what_the_agent_sends(direct_day: Day, proxied_day: Day):
    own = {fault for request in direct_day.requests for fault in faults_of(request)}
    forwarded = {fault for request in proxied_day.requests for fault in faults_of(request)}
    assert forwarded <= own


async def test_where_the_errands_were_folded_away_what_must_not_be_done_twice_is_told(
    operator: Operator, tmp_path_factory, serve
):
    if operator.agent.name not in ("strands", "copilot-cli"):
        pytest.skip("one that acts by functions and one that acts by commands will do")
    day = await run_through_the_proxy(operator, tmp_path_factory.mktemp("agent"), serve, SMALL_WINDOW)
    assert "Background from the context proxy" in "".join(texts(day.last))
    assert set(DONE_ONCE) <= set(told_facts(day.last))


async def test_results_are_stored_for_the_page(operator: Operator, direct_day: Day, proxied_day: Day):
    sent, forwarded = (sum(map(tokens_of, day.requests)) for day in (direct_day, proxied_day))
    told = f"{len(told_facts(proxied_day.last))} of {len(FACTS)}"
    tokens = f"{sent:,}, {forwarded:,}"
    keep(operator.agent, len(proxied_day.requests), tokens, proxied_day.blocks, told, folder=ERRANDS)


def faults_of(request: Request) -> list[str]:
    return [*find_faults_of_its_api(request), *find_breaches(body_of(request)["messages"])]
