"""Everything that goes wrong in half an hour, in two minutes (`make soak` has it whole)."""

from pathlib import Path

import pytest

from tests.end_to_end.fleet.checks import find_results, list_figures
from tests.end_to_end.fleet.deployment import AGENTS, fleet
from tests.support.object_store.server import MISSING
from tests.support.redis_server import needs_redis

pytestmark = [needs_redis, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_no_agent_notices_restarts_of_replicas_redis_and_the_object_store(tmp_path: Path):
    made = await fleet(tmp_path, seconds=120, agents=40, pause=2.0)
    assert made.clients.turns > 600
    assert made.faults_injected.kills >= 4
    # Other tests share the two cores: how soon a changed file is in effect is judged by `make soak`.
    results = find_results(made, notice_seconds=10)
    assert [(check.what, check.found) for check in results if not check.passed] == []


@pytest.mark.soak
@pytest.mark.timeout(3_600)
async def test_half_an_hour_of_two_hundred_agents(tmp_path: Path):
    made = await fleet(tmp_path, seconds=1_800, agents=AGENTS, pause=25.0)
    print(list_figures(made))  # noqa: T201
    assert [check for check in find_results(made) if not check.passed] == []
