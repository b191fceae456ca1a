"""Everything that goes wrong in half an hour, in two minutes (`make soak` has it whole)."""

from pathlib import Path

import pytest

from tests.end_to_end.fleet.deployment import AGENTS, FleetRun, run_fleet
from tests.support.object_store.server import MISSING
from tests.support.redis_server import needs_redis

pytestmark = [needs_redis, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]


def assert_nobody_noticed(run: FleetRun, notice_seconds: float):
    """`notice_seconds`: within which every replica has to follow a changed file."""
    assert run.clients.failed == {}, "failed requests, failures of the upstream aside"
    assert run.model.invalid == {}, "forwarded histories that break a rule the input had kept"
    assert run.faults == {}
    assert run.kept == len(run.clients.folded) > 0, "shortened conversations with complete originals"
    assert run.troubles.refused, "every replica refused the faulty configuration"
    assert 0 < max(run.troubles.noticed) <= notice_seconds


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_no_agent_notices_restarts_of_replicas_redis_and_the_object_store(tmp_path: Path):
    run = await run_fleet(tmp_path, seconds=120, agents=40, pause=2.0)
    assert run.clients.tally["turns"] > 600
    assert run.troubles.kills >= 4
    # Other tests share the two cores: how soon a changed file is in effect is judged by `make soak`.
    assert_nobody_noticed(run, notice_seconds=10)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
async def test_half_an_hour_of_two_hundred_agents(tmp_path: Path):
    run = await run_fleet(tmp_path, seconds=1_800, agents=AGENTS, pause=25.0)
    print(dict(run.clients.tally), dict(run.clients.done), dict(run.model.tally), run.troubles.kills)  # noqa: T201
    assert_nobody_noticed(run, notice_seconds=2)
