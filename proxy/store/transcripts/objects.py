"""The originals in an object store: conversations listed, read and removed, with what still waits for it on this disk.

    <prefix>/<tenant>/<conversation>/<moment>-<writer>-<hash>.jsonl

Every name begins with its tenant, then its conversation (a hash), so that one is found, read or removed without a look
at any other. What several replicas wrote stands beside one another; readers take each message once.

Any number of processes may prune at the same time: they find the same conversations, and to remove what is gone is no
fault. That not all of them look every hour, the first leaves a mark.
"""

import builtins
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from proxy.store.transcripts.files import SENT_SECONDS, SUFFIX
from proxy.store.transcripts.retention import InFolder, Retention, beyond, stored_in
from proxy.store.transcripts.s3 import Bucket, Object

SETTLED_SECONDS = 2 * SENT_SECONDS
MARK = ".pruned"  # no tenant is called so
MARK_SECONDS = 1800.0
_PARTS = 3


@dataclass(frozen=True, slots=True)
class InBucket:
    """A conversation as the names of its objects show it."""

    bucket: Bucket
    tenant: str
    name: str
    objects: Sequence[Object] = ()
    spooled: InFolder | None = None

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.objects) + (self.spooled.bytes if self.spooled else 0)

    @property
    def written(self) -> float:
        times = [one.written for one in self.objects] + ([self.spooled.written] if self.spooled else [])
        return max(times, default=0.0)

    @property
    def settled(self) -> float:
        """Seconds of silence before it may go: until then somebody may count on what stands here (spool.py)."""
        return SETTLED_SECONDS

    def lines(self) -> Iterator[builtins.bytes]:
        """What waits is read first, and then the names are asked for anew: what left meanwhile is among them."""
        waiting = list(self.spooled.lines()) if self.spooled else []
        for one in self._now() if self.spooled else self.objects:
            yield from io.BytesIO(self.bucket.get(one.name))
        yield from waiting

    def remove(self) -> int:
        """The bytes that are free again. The newest goes first: what is left, should this end half way, has no hole."""
        now = self._now()
        if self.spooled is not None or any(one.written > self.written for one in now):
            return 0
        for one in reversed(now):
            self.bucket.delete(one.name)
        return sum(one.bytes for one in now)

    def _now(self) -> list[Object]:
        return list(self.bucket.objects(f"{self.tenant}/{self.name}/"))


def stored_at(bucket: Bucket, spool: Path, name: str = "", tenant: str = "") -> Iterator[InBucket]:
    """Every conversation there and in the spool; or those of this tenant, or whose name begins like this."""
    waiting = {(one.tenant, one.name): one for one in stored_in(spool, name, tenant)}
    for whose, objects in groupby(_objects(bucket, name, tenant), lambda one: _whose(one)[:2]):
        yield InBucket(bucket, whose[0], whose[1], list(objects), waiting.pop((whose[0], whose[1]), None))
    for whose, spooled in waiting.items():
        yield InBucket(bucket, *whose, spooled=spooled)


def prune(bucket: Bucket, spool: Path, bounds: Retention, now: float) -> int:
    """Remove what is beyond these bounds, unless another process has just done so; how many bytes that frees."""
    if not (bounds.days or bounds.bytes) or any(one.written > now - MARK_SECONDS for one in bucket.objects(MARK)):
        return 0
    bucket.put(MARK, io.BytesIO(b"by process %d\n" % os.getpid()))
    return sum(one.remove() for one in beyond(stored_at(bucket, spool), bounds, now))


def _objects(bucket: Bucket, name: str, tenant: str) -> Iterator[Object]:
    """In the order of their names, and only those that name a segment: a bucket may hold other things, too."""
    tenants = [tenant] if tenant else bucket.folders() if name else []
    under = [f"{each}/{name}" for each in tenants] or [""]
    found: Iterable[Object] = (one for start in under for one in bucket.objects(start))
    return (one for one in found if len(_whose(one)) == _PARTS and one.name.endswith(SUFFIX))


def _whose(one: Object) -> tuple[str, ...]:
    return tuple(one.name.split("/"))
