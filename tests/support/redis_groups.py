"""Real Redis servers that belong together: a primary with a replica and Sentinels, or the nodes of a Cluster.

with sentinels(folder) as group:
    RedisStore(group.url)
    group.primary.kill()

with cluster(folder) as nodes:
    RedisStore(nodes.url)
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.support.redis_server import PATIENCE, RedisServer, running
from tests.support.running_proxy import free_port

SERVICE = "primary-of-tests"
SLOTS = 16_384
FAILOVER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SentinelGroup:
    primary: RedisServer
    replica: RedisServer
    sentinel: RedisServer

    @property
    def url(self) -> str:
        """The first of the two Sentinels does not exist."""
        return f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{self.sentinel.port}/{SERVICE}/0"

    def wait_for_failover(self) -> None:
        wait_until(lambda: self.replica.info("replication")["role"] == "master", FAILOVER_SECONDS)


@dataclass(frozen=True, slots=True)
class ClusterNodes:
    nodes: list[RedisServer]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:2])

    def flush(self) -> None:
        for node in self.nodes:
            node.flush()

    def keys(self, pattern: str) -> list[list[str]]:
        """Those of each node."""
        return [node.keys(pattern) for node in self.nodes]

    def node_of(self, key: str) -> RedisServer:
        slot = int(self.nodes[0].run("CLUSTER", "KEYSLOT", key)[1:])
        return next(node for node, (first, last) in zip(self.nodes, _ranges(3), strict=False) if first <= slot <= last)


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


@contextmanager
def cluster(folder: Path, *, replica: bool = False) -> Iterator[ClusterNodes]:
    """Three nodes that share the hash slots; with `replica` a fourth one, that follows the first."""
    with ExitStack() as stack:
        nodes = []
        # Short where a failover is waited for. Else long: a node that is blocked on a busy machine is not gone.
        timeout_ms = "1000" if replica else "15000"
        for number in range(3 + replica):
            bus = ("--cluster-port", str(free_port()), "--cluster-node-timeout", timeout_ms)
            own = _make_folder(folder / f"node{number}")
            nodes.append(stack.enter_context(running(own, "--cluster-enabled", "yes", *bus)))
        for node, (first, last) in zip(nodes, _ranges(3), strict=False):
            assert node.run("CLUSTER", "ADDSLOTSRANGE", str(first), str(last)) == "+OK"
        for number, node in enumerate(nodes):
            assert node.run("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1)) == "+OK"
        for one, other in pairwise(nodes):
            assert one.run("CLUSTER", "MEET", "127.0.0.1", str(other.port), other.options[3]) == "+OK"
        if replica:
            wait_until(lambda: nodes[3].read_string("CLUSTER", "NODES").count("connected") == len(nodes))
            first = nodes[0].read_string("CLUSTER", "MYID").strip()
            assert nodes[3].run("CLUSTER", "REPLICATE", first) == "+OK"
            wait_until(lambda: nodes[3].info("replication").get("master_link_status") == "up")
        for node in nodes:
            wait_until(lambda node=node: "cluster_state:ok" in node.read_string("CLUSTER", "INFO"))
        yield ClusterNodes(nodes)


def wait_until(is_so, seconds: float = PATIENCE) -> None:
    within = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < within, is_so
        time.sleep(0.02)


def _make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _ranges(number: int) -> list[tuple[int, int]]:
    starts = [SLOTS * place // number for place in range(number + 1)]
    return [(start, end - 1) for start, end in pairwise(starts)]
