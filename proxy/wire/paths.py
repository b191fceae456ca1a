"""Request paths: normal forms, the part below `/v1`, and the paths that may be called with a key of the proxy.

A path is normalised before anything is decided about it, and the normal form is what is forwarded: a list of allowed
paths that looks at one spelling while the upstream reads another protects nothing.
"""

import re
from fnmatch import fnmatchcase
from functools import lru_cache
from urllib.parse import unquote

CHAT_PATH = "/chat/completions"
RESPONSES_PATH = "/responses"
MESSAGES_PATH = "/messages"
COUNT_TOKENS_PATH = "/messages/count_tokens"
COMPACTED_PATHS = frozenset({CHAT_PATH, RESPONSES_PATH, MESSAGES_PATH, COUNT_TOKENS_PATH})
# Ours: the shortened messages themselves.
COMPACT_PATH = "/chat/completions/compact"
# Known histories that pass through as they are; a client should learn that they were not compacted.
NOT_COMPACTED_PATHS = frozenset({"/responses/compact"})

_WITH_HISTORY = COMPACTED_PATHS | NOT_COMPACTED_PATHS | {COMPACT_PATH}

# Streams of these say when they are finished, in every dialect.
PATHS_WITH_FINISH_REASON = frozenset({CHAT_PATH, "/completions", RESPONSES_PATH, MESSAGES_PATH})

# What an injected key may be used for: to ask a model, and to see which models there are. Files, batches,
# fine-tuning, administration, what was stored of earlier answers: all that acts on the account of the owner of
# the key, and is refused unless the configuration lists it.
INFERENCE_PATHS = (
    CHAT_PATH,
    COMPACT_PATH,
    "/completions",
    "/embeddings",
    RESPONSES_PATH,
    "/responses/compact",
    "/responses/input_tokens",
    MESSAGES_PATH,
    COUNT_TOKENS_PATH,
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
MODEL_PATHS = ("/models", "/models/*")
_INFERENCE = {"POST": INFERENCE_PATHS, "GET": MODEL_PATHS, "HEAD": MODEL_PATHS}

_ORIGIN = re.compile(r"\Ahttps?://[^/?#]*/?", re.IGNORECASE)
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# Printable, and no percent sign without its two digits: once an escape is undone, it could become part of another.
_SAFE = re.compile(r"(?:[\x21-\x24\x26-\x7e]|%[0-9A-Fa-f]{2})*")


def remove_origin(target: str) -> str:
    """The path and query of a request's target, without the scheme and host that some clients write before them."""
    return _ORIGIN.sub("/", target)


@lru_cache(maxsize=256)
def normalize_path(path: str) -> str | None:
    """The one spelling of a path: dots resolved, slashes single, needless escapes undone. None: no path at all."""
    if not path.startswith("/") or "\\" in path or not _SAFE.fullmatch(path):
        return None
    result_segments: list[str] = []
    segments = _ESCAPE.sub(_undo_needless, path).split("/")
    for segment in segments:
        if segment == "..":
            result_segments = result_segments[:-1]
        elif segment not in ("", "."):
            result_segments.append(segment)
    trailing = "/" if result_segments and segments[-1] in ("", ".", "..") else ""
    return "/" + "/".join(result_segments) + trailing


def below_v1(path: str) -> str | None:
    """`/chat/completions` for `/v1/chat/completions`; None for what is not an API path.

    A slash behind a path that holds a history is left out: some clients put it behind the URL they were given.
    """
    if not path.startswith("/v1/"):
        return None
    below = path[3:]
    return below[:-1] if below[:-1] in _WITH_HISTORY and below.endswith("/") else below


def has_v1_twice(below: str) -> bool:
    """True where `/v1/v1` was asked for a path that holds a history: the client's base URL has one `/v1` too many."""
    return below_v1(below) in _WITH_HISTORY


def is_inference(method: str, path: str, listed: tuple[str, ...]) -> bool:
    """True for paths that may be called with a key that the client does not own; never for one escaped twice."""
    unescaped_path = unquote(path).rstrip("/")
    if ".." in unescaped_path or "%" in unescaped_path:
        return False
    return any(fnmatchcase(unescaped_path, pattern) for pattern in (*_INFERENCE.get(method, ()), *listed))


def _undo_needless(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    return character if character in _UNRESERVED else escape[0].upper()
