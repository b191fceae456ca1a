"""Request paths: normal forms, the part below `/v1`, and what may be called with a key that is not the client's.

A path is normalised before anything is decided about it, and the normal form is what is forwarded: a list
of allowed paths that looks at one spelling while the upstream reads another protects nothing.
"""

import re
from fnmatch import fnmatchcase
from urllib.parse import unquote

CHAT = "/chat/completions"
# Known formats that pass through as they are; a client should learn that they were not compacted.
NOT_COMPACTED = frozenset({"/responses", "/messages"})

# Streams of these say when they are finished, in every dialect.
WITH_FINISH_REASON = frozenset({CHAT, "/completions"})

# What an injected key may be used for. Files, batches, fine-tuning and administration act on the account
# of whoever owns the key, and are refused unless the configuration lists them.
INFERENCE = (
    "/chat/completions",
    "/completions",
    "/embeddings",
    "/models",
    "/models/*",
    "/responses",
    "/messages",
    "/messages/count_tokens",
    "/audio/*",
    "/images/*",
    "/moderations",
    "/rerank",
    "/score",
    "/tokenize",
    "/detokenize",
)

_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SAFE = re.compile(r"[\x21-\x7e]*")


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


def is_inference(path: str, listed: tuple[str, ...]) -> bool:
    """Whether a path may be called with a key that the client does not own."""
    spelled = unquote(path).rstrip("/")
    return ".." not in spelled and any(fnmatchcase(spelled, pattern) for pattern in (*INFERENCE, *listed))


def _undo_needless(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    return character if character in _UNRESERVED else escape[0].upper()
