"""Weight of a message: the texts that a model reads in it, and fixed token prices for markup and media.

Counting a message's JSON is wrong: a picture costs 500 times fewer tokens than its base64, the cost of encrypted
reasoning is unknown, and the model sees neither escapes nor ids. Encoding the texts is the tokenizer's part.
"""

import base64
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from proxy.history.calls import iterate_strings
from proxy.wire.lenient import read_json

MESSAGE_TOKENS = 3  # the markup around each message
TOOL_CALL_TOKENS = 8  # the markup around each tool call
AUDIO_TOKENS = 600
FILE_TOKENS = 3_000
VIDEO_TOKENS = 10_000

_IMAGES = frozenset({"image_url", "input_image", "image"})
_OTHER_MEDIA = {
    "input_audio": AUDIO_TOKENS,
    "file": FILE_TOKENS,
    "input_file": FILE_TOKENS,
    "document": FILE_TOKENS,
    "video_url": VIDEO_TOKENS,
}
_REASONING = ("reasoning_content", "reasoning", "reasoning_details")
_MARKS = frozenset(  # what the model never sees as text, though it is short
    {
        *("role", "type", "id", "tool_call_id", "index", "format", "detail", "audio", "annotations"),
        *("cache_control", "prompt_cache_breakpoint"),
    }
)
_SEALED = frozenset(  # what only its maker can read, and long
    {"encrypted_content", "signature", "thought_signature", "data", "extra_content", "provider_specific_fields"}
)


@dataclass(slots=True)
class Weight:
    """Texts to be encoded, tokens of markup and of media; `unread`: characters of the JSON that are media or sealed."""

    texts: list[str] = field(default_factory=list)
    markup: int = 0
    media: int = 0
    unread: int = 0

    def of_message(self, message: Mapping[str, object]) -> "Weight":
        self.markup += MESSAGE_TOKENS
        if message.get("audio"):  # an earlier spoken answer, by its id
            self.media += AUDIO_TOKENS
        for name, value in message.items():
            if name not in _REASONING:
                self._add_member(name, value)
        self._add_reasoning(message)
        return self

    def _add_reasoning(self, message: Mapping[str, object]) -> None:
        """Add the reasoning once: dialects repeat the same text under two names, and the model reads one of them."""
        texts = [(Weight().of(message[name]), message[name]) for name in _REASONING if message.get(name)]
        longest = max((weight for weight, _ in texts), key=Weight.length, default=Weight())
        self.texts += longest.texts
        self.unread += sum(_letters(value) for _, value in texts) - longest.length()

    def of(self, value: object) -> "Weight":
        match value:
            case str():
                self._add_text(value)
            case list():
                for item in value:
                    self.of(item)
            case dict():
                self._add_part(value)
        return self

    def length(self) -> int:
        return sum(map(len, self.texts))

    def _add_part(self, part: Mapping[str, object]) -> None:
        kind = part.get("type")
        if kind in _IMAGES:
            self._add_picture(part)
        elif kind in _OTHER_MEDIA:
            self._add_unread(_OTHER_MEDIA[str(kind)], part)
        else:
            if kind in ("function", "custom"):
                self.markup += TOOL_CALL_TOKENS
            for name, item in part.items():
                self._add_member(name, item)

    def _add_member(self, name: str, value: object) -> None:
        if name in _MARKS:
            return
        if name in _SEALED:
            self._add_unread(0, value)
        elif name in ("arguments", "input") and not isinstance(value, str):
            self.texts.append(json.dumps(value))  # an object where a string belongs: the model reads its JSON
        else:
            self.of(value)

    def _add_text(self, text: str) -> None:
        if text.startswith("data:") and ";base64," in text[:200]:
            tokens = FILE_TOKENS
            if text.startswith("data:image/"):
                tokens = _price_picture(text, None)
            self._add_unread(tokens, text)
        else:
            self.texts.append(text)

    def _add_picture(self, part: Mapping[str, object]) -> None:
        picture = part.get("image_url")
        url, detail = picture, part.get("detail")
        if isinstance(picture, dict):
            url, detail = picture.get("url"), picture.get("detail")
        self._add_unread(_price_picture(url, detail), part)

    def _add_unread(self, tokens: int, value: object) -> None:
        """Add a value of a fixed price whose letters the model does not read as text."""
        self.media += tokens
        self.unread += _letters(value)


def weigh(raw: bytes) -> Weight:
    """The weight of a message (it has a role), or of a tool, a list of tools or a schema, which are read as JSON."""
    value = read_json(raw)
    if isinstance(value, dict) and "role" in value:
        return Weight().of_message(value)
    return Weight([raw.decode(errors="replace")])


def _letters(value: object) -> int:
    return sum(map(len, iterate_strings(value)))


# OpenAI's tiles: a base price, and one for each 512-pixel square of the picture once it is scaled to fit:
# <https://platform.openai.com/docs/guides/images-vision#calculating-costs>

PICTURE_TOKENS, TILE_TOKENS = 85, 170
UNREADABLE_PICTURE_TOKENS = 1_105
"""A picture whose size cannot be read: the price of a screenshot."""


def _price_picture(url: object, detail: object) -> int:
    if detail == "low":
        return PICTURE_TOKENS
    size = None
    if isinstance(url, str):
        size = read_picture_size(url)
    if size is None:
        return UNREADABLE_PICTURE_TOKENS
    return PICTURE_TOKENS + TILE_TOKENS * _tiles(*size)


def _tiles(width: int, height: int) -> int:
    shrink = min(1.0, 2048 / max(width, height), 768 / min(width, height))
    return ceil(width * shrink / 512) * ceil(height * shrink / 512)


def read_picture_size(url: str) -> tuple[int, int] | None:
    """Width and height of a PNG or JPEG in a data URL, from its first bytes."""
    base64_text = url[:100_000].partition(";base64,")[2]
    try:
        start = base64.b64decode(base64_text[: len(base64_text) // 4 * 4])
    except ValueError:
        return None
    size = _png_size(start) or _jpeg_size(start)
    if size is None or min(size) <= 0:
        return None
    return size


def _png_size(start: bytes) -> tuple[int, int] | None:
    if not start.startswith(b"\x89PNG\r\n\x1a\n"):
        return None
    return int.from_bytes(start[16:20], "big"), int.from_bytes(start[20:24], "big")


def _jpeg_size(start: bytes) -> tuple[int, int] | None:
    """Segments follow one another, each with its length; the first start-of-frame tells height and width."""
    if not start.startswith(b"\xff\xd8"):
        return None
    at = 2
    while at + 9 <= len(start) and start.startswith(b"\xff", at):
        if start[at + 1] in (0xC0, 0xC1, 0xC2):
            height, width = struct.unpack(">HH", start[at + 5 : at + 9])
            return width, height
        at += 2 + int.from_bytes(start[at + 2 : at + 4], "big")
    return None
