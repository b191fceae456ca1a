"""The services that the requests of a worker share: known requests, the store's secret, originals, watches."""

import asyncio
import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock

from msgspec import Struct

from proxy import events
from proxy.config.settings import Transcripts
from proxy.foundation.errors import TranscriptsUnavailable
from proxy.foundation.lifetime import CONTROL
from proxy.foundation.lru import ByteBoundedCache
from proxy.history.identity import Identity, compute_chain
from proxy.history.request import Request
from proxy.models.tokenizer import Tokenizers
from proxy.serve.request_context import AcceptedCallers, ModelProfiles, RefusedOptions, WindowProbe
from proxy.serve.summaries import Summarizer
from proxy.store.contract import SECRET_BYTES, Store, StoreUnavailable
from proxy.store.deletions import Deletion, OrderIndex, index_orders
from proxy.store.memory_store import MemoryStore
from proxy.store.transcripts.files import History
from proxy.store.transcripts.writer import OriginalsWriter, SubmittedHistory
from proxy.wire.api_format import ApiFormat
from proxy.wire.known_requests import KnownRequests
from proxy.wire.redaction import Redaction

REQUIRED_TIMEOUT_SECONDS = 5.0
WRITE_TIMEOUT_SECONDS = 2.0
"""How long a request waits for its original to be written if it may also go on without a new block."""


class Keeper(Struct, frozen=True):
    originals: OriginalsWriter | None = None
    transcripts: Transcripts = Transcripts()

    @property
    def is_writable(self) -> bool:
        return self.originals is None or not self.originals.problem

    def locate(self, identity: Identity) -> str:
        if self.originals is None or len(identity.links) < 2:  # noqa: PLR2004 (the chain begins with the owner)
            return ""
        return self.originals.locate(identity.tenant, identity.links[1].hex())

    def keep(
        self, identity: Identity, request: Request, policy: str, since: float | None = None
    ) -> SubmittedHistory | None:
        """Hand a history over to the writer. Return None if no originals are kept, or it is only a system prompt."""
        if self.originals is None or not request.body:
            return None
        return self.originals.keep(History(identity.tenant, identity.links, request, policy), since)

    async def write(
        self, identity: Identity, request: Request, policy: str, *, must: bool
    ) -> tuple[SubmittedHistory | None, bool]:
        """Write a history. The second value is False if that failed; if it *must* be written, that is refused."""
        history = self.keep(identity, request, policy)
        if self.originals is None or history is None:
            return history, True
        # A disk that could not be written a moment ago is not worth a long wait.
        seconds = WRITE_TIMEOUT_SECONDS if self.is_writable else 0.2
        is_written = await _wait(self.originals, history.done, REQUIRED_TIMEOUT_SECONDS if must else seconds)
        if must and not is_written:
            raise TranscriptsUnavailable(
                "the proxy must keep the original of what it shortens and cannot write: its operator can make room on "
                "the disk, or allow to go without (`transcripts.required`, `policies.NAME.without_originals`)",
                headers=(("retry-after", "5"),),
            )
        return history, is_written

    async def check_writable(self) -> bool:
        if self.originals is None:
            return True
        return self.is_writable and await _wait(self.originals, self.originals.check_writable(), WRITE_TIMEOUT_SECONDS)

    async def close(self) -> None:
        if self.originals is not None:
            await CONTROL.run(self.originals.close)


async def _wait(originals: OriginalsWriter, done: Future[bool], seconds: float) -> bool:
    originals.hurry()
    try:
        async with asyncio.timeout(seconds):
            # Shielded: a request that stops waiting does not undo the writing.
            return await asyncio.shield(asyncio.wrap_future(done))
    except TimeoutError:
        originals.note_failure("the disk is too slow: a request has stopped waiting for it")
        return False


def read_history(
    body: bytes, tenant: str, conversation: str, secret: bytes, policy: str, *, requests: ApiFormat
) -> History | None:
    request = requests.parse(body)
    if request is None or not request.body:
        return None
    return History(tenant, compute_chain(request, tenant, secret, conversation), request, policy)


SECRET_CHECK_SECONDS = 1.0


class StoreSecret:
    """The key of the chain of hashes, shared by all workers. What the store says holds for a second."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._value = os.urandom(SECRET_BYTES)
        self._checked_at = -SECRET_CHECK_SECONDS

    async def get(self) -> bytes:
        if time.monotonic() - self._checked_at >= SECRET_CHECK_SECONDS:
            with suppress(StoreUnavailable):  # the store reports it by itself
                # A store that lost its own secret takes the one in use, so that blocks are found again.
                self._value = await self._store.load_secret(self._value)
                self._checked_at = time.monotonic()
        return self._value


REWRITES_MIN = 3
"""Requests in a row that shorten results. A client's own compaction does so once."""


class LastSeen(Struct):
    """The newest request of a conversation."""

    link: bytes
    """The link of its newest message."""
    count: int
    """The number of its links."""
    sizes: Mapping[str, int] = {}
    """Bytes of each result by the id of its call; empty if the request continued the one before it."""
    rewrites: int = 0
    """Requests in a row that have shortened results."""


def _has_shortened(before: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
    """Return whether a result is shorter than before, and none is longer.

    Two conversations that begin alike may use the same ids: then some of their results are longer.
    """
    is_shortened = False
    for call_id, size in sizes.items():
        earlier_size = before.get(call_id, size)
        if size > earlier_size:
            return False
        is_shortened = is_shortened or size < earlier_size
    return is_shortened


class ResultWatch:
    """Notices clients that shorten their own results at every turn, which breaks the provider's cache each time.

        request 8    call_1: 9 bytes    call_2: 8,000    call_3: 8,000    call_4: 8,000
        request 9    call_1: 9 bytes    call_2: 9        call_3: 8,000    call_4: 8,000    call_5: 8,000

    This is only reported. It decides nothing, so each worker may know its own requests only.
    """

    def __init__(self, most_bytes: int = 16 * 1024 * 1024) -> None:
        self._seen = ByteBoundedCache[tuple[str, bytes], LastSeen](
            most_bytes,
            owner_of=lambda key: key[0],
            weigh=lambda _, seen: 300 + 150 * len(seen.sizes),
        )
        # `name_rewritten` is called in the threads that work on large histories.
        self._lock = Lock()

    def name_rewritten(self, request: Request, identity: Identity) -> str:
        """Return the conversation's name if this request and those just before it have shortened results, else ""."""
        links = identity.links
        key = identity.tenant, links[:2][-1]
        with self._lock:
            seen = self._seen.get(key)
            if seen is not None and seen.count <= len(links) and links[seen.count - 1] == seen.link:
                if seen.count < len(links):
                    seen.link, seen.count, seen.sizes, seen.rewrites = links[-1], len(links), {}, 0
                rewrites = seen.rewrites
            else:
                sizes: dict[str, int] = {}
                rewrites = 0
                if seen is not None:
                    sizes = {message.answers: message.content_size for message in request.body if message.is_result}
                    if _has_shortened(seen.sizes, sizes):
                        rewrites = seen.rewrites + 1
                self._seen[key] = LastSeen(links[-1], len(links), sizes, rewrites)
        if rewrites < REWRITES_MIN:
            return ""
        return identity.conversation


class RecentRefetches(Struct):
    """Whether each of the newest requests of a caller fetched something again, and whether their share is high."""

    requests: deque[bool]
    is_high: bool = False


class RefetchWatch:
    """Notices callers whose agents fetch again much of what was shortened: teams, and keys of no team.

    While the share of one is high nothing new is shortened for it, as long as its requests fit. Standing blocks stay,
    and clip new results, so this changes when a history is shortened, and never the bytes of one: each worker may know
    its own requests only.
    """

    WATCHED, FEWEST = 200, 100
    """The newest requests of a caller that are watched, and the fewest from which its share is judged."""
    # Far apart, so that a caller near one of them does not flap.
    HIGH, LOW = 0.25, 0.05

    def __init__(self) -> None:
        self._callers = ByteBoundedCache[str | int, RecentRefetches](4 * 1024 * 1024, weigh=lambda _, __: 2_000)

    def is_high(self, caller: str | int) -> bool:
        recent = self._callers.get(caller)
        return recent is not None and recent.is_high

    def note(self, caller: str | int, *, has_refetched: bool) -> float | None:
        """Add a request. Return the share of those that fetched again if it has just become high, or low again."""
        recent = self._callers.get(caller)
        if recent is None:
            recent = self._callers[caller] = RecentRefetches(deque(maxlen=self.WATCHED))
        recent.requests.append(has_refetched)
        share = sum(recent.requests) / len(recent.requests)
        is_high = share >= self.HIGH and len(recent.requests) >= self.FEWEST
        if recent.is_high:
            is_high = share > self.LOW
        if is_high == recent.is_high:
            return None
        recent.is_high = is_high
        return share


class Services:
    def __init__(
        self,
        store: Store,
        keeper: Keeper,
        emit: events.Listener,
        redaction: Redaction | None = None,
        memory: MemoryStore | None = None,
    ) -> None:
        self.store = store
        self.memory = memory or MemoryStore(store.limits)
        """The store for policies with `store_text: false`."""
        self.keeper = keeper
        self.emit = emit
        self.redaction = redaction or Redaction()
        self.secret = StoreSecret(store)
        self.accepted = AcceptedCallers()
        self.window_probe = WindowProbe()
        self.summarizer = Summarizer(emit)
        self.tokenizers = Tokenizers()
        self.profiles = ModelProfiles(self.tokenizers)
        self.known_requests = KnownRequests()
        self._occasions = ByteBoundedCache[str, int](2 * 1024 * 1024)
        self.result_watch = ResultWatch()
        self.refetch_watch = RefetchWatch()
        self.refused_options = RefusedOptions()
        self.deletions: OrderIndex = {}
        """The orders to delete of which this worker knows."""

    def count_occasion(self, occasion: str) -> int:
        """Return how often this worker has met an occasion for a warning, this one included."""
        number = (self._occasions.get(occasion) or 0) + 1
        self._occasions[occasion] = number
        return number

    def forget(self, deletions: Sequence[Deletion]) -> None:
        """Forget all conversations that this worker remembers. It is called before and after some are deleted."""
        self.deletions = index_orders(deletions)
        self.summarizer.forget()
        self.known_requests = KnownRequests()
        self.store.forget()
        if self.keeper.originals is not None:
            self.keeper.originals.forget(self.deletions)

    async def close(self) -> None:
        await self.window_probe.close()
        await self.summarizer.close()
        await self.keeper.close()
        await self.store.close()
