"""Request paths: normal forms, the part below `/v1`, and what may be called with a key that is not the client's.

A path is normalised before anything is decided about it, and the normal form is what is forwarded: a list
of allowed paths that looks at one spelling while the upstream reads another protects nothing.
"""

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from urllib.parse import unquote

CHAT = "/chat/completions"
# Ours: the shortened messages themselves.
COMPACT = "/chat/completions/compact"
# Known formats that pass through as they are; a client should learn that they were not compacted.
NOT_COMPACTED = frozenset({"/responses", "/messages"})

# Streams of these say when they are finished, in every dialect.
WITH_FINISH_REASON = frozenset({CHAT, "/completions"})

# What an injected key may be used for: to ask a model, and to see which models there are. Files, batches,
# fine-tuning, administration, what was stored of earlier answers: all that acts on the account of whoever owns
# the key, and is refused unless the configuration lists it.
ASKED = (
    CHAT,
    COMPACT,
    "/completions",
    "/embeddings",
    "/responses",
    "/messages",
    "/messages/count_tokens",
    "/audio/speech",
    "/audio/transcriptions",
    "/audio/translations",
    "/images/generations",
    "/images/edits",
    "/images/variations",
    "/moderations",
    "/rerank",
    "/score",
    "/tokenize",
    "/detokenize",
)
SEEN = ("/models", "/models/*")
_INFERENCE = {"POST": ASKED, "GET": SEEN, "HEAD": SEEN}

_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# Printable, and no percent sign without its two digits: once an escape is undone, it could become part of another.
_SAFE = re.compile(r"(?:[\x21-\x24\x26-\x7e]|%[0-9A-Fa-f]{2})*")


@lru_cache(maxsize=256)
def normal(path: str) -> str | None:
    """The one spelling of a path: dots resolved, slashes single, needless escapes undone. None: no path at all."""
    if not path.startswith("/") or "\\" in path or not _SAFE.fullmatch(path):
        return None
    kept: list[str] = []
    segments = _ESCAPE.sub(_undo_needless, path).split("/")
    for segment in segments:
        if segment == "..":
            kept = kept[:-1]
        elif segment not in ("", "."):
            kept.append(segment)
    trailing = "/" if kept and segments[-1] in ("", ".", "..") else ""
    return "/" + "/".join(kept) + trailing


def below_v1(path: str) -> str | None:
    """`/chat/completions` for `/v1/chat/completions`; None for what is not an API path."""
    return path[3:] if path.startswith("/v1/") else None


def is_inference(method: str, path: str, listed: tuple[str, ...]) -> bool:
    """True for paths that may be called with a key that the client does not own; never for one escaped twice."""
    spelled = unquote(path).rstrip("/")
    if ".." in spelled or "%" in spelled:
        return False
    return any(fnmatchcase(spelled, pattern) for pattern in (*_INFERENCE.get(method, ()), *listed))


def _undo_needless(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    return character if character in _UNRESERVED else escape[0].upper()
