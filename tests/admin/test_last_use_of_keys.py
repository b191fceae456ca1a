"""The last use of a key, on the pages of each replica: true of all that share a Redis, or said to be of one."""

import time

import pytest

from tests.support.admin_client import AdminClient, admin_config, team_key, until_open
from tests.support.proxy_client import ask, chat
from tests.support.redis_server import needs_redis, running
from tests.support.running_proxy import QUIET


def config_for(up, **more):
    config = admin_config(up.url, **more)
    config["upstreams"][0] |= QUIET
    return config


async def read_last_use(admin):
    """The last use of the only key, and of whose uses it is the last, once there is one."""

    def is_used(found):
        return [(key["last_used"], found["last_used_of"]) for key in found["keys"] if key["last_used"] is not None]

    ((last_used, scope),) = await admin.until("/keys", is_used)
    return last_used, scope


@needs_redis
@pytest.mark.seconds
async def test_a_key_that_was_used_at_one_replica_is_in_use_on_the_pages_of_another(serve, up, tmp_path):
    """Who rotates keys by this column revoked one that was in use."""
    with running(tmp_path) as redis:
        config = config_for(up, state={"url": redis.url})
        async with serve(None, config=config) as one, serve(None, config=config) as other:
            key = team_key(one, "platform")
            await until_open(one, key)
            began = time.time()
            assert (await ask(one, chat(), headers={"authorization": f"Bearer {key}"})).status == 200
            last_used, scope = await read_last_use(AdminClient(other))
            assert began - 60 <= last_used <= time.time()
            assert scope == "all replicas"
            redis.kill()
            await AdminClient(other).until("/keys", lambda found: found["last_used_of"] == "this replica")


@pytest.mark.seconds
@pytest.mark.parametrize("workers", ["1", "2"])
async def test_without_a_shared_state_it_is_of_this_replica_with_all_its_workers(serve, up, workers):
    async with serve(None, "--workers", workers, config=config_for(up)) as proxy:
        admin, key = AdminClient(proxy), team_key(proxy, "platform")
        await until_open(proxy, key)
        last_used, scope = await read_last_use(admin)
        assert (scope, last_used > time.time() - 120) == ("this replica", True)
