"""Where the originals stand, for the commands that read them: in a folder, or in an object store and its spool.

What is afar is read by several at once: most of the time of one is waiting.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from proxy import assembly
from proxy.config import Config
from proxy.core.identity import promise_key
from proxy.store import redis, sqlite
from proxy.store.promises import StoreUnavailable
from proxy.store.transcripts.files import file_name
from proxy.store.transcripts.objects import stored_at
from proxy.store.transcripts.reading import Transcript, transcript
from proxy.store.transcripts.retention import Stored, stored_in
from proxy.store.transcripts.s3 import Bucket

AHEAD = 8
T = TypeVar("T")


class NotThere(Exception):
    """What was asked for does not exist; the sentence says what does."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """The originals, and the store that knows their blocks and the key of their chain."""

    config: Config
    bucket: Bucket | None = None

    @property
    def where(self) -> str:
        return str(self.bucket.place if self.bucket else self.config.originals)

    def stored(self, name: str = "", tenant: str = "") -> Iterator[Stored]:
        """Every conversation; or those of this tenant, or whose name begins like this."""
        if self.bucket is None:
            return stored_in(self.config.originals, name, tenant)
        return stored_at(self.bucket, self.config.originals, name, tenant)

    def each(self, read: Callable[[Stored], T]) -> Iterator[T]:
        """Every conversation, read."""
        return map(read, self.stored()) if self.bucket is None else _ahead(read, self.stored())

    def one(self, asked: str) -> Transcript:
        """The conversation of this id, or of the only one that begins like it; `TENANT/ID` says whose."""
        tenant, _, name = asked.rpartition("/")
        found = list(self.stored(name, file_name(tenant) if tenant else ""))
        if len({stored.name for stored in found}) > 1 or not found:
            what = f"{len(found)} conversations begin with" if found else "there is no conversation"
            raise NotThere(f"{what} {name!r} in {self.where}; `transcripts list` shows all")
        if len(found) > 1:
            tenants = ", ".join(stored.tenant for stored in found)
            raise NotThere(f"several tenants have a conversation {name!r}: {tenants}; say TENANT/{name}")
        return transcript(found[0])

    def peek(self, tenant: str = "", links: tuple[str, ...] = ()) -> tuple[bytes | None, dict[str, bytes]]:
        """The key of the chain, and the blocks that stand at these links."""
        keys = {promise_key(tenant, bytes.fromhex(link)): link for link in links}
        try:
            key, found = self._peek(list(keys))
        except StoreUnavailable as fault:
            print(f"blocks and keys cannot be read: {fault}", file=sys.stderr)  # noqa: T201
            return None, {}
        return key, {keys[promise]: block for promise, block in found.items()}

    def _peek(self, keys: list[str]) -> tuple[bytes | None, dict[str, bytes]]:
        if url := assembly.state_url(self.config):
            return asyncio.run(redis.peek(url, keys, assembly.state_tls(self.config)))
        return sqlite.peek(Path(self.config.state.dir) / "promises.sqlite", keys)

    def close(self) -> None:
        if self.bucket is not None:
            self.bucket.close()


def opened(config: Config) -> Shelf:
    return Shelf(config, assembly.bucket(config))


def _ahead(read: Callable[[Stored], T], stored: Iterator[Stored]) -> Iterator[T]:
    """All of them, read in their order, a few at a time: memory is bounded."""
    reading: deque[Future[T]] = deque()
    with ThreadPoolExecutor(AHEAD) as pool:
        for one in stored:
            reading.append(pool.submit(read, one))
            if len(reading) >= AHEAD:
                yield reading.popleft().result()
        while reading:
            yield reading.popleft().result()
