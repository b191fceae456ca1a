"""The store that many machines share: a Redis or Valkey server, one with Sentinels, or a Cluster.

What is looked up for a request comes in one round trip (`redis_scripts.py`), and no request waits long for a server
that is slow or down (`redis_client.py`). All but the documents can be derived again, so it may be emptied.

How much is kept is the server's own affair (`maxmemory`). What may go expires or is evicted; the secret and the
documents have no expiry, so that `volatile-lru` leaves them alone.
"""

import secrets
from collections.abc import Callable, Sequence

import msgspec

from proxy.config.state_url import parse_state_url
from proxy.store.contract import RECORDED_USES_PER_LIFETIME, SECRET_BYTES, Found, StoreLimits, ignore
from proxy.store.redis_client import CHECK_TIMEOUT_SECONDS, STORE_TIMEOUT_SECONDS, Argument, GuardedClient
from proxy.store.redis_scripts import FIND_FIRST, LOAD_SECRET, PUT, REPLACE, WRITE

PREFIX = "cp/1"
"""Every key begins with it. The number is the version of what the values hold."""
BLOCK, FACT = "promise", "fact"
"""Kinds, as parts of keys: version 0.1 called a block `promise`."""
DEADLINE_BYTES = 8
"""What the scripts write in front of each value."""

DEFAULT = StoreLimits()
Lists = Sequence[Sequence[str]]


class RedisStore:
    """Blocks, facts and documents in Redis. `warn` is called with a sentence for operators, at most once a second, and
    `report_back` with another one when a server that was out answers again.

    `clock` is for tests; without it the server's own clock counts, so replicas whose clocks differ agree.
    """

    def __init__(
        self,
        url: str,
        limits: StoreLimits = DEFAULT,
        warn: Callable[[str], None] = ignore,
        *,
        report_back: Callable[[str], None] = ignore,
        clock: Callable[[], float] | None = None,
        timeout: float = STORE_TIMEOUT_SECONDS,
        ca_file: str | None = None,
    ) -> None:
        self._url = parse_state_url(url)
        self._client = GuardedClient(self._url, ca_file, timeout, warn, report_back)
        self._seconds = limits.block_seconds
        self._clock = clock

    def __repr__(self) -> str:
        return f"<RedisStore {self._url}>"

    async def find_first(
        self, blocks: Sequence[str], facts: Sequence[str] = (), *more: Sequence[str]
    ) -> tuple[Found | None, ...]:
        lists = (blocks, facts, *more)
        first: list[Found | None] = [None] * len(lists)
        for part in self._split_by_slot(lists):
            for place, found in enumerate(await self._find_in_slot(part)):
                first[place] = _earlier(lists[place], first[place], found)
        return tuple(first)

    async def put_block(self, key: str, value: bytes, over: bytes | None = None) -> bytes:
        stored = await self._put(BLOCK, key, value, self._seconds, over)
        return value if stored is None else stored

    async def read_fact(self, key: str) -> bytes | None:
        _, found = await self.find_first((), (key,))
        return found.value if found else None

    async def write_fact(self, key: str, value: bytes, seconds: float, over: bytes | None = None) -> None:
        if over is None:
            await self._client.run(WRITE, [self._key(FACT, key)], self._now, seconds, value)
        else:
            await self._put(FACT, key, value, seconds, over)

    async def claim_fact(self, key: str, value: bytes, seconds: float) -> bool:
        return await self._put(FACT, key, value, seconds) is None

    async def load_secret(self, held: bytes | None = None) -> bytes:
        secret = await self._client.run(LOAD_SECRET, [f"{PREFIX}/secret"], held or secrets.token_bytes(SECRET_BYTES))
        if not isinstance(secret, bytes):
            raise self._client.odd_reply()
        return secret

    async def read_document(self, key: str) -> bytes | None:
        return await self._get(f"{PREFIX}/document/{key}")

    async def replace_document(self, key: str, old: bytes | None, new: bytes) -> bool:
        values = (new,) if old is None else (new, old)
        return await self._client.run(REPLACE, [f"{PREFIX}/document/{key}"], *values) == 1

    async def peek(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The blocks under these keys; a block stays as old as it is."""
        values = {key: await self._get(self._key(BLOCK, key)) for key in keys}
        return {key: value[DEADLINE_BYTES:] for key, value in values.items() if value is not None}

    async def close(self) -> None:
        await self._client.close()

    @property
    def _now(self) -> Argument:
        return "" if self._clock is None else repr(self._clock())

    def _key(self, kind: str, key: str) -> str:
        """A key as the server has it. In a Cluster all keys of a tenant share a hash slot: their tag is the tenant.

        So the look-up of a request is one script on one node. On a single server there is no tag: the keys are those
        of version 0.1.
        """
        if self._url.topology != "cluster":
            return f"{PREFIX}/{kind}/{key}"
        tenant, slash, rest = key.partition("/")
        return f"{PREFIX}/{kind}/{{t.{tenant}}}{slash}{rest}"

    def _split_by_slot(self, lists: Lists) -> list[Lists]:
        """The lists, once for each hash slot that holds some of their keys. A request asks for those of one tenant."""
        if self._url.topology != "cluster":
            return [lists] if any(lists) else []
        tenants = dict.fromkeys(key.partition("/")[0] for keys in lists for key in keys)
        if len(tenants) == 1:
            return [lists]
        return [[[key for key in keys if key.partition("/")[0] == tenant] for keys in lists] for tenant in tenants]

    async def _find_in_slot(self, lists: Lists) -> Sequence[Found | None]:
        kinds = (BLOCK, *(FACT for _ in lists[1:]))
        server_lists = [[self._key(kind, key) for key in keys] for kind, keys in zip(kinds, lists, strict=True)]
        routed_by = next(keys[0] for keys in server_lists if keys)
        packed = map(msgspec.msgpack.encode, server_lists)
        reply = await self._client.run(
            FIND_FIRST, [routed_by], self._now, self._seconds, RECORDED_USES_PER_LIFETIME, *packed
        )
        if not isinstance(reply, list) or len(reply) != len(lists):
            raise self._client.odd_reply()
        return [self._read_found(keys, entry) for keys, entry in zip(lists, reply, strict=True)]

    def _read_found(self, keys: Sequence[str], entry: object) -> Found | None:
        match entry:
            case None:
                return None
            case [int(place), bytes(value), *_] if 0 < place <= len(keys):
                return Found(keys[place - 1], value)
        raise self._client.odd_reply()

    async def _get(self, server_key: str) -> bytes | None:
        return self._bytes(await self._client.ask(server_key, "GET", server_key))

    def _bytes(self, reply: object) -> bytes | None:
        if reply is None or isinstance(reply, bytes):
            return reply
        raise self._client.odd_reply()

    async def _put(self, kind: str, key: str, value: bytes, seconds: float, over: bytes | None = None) -> bytes | None:
        """Write the value. Returns the one that is stored instead, if another writer was first."""
        values = (value,) if over is None else (value, over)
        return self._bytes(await self._client.run(PUT, [self._key(kind, key)], self._now, seconds, *values))


def _earlier(keys: Sequence[str], one: Found | None, other: Found | None) -> Found | None:
    found = [candidate for candidate in (one, other) if candidate is not None]
    return min(found, key=lambda candidate: keys.index(candidate.key), default=None)


async def peek(url: str, keys: Sequence[str], ca_file: str | None = None) -> dict[str, bytes]:
    """The blocks under these keys, for commands that only look: a block stays as old as it is."""
    store = RedisStore(url, timeout=CHECK_TIMEOUT_SECONDS, ca_file=ca_file)
    try:
        return await store.peek(keys)
    finally:
        await store.close()
