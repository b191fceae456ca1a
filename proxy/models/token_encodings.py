"""OpenAI's encodings: text to a number of tokens. Only this module imports tiktoken.

The ranks are shipped (`data`) and fed to tiktoken directly: its own loader would go to the network, without any
timeout. <https://github.com/openai/tiktoken>
"""

import lzma
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import tiktoken

from proxy.models.names import plain_name

EncodingName = Literal["o200k_base", "cl100k_base"]
PIECE_CHARS = 100_000
"""Characters encoded at once: tiktoken's regular expression gives up on a million blanks."""
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
    if _OLD_OPENAI.match(plain_name(model)) is not None:
        return "cl100k_base"
    return "o200k_base"


def read_ranks(name: EncodingName) -> dict[bytes, int]:
    """Token -> rank. The file holds each token after one byte with its length, in the order of the ranks."""
    packed = lzma.decompress((_DATA / f"{name}.ranks.xz").read_bytes())
    ranks: dict[bytes, int] = {}
    start = 0
    while start < len(packed):
        stop = start + 1 + packed[start]
        ranks[packed[start + 1 : stop]] = len(ranks)
        start = stop
    return ranks


@cache
def build_encoding(name: EncodingName) -> tiktoken.Encoding:
    tokens = read_ranks(name)
    # Without any special token tiktoken looks for an empty one at every character, which takes half of its time.
    special = {SPECIAL_TOKEN: len(tokens)}
    encoding = tiktoken.Encoding(name, pat_str=_SPLITS[name], mergeable_ranks=tokens, special_tokens=special)
    tokens.clear()  # the encoder has a copy of its own; this one is 23 MB
    return encoding


def count_tokens(text: str, name: EncodingName) -> int:
    encoding = build_encoding(name)
    return sum(_count_piece(text[start : start + PIECE_CHARS], encoding) for start in range(0, len(text), PIECE_CHARS))


def _count_piece(text: str, encoding: tiktoken.Encoding) -> int:
    try:
        return len(encoding.encode(text, disallowed_special=()))
    except ValueError:  # the regular expression ran out of stack, so this is hardly text
        return len(text) // 4
