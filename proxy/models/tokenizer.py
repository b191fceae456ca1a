"""Tokens of messages: exact for OpenAI's encodings, calibrated for all others.

Three ideas make counting both right and cheap:

- A message is counted once. Clients send their whole history with each turn, so counts are remembered by the bytes.
- What takes time happens in threads, in pieces; tiktoken releases the interpreter while it works. The event loop stays
  free even when a megabyte arrives for the first time.
- The best count is the upstream's own. The core starts from what it reported for a prefix, so that only new messages
  are counted here, and a `Calibration` learns how far our count is from its.
"""

import asyncio
import re
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from proxy.lru import ByteBoundedCache
from proxy.models.token_encodings import EncodingName, build_encoding, count_tokens, find_encoding
from proxy.wire.weight import weigh

Estimator = Literal["tokens", "chars"]

INLINE_BYTES = 20_000
"""Bytes of new messages that are counted in the event loop; more are counted in a thread."""
LOOK_UP_BYTES = 4_000_000
"""Bytes of messages that are looked up in the event loop, where each is hashed; more are looked up in a thread."""
LOOK_UP_MESSAGES = 10_000
"""The same, in messages."""
THREAD_COUNT = 2
REMEMBERED_COUNTS_MAX = 200_000
"""Counts that are kept, by the hash of the message: about 20 MB."""
OWNERS_MAX_BYTES = 1024 * 1024
"""Tokenizers of callers that are kept: some thousands."""


class Tokenizers:
    """A tokenizer for any model, and the threads they share. One per process."""

    def __init__(self, remembered: int = REMEMBERED_COUNTS_MAX) -> None:
        self._threads = ThreadPoolExecutor(THREAD_COUNT, thread_name_prefix="tokenizer")
        self._remembered = remembered
        self._tokenizers: dict[EncodingName | None, Tokenizer] = {}

    def of(self, model: str, estimator: Estimator = "tokens") -> "Tokenizer":
        encoding = None
        if estimator == "tokens":
            encoding = find_encoding(model)
        if encoding not in self._tokenizers:
            self._tokenizers[encoding] = Tokenizer(encoding, self._threads, CountCache(self._remembered))
        return self._tokenizers[encoding]

    async def load(self) -> None:
        """The common encoding, before the first request: building it holds the interpreter for a tenth of a second."""
        await asyncio.get_running_loop().run_in_executor(self._threads, build_encoding, "o200k_base")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class Tokenizer:
    """Counts messages, tools and schemas, given as raw JSON, as on the wire. Without an encoding: characters / 4."""

    def __init__(
        self,
        encoding: EncodingName | None,
        threads: ThreadPoolExecutor,
        counts: "CountCache",
        owner: int = 0,
    ) -> None:
        self._encoding = encoding
        self._threads = threads
        self._counts = counts
        self._owner = owner
        self._of_owners = ByteBoundedCache[int, Tokenizer](OWNERS_MAX_BYTES)

    def of_owner(self, owner: int) -> "Tokenizer":
        """The tokenizer of one caller: how long it takes tells nothing of what others have had counted."""
        tokenizer = self._of_owners.get(owner)
        if tokenizer is None:
            tokenizer = Tokenizer(self._encoding, self._threads, self._counts, owner)
            self._of_owners[owner] = tokenizer
        return tokenizer

    async def count_all(self, messages: Sequence[bytes]) -> list[int]:
        """A count per message. After this, `count` answers for each of them at once."""
        if len(messages) > LOOK_UP_MESSAGES or sum(map(len, messages)) > LOOK_UP_BYTES:
            return await self._in_thread(messages)
        counts = [self._counts.get(hash(message) ^ self._owner) for message in messages]
        new_places = [place for place, count in enumerate(counts) if count is None]
        new_messages = [messages[place] for place in new_places]
        if sum(map(len, new_messages)) > INLINE_BYTES:
            new_counts = await self._in_thread(new_messages)
        else:
            new_counts = list(map(self.count, new_messages))
        for place, count in zip(new_places, new_counts, strict=True):
            counts[place] = count
        return [count for count in counts if count is not None]

    def count(self, message: bytes) -> int:
        """Remembered, or counted on the spot: for new messages that are small, such as a step makes."""
        key = hash(message) ^ self._owner
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = self._count(message)
        return count

    async def _in_thread(self, messages: Sequence[bytes]) -> list[int]:
        remaining = deque(messages)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._count_each, remaining)
        finally:
            remaining.clear()  # if the client has left, the thread ends after the message that it is at

    def _count_each(self, remaining: deque[bytes]) -> list[int]:
        counts = []
        while remaining:
            counts.append(self.count(remaining.popleft()))
        return counts

    def _count(self, message: bytes) -> int:
        weight = weigh(message)
        if self._encoding is None:
            return round((count_characters(message) + SEPARATOR_CHARACTERS - weight.unread) / 4) + weight.media
        return sum(count_tokens(text, self._encoding) for text in weight.texts) + weight.markup + weight.media


_ESCAPED = re.compile(rb"\\u[0-9a-fA-F]{4}")
_ESCAPE_CHARACTERS = 6
SEPARATOR_CHARACTERS = 2


def count_characters(raw: bytes) -> int:
    """Characters of JSON, the same whether the client writes them as they are or escapes them."""
    return len(raw.decode("utf-8", "replace")) - (_ESCAPE_CHARACTERS - 1) * len(_ESCAPED.findall(raw))


class CountCache:
    """Counts by message, in two halves: when the new half is full it becomes the old one, and the old one is forgotten.

    Every message of a history is looked up in each turn. This takes 0.1 us for each and 49 bytes of memory;
    `lru.ByteBoundedCache` takes 2.7 us and 242 bytes.

    The key is Python's own hash of bytes, with the caller's fingerprint: keyed, private to the process, and 64 bits are
    plenty to tell counts apart.
    """

    def __init__(self, entries: int) -> None:
        self._half = max(1, entries // 2)
        self._new: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def get(self, key: int) -> int | None:
        if key in self._new:
            return self._new[key]
        if key in self._old:
            self[key] = self._old[key]
        return self._old.get(key)

    def __setitem__(self, key: int, count: int) -> None:
        if len(self._new) >= self._half:
            self._old, self._new = self._new, {}
        self._new[key] = count

    def __len__(self) -> int:
        return len(self._new) + len(self._old)
