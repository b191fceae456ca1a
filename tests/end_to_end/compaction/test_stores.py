"""What happens when the store or the core fails: real files, real processes."""

import json

import pytest

from tests.support.agent import Agent, compactions
from tests.support.compacting_proxy import ASIDE, WORK, database, metric, settings
from tests.support.proxy_client import log_of, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


def delete_database(file):
    for each in file.parent.glob("promises.sqlite*"):
        each.rmdir() if each.is_dir() else each.unlink(missing_ok=True)  # the last one to close takes -wal away


def overwrite_database(file):
    # Put there in one go: a worker that writes at this moment would make a fresh file in between.
    broken = file.with_name("broken")
    broken.write_bytes(b"this was a database once " * 1_000)
    delete_database(file)
    broken.replace(file)


def a_folder(file):
    delete_database(file)
    file.mkdir()


@pytest.mark.parametrize("harm", [delete_database, overwrite_database, a_folder])
async def test_a_store_that_is_lost_costs_a_worker_nothing(serve, fresh, harm):
    config = settings(default={"clear_at_least": 3_600})
    async with serve(fresh.url, config=config) as proxy:
        victim = Agent(proxy, fresh, "sk-a")
        before = await victim.work(WORK)
        harm(database(proxy.state))
        after = [await victim.send(WORK), await victim.send(ASIDE)]
        assert await metric(proxy, "failed_open_total") == 0
        assert (await metric(proxy, "store_faults_total") > 0) == (harm is not delete_database)
    assert [step.answer.status for step in before + after] == [200] * len(before + after)
    assert compactions(after) == ["applied", "applied"]
    assert len(after[1].forwarded) < len(after[1].sent)


# The proxy with a bug in it: a decision about a history that holds this word raises.
PLANTED = """
import sys
from proxy.cli import main
from proxy.decide import planning
plan_without_rewrite = planning.plan_without_rewrite
def decide_with_a_bug(state):
    if any(b"BUGGY" in message.raw for message in state.body):
        raise KeyError("part_1 of a conversation")
    return plan_without_rewrite(state)
planning.plan_without_rewrite = decide_with_a_bug
sys.exit(main())
"""


@pytest.mark.seconds
async def test_where_compaction_fails_the_clients_own_bytes_are_forwarded_and_the_fault_is_logged(serve, fresh):
    async with serve(fresh.url, config=settings(), program=("-c", PLANTED)) as proxy:
        agent = Agent(proxy, fresh, "sk-a")
        failed = await agent.send([{"role": "user", "content": "BUGGY"}, *WORK])
        assert failed.compaction == "failed-open"
        assert failed.is_verbatim
        assert failed.answer.status == 200
        assert (await agent.send(WORK)).compaction == "created"
        assert await metric(proxy, "failed_open_total") == 1
        (line,) = await until(lambda: log_of(proxy, "failed-open"))
        assert line["effect"] == "the client's own bytes were forwarded"
        assert "part_" not in json.dumps(line)
