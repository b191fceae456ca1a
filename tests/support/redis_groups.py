"""Real Redis servers that belong together: a primary with a replica and Sentinels.

with sentinels(folder) as group:
    RedisStore(group.url)
    group.primary.kill()
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.redis_server import PATIENCE, RedisServer, running
from tests.support.running_proxy import free_port

SERVICE = "primary-of-tests"


@dataclass(frozen=True, slots=True)
class SentinelGroup:
    primary: RedisServer
    replica: RedisServer
    sentinel: RedisServer

    @property
    def url(self) -> str:
        """The first of the two Sentinels does not exist."""
        return f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{self.sentinel.port}/{SERVICE}/0"


@contextmanager
def sentinels(folder: Path, *options: str) -> Iterator[SentinelGroup]:
    with ExitStack() as stack:
        primary, replica = (
            stack.enter_context(running(_make_folder(folder / name), *options)) for name in ("one", "two")
        )
        replica.run("REPLICAOF", "127.0.0.1", str(primary.port))
        wait_until(lambda: replica.info("replication").get("master_link_status") == "up")
        config = _make_folder(folder / "sentinel") / "sentinel.conf"
        config.write_text(
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary.port} 1\n"
            f"sentinel down-after-milliseconds {SERVICE} 400\n"
            f"sentinel failover-timeout {SERVICE} 2000\n"
        )
        sentinel = RedisServer(config.parent, config=config)
        sentinel.start()
        stack.callback(sentinel.stop)
        wait_until(lambda: sentinel.info("sentinel").get("master0", "").find("slaves=1") > 0)
        yield SentinelGroup(primary, replica, sentinel)


def wait_until(is_so) -> None:
    within = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < within, is_so
        time.sleep(0.02)


def _make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder
