"""Everything that goes wrong in half an hour, in three minutes (`make soak` has it whole)."""

from pathlib import Path

import pytest

from tests.end_to_end.fleet.house import fleet
from tests.end_to_end.fleet.verdict import verdict
from tests.support.object_store.server import MISSING
from tests.support.redis_server import needs_redis


@pytest.mark.slow
@needs_redis
@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
@pytest.mark.timeout(600)
async def test_nobody_notices_that_replicas_redis_and_the_object_store_come_and_go(tmp_path: Path):
    made = await fleet(tmp_path, seconds=180, agents=40, pause=2.0)
    assert made.crowd.turns > 1_000
    assert made.trouble.kills >= 7
    assert [(check.what, check.found) for check in verdict(made) if not check.passed] == []
