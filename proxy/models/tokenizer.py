"""Tokens of messages: exact for OpenAI's encodings, calibrated for all others. Only this module imports tiktoken.

The ranks are shipped (`data`) and fed to tiktoken directly: its own loader would go to the network, without any
timeout.

Three ideas make counting both right and cheap:

- A message is counted once. Clients send their whole history with each turn, so counts are remembered by the bytes.
- What takes time happens in threads, in pieces; tiktoken releases the interpreter while it works. The event loop stays
  free even when a megabyte arrives for the first time.
- The best count is the upstream's own. The core starts from what it reported for a prefix, so that only new messages
  are counted here, and a `Calibration` learns how far our count is from its.
"""

import asyncio
import lzma
import re
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Literal

import tiktoken

from proxy.lru import ByteBoundedCache
from proxy.models.names import model_family, plain_name
from proxy.shorten.calibration import Calibration
from proxy.wire.weight import weigh

Estimator = Literal["tokens", "chars"]
EncodingName = Literal["o200k_base", "cl100k_base"]

PIECE_CHARS = 100_000
"""Characters encoded at once: tiktoken's regular expression gives up on a million blanks."""
INLINE_BYTES = 20_000
"""Bytes of new messages that are counted in the event loop; more are counted in a thread."""
LOOK_UP_BYTES = 4_000_000
"""Bytes of messages that are looked up in the event loop: each is hashed for it. More are looked up in a thread,"""
LOOK_UP_MESSAGES = 10_000
"""and so are more messages than this."""
THREADS = 2
REMEMBERED_COUNTS_MAX = 200_000
"""Counts that are kept, by the hash of the message: about 20 MB."""
OWNERS_MAX_BYTES = 1024 * 1024
"""Tokenizers of callers that are kept: some thousands."""


class Tokenizers:
    """A tokenizer for any model, and the threads they share. One per process."""

    def __init__(self, remembered: int = REMEMBERED_COUNTS_MAX) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="tokenizer")
        self._remembered = remembered
        self._made: dict[EncodingName | None, Tokenizer] = {}

    def of(self, model: str, estimator: Estimator = "tokens") -> "Tokenizer":
        encoding = find_encoding(model) if estimator == "tokens" else None
        if encoding not in self._made:
            self._made[encoding] = Tokenizer(encoding, self._threads, CountCache(self._remembered))
        return self._made[encoding]

    async def load(self) -> None:
        """The common encoding, before the first request: building it holds the interpreter for a tenth of a second."""
        await asyncio.get_running_loop().run_in_executor(self._threads, _encoding, "o200k_base")

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
        found = self._of_owners.get(owner)
        if found is None:
            found = Tokenizer(self._encoding, self._threads, self._counts, owner)
            self._of_owners[owner] = found
        return found

    async def count_all(self, messages: Sequence[bytes]) -> list[int]:
        """A count per message. After this, `count` answers for each of them at once."""
        if len(messages) > LOOK_UP_MESSAGES or sum(map(len, messages)) > LOOK_UP_BYTES:
            return await self._in_thread(messages)
        known = [self._counts.get(hash(message) ^ self._owner) for message in messages]
        new = [message for message, count in zip(messages, known, strict=True) if count is None]
        counted = iter(await self._in_thread(new) if sum(map(len, new)) > INLINE_BYTES else map(self.count, new))
        return [next(counted) if count is None else count for count in known]

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
        return sum(_tokens(text, self._encoding) for text in weight.texts) + weight.markup + weight.media


_ESCAPED = re.compile(rb"\\u[0-9a-fA-F]{4}")
_ESCAPE_CHARACTERS = 6
SEPARATOR_CHARACTERS = 2


def count_characters(raw: bytes) -> int:
    """Characters of JSON, the same whether the client writes them as they are or escapes them."""
    return len(raw.decode("utf-8", "replace")) - (_ESCAPE_CHARACTERS - 1) * len(_ESCAPED.findall(raw))


class CountCache:
    """Counts by message, in two halves: when the new half is full it becomes the old one, and the old one is forgotten.

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


# --- the encodings --------------------------------------------------------------------------------

SPECIAL_TOKEN = "<|endoftext|>"  # noqa: S105 (a word of the encoding)
"""Never meant as one here: in a message it is text like any other."""
_DATA = Path(__file__).with_name("data")
_OLD_OPENAI = re.compile(r"gpt-(?:3|4(?!o|-[15](?:-|$)))|text-embedding|babbage|davinci")
_SPLITS: Mapping[EncodingName, str] = {  # the patterns tiktoken defines for them; a test compares
    "cl100k_base": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
        r"|\s+(?!\S)|\s"
    ),
    "o200k_base": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}


def find_encoding(model: str) -> EncodingName:
    """The encoding of an OpenAI model; for all others the newer one, whose error `Calibration` learns."""
    return "cl100k_base" if _OLD_OPENAI.match(plain_name(model)) else "o200k_base"


def ranks(name: EncodingName) -> dict[bytes, int]:
    """Token -> rank. The file holds each token after one byte with its length, in the order of the ranks."""
    packed = lzma.decompress((_DATA / f"{name}.ranks.xz").read_bytes())
    found: dict[bytes, int] = {}
    at = 0
    while at < len(packed):
        end = at + 1 + packed[at]
        found[packed[at + 1 : end]] = len(found)
        at = end
    return found


@cache
def _encoding(name: EncodingName) -> tiktoken.Encoding:
    tokens = ranks(name)
    # Without any special token tiktoken looks for an empty one at every character, which takes half of its time.
    special = {SPECIAL_TOKEN: len(tokens)}
    encoding = tiktoken.Encoding(name, pat_str=_SPLITS[name], mergeable_ranks=tokens, special_tokens=special)
    tokens.clear()  # the encoder has its own copy; ours is 23 MB
    return encoding


def _tokens(text: str, name: EncodingName) -> int:
    return sum(_tokens_of_piece(text[at : at + PIECE_CHARS], name) for at in range(0, len(text), PIECE_CHARS))


def _tokens_of_piece(text: str, name: EncodingName) -> int:
    try:
        return len(_encoding(name).encode(text, disallowed_special=()))
    except ValueError:  # the regular expression ran out of stack, so this is hardly text
        return len(text) // 4


# --- how far a count is from the upstream's, before it was ever compared --------------------------

_PRIORS = {"claude-2": 1.2, "claude-3": 1.2, "claude-4": 1.29, "claude-5": 1.55}


def make_counter_name(upstream: str, model: str) -> str:
    """The key of a calibration: token counts of one upstream and one model family say nothing of others."""
    return f"{upstream}/{model_family(model)}"


def find_prior_calibration(model: str) -> Calibration:
    """The calibration to begin with, before the first usage comes back."""
    return Calibration(_PRIORS.get(model_family(model), 1.0))
