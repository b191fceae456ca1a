"""Tokens of messages: texts by OpenAI's encodings, which `Calibration` corrects for other models.

Markup and media count as fixed numbers of tokens. Each message is counted once and remembered by its bytes; more than a
little is counted in threads. The ranks of the encodings are shipped, because the loader of tiktoken
(https://github.com/openai/tiktoken) would go to the network, without any timeout.
"""

import json
import lzma
import re
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Literal

import tiktoken
from msgspec import Struct, field

from proxy.foundation.lifetime import COUNTING, UNKNOWN, check_work, is_of_stranger, needs_thread
from proxy.foundation.lru import ByteBoundedCache
from proxy.foundation.model_names import plain_name
from proxy.history.identity import MARKERS
from proxy.history.messages import iterate_strings
from proxy.wire.json_body import read_json

MESSAGE_TOKENS = 3  # the markup around each message
TOOL_CALL_TOKENS = 8  # the markup around each tool call
SMALL_PICTURE_TOKENS = 85
"""Tokens of a picture with `detail: low`."""
MEDIA_TOKENS = {
    # A screenshot: <https://platform.openai.com/docs/guides/images-vision#calculating-costs>
    **dict.fromkeys(("image_url", "input_image", "image"), 1_105),
    "input_audio": 600,
    **dict.fromkeys(("file", "input_file", "document"), 3_000),
    "video_url": 10_000,
}
"""Tokens of pictures, recordings, files and videos, by the type of the part."""
_MARKS = frozenset(
    ("role", "type", "id", "tool_call_id", "index", "format", "detail", "audio", "annotations", *MARKERS)
)
"""Members that are short, and no text for the model."""


class Weight(Struct):
    """The parts of a message that are counted in different ways."""

    texts: list[str] = field(default_factory=list)
    markup: int = 0
    media: int = 0
    unread: int = 0
    """Characters of the JSON that are media, sealed, or written twice."""

    def add(self, value: object, name: str = "") -> None:
        """Add a value; *name* is that of the member that holds it."""
        # Members that are long, and readable for their maker only.
        if name in (
            "encrypted_content", "signature", "thought_signature", "data", "extra_content", "provider_specific_fields",
        ):  # fmt: skip
            self.unread += _count_letters(value)
        elif name in ("arguments", "input") and not isinstance(value, str):
            self.texts.append(json.dumps(value))  # an object instead of a string
        elif isinstance(value, dict):
            self._add_part(value)
        elif isinstance(value, list):
            for item in value:
                self.add(item)
        elif isinstance(value, str) and value.startswith("data:") and ";base64," in value[:200]:
            self.media += MEDIA_TOKENS["image" if value.startswith("data:image/") else "file"]
            self.unread += len(value)
        elif isinstance(value, str):
            self.texts.append(value)

    def _add_part(self, part: Mapping[str, object]) -> None:
        kind, picture = str(part.get("type")), part.get("image_url")
        if kind in MEDIA_TOKENS:
            is_small = part.get("detail") == "low" or (isinstance(picture, dict) and picture.get("detail") == "low")
            self.media += SMALL_PICTURE_TOKENS if is_small else MEDIA_TOKENS[kind]
            self.unread += _count_letters(part)
            return
        if kind in ("function", "custom"):
            self.markup += TOOL_CALL_TOKENS
        for name, item in part.items():
            if name not in _MARKS:
                self.add(item, name)


def weigh(raw: bytes) -> Weight:
    """Return the weight of a message, which has a role, or of tools and schemas, which are read as JSON."""
    message = read_json(raw)
    if not isinstance(message, dict) or "role" not in message:
        return Weight([raw.decode(errors="replace")])
    weight = Weight(markup=MESSAGE_TOKENS)
    reasoning: list[str] = []
    if message.get("audio"):  # a spoken answer, by its id
        weight.media += MEDIA_TOKENS["input_audio"]
    reasoning_names = ("reasoning_content", "reasoning", "reasoning_details")
    for name, value in message.items():
        if name not in _MARKS and name not in reasoning_names:
            weight.add(value, name)
    # Some dialects repeat the same text under two names, of which the model reads one.
    for name in reasoning_names:
        if message.get(name):
            copy = Weight()
            copy.add(message[name])
            weight.unread += _count_letters(message[name])
            if _count_letters(copy.texts) > _count_letters(reasoning):
                reasoning = copy.texts
    weight.texts += reasoning
    weight.unread -= _count_letters(reasoning)
    return weight


def _count_letters(value: object) -> int:
    return sum(map(len, iterate_strings(value)))


EncodingName = Literal["o200k_base", "cl100k_base"]
PIECE_CHARS = 100_000
"""Texts are counted in pieces of this length: tiktoken's regular expression gives up on a million blanks."""
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
    """Return a model's encoding. Others' models get OpenAI's newer one, and `Calibration` learns its error."""
    old_model = r"gpt-(?:3|4(?!o|-[15](?:-|$)))|text-embedding|babbage|davinci"
    return "cl100k_base" if re.match(old_model, plain_name(model)) is not None else "o200k_base"


def read_ranks(name: EncodingName) -> dict[bytes, int]:
    """Read the tokens in the order of their ranks. Each comes after a byte with its length."""
    packed_ranks = lzma.decompress(Path(__file__).with_name("data").joinpath(f"{name}.ranks.xz").read_bytes())
    ranks: dict[bytes, int] = {}
    start = 0
    while start < len(packed_ranks):
        stop = start + 1 + packed_ranks[start]
        ranks[packed_ranks[start + 1 : stop]] = len(ranks)
        start = stop
    return ranks


@cache
def build_encoding(name: EncodingName) -> tiktoken.Encoding:
    tokens = read_ranks(name)
    # In a message this token is ordinary text. Without any special token, tiktoken looks for an empty one at every
    # character, which takes half of its time.
    special_tokens = {"<|endoftext|>": len(tokens)}
    encoding = tiktoken.Encoding(name, pat_str=_SPLITS[name], mergeable_ranks=tokens, special_tokens=special_tokens)
    tokens.clear()  # the encoder has its copy; this one is 23 MB
    return encoding


def count_tokens(text: str, name: EncodingName) -> int:
    encoding = build_encoding(name)
    tokens = 0
    for start in range(0, len(text), PIECE_CHARS):
        if start:
            check_work()
        piece = text[start : start + PIECE_CHARS]
        try:
            tokens += len(encoding.encode(piece, disallowed_special=()))
        except ValueError:  # the expression ran out of stack: this is hardly text
            tokens += len(piece) // 4
    return tokens


Estimator = Literal["tokens", "chars"]

INLINE_BYTES = 20_000
"""If the new messages are larger than this, they are counted in a thread."""
LOOK_UP_BYTES = 4_000_000
"""If all messages are larger than this, they are looked up in a thread. Each counts as 400 bytes more."""


class Tokenizers(Struct, eq=False):
    """The tokenizers of a process, with the counts of texts seen lately. 200,000 counts are about 26 MB."""

    remembered_counts: int = 200_000
    _tokenizers: dict[EncodingName | None, "Tokenizer"] = {}

    def of(self, model: str, estimator: Estimator = "tokens") -> "Tokenizer":
        encoding = find_encoding(model) if estimator == "tokens" else None
        if encoding not in self._tokenizers:
            self._tokenizers[encoding] = Tokenizer(encoding, self.remembered_counts)
        return self._tokenizers[encoding]

    async def load(self) -> None:
        """Load the usual encoding in a thread: building it holds the interpreter for some tenths of a second."""
        await COUNTING.run(partial(build_encoding, "o200k_base"))


class Tokenizer(Struct, frozen=True, eq=False):
    """Counts the tokens of raw JSON. Without an encoding that is a quarter of its characters."""

    encoding: EncodingName | None
    counts_max: int
    counts: dict[int, int] = field(default_factory=dict)
    """The counts of texts, the least recently used first. The keys are Python's hashes with the caller's fingerprint:
    64 bits, private to the process."""
    owner: int = 0
    of_owners: ByteBoundedCache[int, "Tokenizer"] = field(default_factory=lambda: ByteBoundedCache(1024 * 1024))
    """Some thousands."""

    def of_owner(self, owner: int) -> "Tokenizer":
        """Return the tokenizer of one tenant, whose timing tells nothing of other tenants' texts."""
        tokenizer = self.of_owners.get(owner)
        if tokenizer is None:
            # The same one for each request: what is known of a conversation is kept by the function that counts.
            tokenizer = Tokenizer(self.encoding, self.counts_max, self.counts, owner)
            self.of_owners[owner] = tokenizer
        return tokenizer

    async def count_all(self, messages: Sequence[bytes]) -> list[int]:
        """Count these texts, so that `count` answers for each of them at once."""
        size = sum(map(len, messages)) + 400 * len(messages)
        if size <= LOOK_UP_BYTES:
            new_messages = [message for message in messages if hash(message) ^ self.owner not in self.counts]
            if sum(map(len, new_messages)) <= INLINE_BYTES:
                return list(map(self.count, messages))
        lane = UNKNOWN if needs_thread(size) and is_of_stranger() else COUNTING
        return await lane.run(self._count_each, messages)

    def count(self, message: bytes) -> int:
        """Return the remembered count of a text, or count it now."""
        key = hash(message) ^ self.owner
        count = self.counts.pop(key, None)
        if count is None:
            count = self._count(message)
            if len(self.counts) >= self.counts_max:
                # The list is made in one step: an iterator would fail if another thread counted meanwhile.
                for old_key in list(self.counts)[: self.counts_max // 2]:
                    self.counts.pop(old_key, None)
        self.counts[key] = count  # as the last one
        return count

    def _count_each(self, messages: Sequence[bytes]) -> list[int]:
        counts = []
        for message in messages:
            check_work()
            counts.append(self.count(message))
        return counts

    def _count(self, message: bytes) -> int:
        weight = weigh(message)
        if self.encoding is None:
            # An escape of six characters is one, and a comma and a blank stand between two messages.
            escapes = len(re.findall(rb"\\u[0-9a-fA-F]{4}", message))
            characters = len(message.decode("utf-8", "replace")) - 5 * escapes + len(", ") - weight.unread
            return round(characters / 4) + weight.media
        tokens = weight.markup + weight.media
        texts_per_check = 64
        for number, text in enumerate(weight.texts, 1):
            tokens += count_tokens(text, self.encoding)
            if number % texts_per_check == 0:
                check_work()
        return tokens
