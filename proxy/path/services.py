"""Services that the requests of a worker share: the store and its secret, blocks that were read, models, originals."""

import os
import time
from dataclasses import dataclass, field
from threading import Lock

from proxy import events
from proxy.lru import ByteBoundedCache
from proxy.models.tokenizer import Tokenizers
from proxy.path.known_requests import KnownRequests
from proxy.path.originals import Keeper
from proxy.path.request_context import AcceptedCallers, LearnedWindows, ModelProfiles, UsageRefusals
from proxy.path.window_probe import WindowProbe
from proxy.shorten.block import Block
from proxy.store.contract import SECRET_BYTES, ReportedUnavailable, Store, StoreUnavailable
from proxy.summary.pending import Summarizer
from proxy.wire.redaction import Redaction

SECRET_CHECK_SECONDS = 1.0
CACHED_BLOCKS_MAX_BYTES = 128 * 1024 * 1024
BLOCK_BYTES_PER_STORED_BYTE = 4
"""A block in memory is about four times as large as in the store: stored, as bytes of messages, and parsed."""
BLOCK_SAMPLE_BYTES = 256
WARNED_MAX_BYTES = 2 * 1024 * 1024


class StoreSecret:
    """The key of the chain of hashes. The store has the last word and is asked every second.

    Until the store has answered once nothing can be found anyway, so any key will do.
    """

    def __init__(self, store: Store, emit: events.Listener) -> None:
        self._store = store
        self._emit = emit
        self._value = os.urandom(SECRET_BYTES)
        self._checked_at = -SECRET_CHECK_SECONDS

    async def get(self) -> bytes:
        if time.monotonic() - self._checked_at >= SECRET_CHECK_SECONDS:
            try:
                # A store that lost its own secret takes the one in use, so that blocks are found again.
                self._value = await self._store.load_secret(self._value)
                self._checked_at = time.monotonic()
            except StoreUnavailable as fault:
                if not isinstance(fault, ReportedUnavailable):
                    self._emit(events.StoreFailed(str(fault)))
        return self._value


class WarningCounts:
    """How often each occasion for a warning came: it is given at one of them only."""

    def __init__(self) -> None:
        self._seen = ByteBoundedCache[str, int](WARNED_MAX_BYTES)

    def count(self, occasion: str) -> int:
        """How often this has come, this time included."""
        number = (self._seen.get(occasion) or 0) + 1
        self._seen[occasion] = number
        return number


class BlockCache:
    """Blocks that were read: that of a long conversation has a hundred kilobytes and comes back every turn.

    Shared by the threads for large histories, so it is locked.
    """

    def __init__(self, most_bytes: int = CACHED_BLOCKS_MAX_BYTES) -> None:
        # Found by their ends and compared: to hash a hundred kilobytes takes twenty times as long.
        self._blocks = ByteBoundedCache[tuple[int, int, bytes, bytes], tuple[bytes, Block]](
            most_bytes,
            owner_of=lambda key: key[0],
            weigh=lambda key, _: BLOCK_BYTES_PER_STORED_BYTE * key[1],
        )
        self._lock = Lock()

    def read(self, caller: int, stored_bytes: bytes) -> Block | None:
        """The block in these bytes, remembered for this caller."""
        key = caller, len(stored_bytes), stored_bytes[:BLOCK_SAMPLE_BYTES], stored_bytes[-BLOCK_SAMPLE_BYTES:]
        with self._lock:
            known_bytes, known_block = self._blocks.get(key, (b"", None))
        if known_bytes == stored_bytes:
            return known_block
        block = Block.from_bytes(stored_bytes)
        if block is not None:
            with self._lock:
                self._blocks[key] = stored_bytes, block
        return block


@dataclass(frozen=True, slots=True)
class Services:
    """Services that the sessions of a worker share."""

    store: Store
    keeper: Keeper
    emit: events.Listener
    redaction: Redaction
    secret: StoreSecret
    accepted: AcceptedCallers
    learned: LearnedWindows
    window_probe: WindowProbe
    summarizer: Summarizer
    tokenizers: Tokenizers
    blocks: BlockCache
    profiles: ModelProfiles
    known_requests: KnownRequests = field(default_factory=KnownRequests)
    warning_counts: WarningCounts = field(default_factory=WarningCounts)
    usage_refusals: UsageRefusals = field(default_factory=UsageRefusals)

    @classmethod
    def of(cls, store: Store, keeper: Keeper, emit: events.Listener, redaction: Redaction) -> "Services":
        learned, tokenizers = LearnedWindows(), Tokenizers()
        return cls(
            store=store,
            keeper=keeper,
            emit=emit,
            redaction=redaction,
            secret=StoreSecret(store, emit),
            accepted=AcceptedCallers(),
            learned=learned,
            window_probe=WindowProbe(learned),
            summarizer=Summarizer(store, emit),
            tokenizers=tokenizers,
            blocks=BlockCache(),
            profiles=ModelProfiles(tokenizers),
        )

    async def close(self) -> None:
        await self.window_probe.close()
        await self.summarizer.close()
        self.tokenizers.close()
        await self.keeper.close()
        await self.store.close()
