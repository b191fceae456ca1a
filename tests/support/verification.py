"""A judge of saved conversations: does every message follow the one before, and was none changed?"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from proxy.history.identity import canonicalize, compute_link, keep_as_written
from proxy.history.messages import read_message
from proxy.store.transcripts.archive import Transcript
from proxy.store.transcripts.files import MessageLine, find_ids, hash_head, parse


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of checking a transcript. Only `faults` are wrong; the rest is worth knowing."""

    derived: int = 0
    """Links that were computed again from their message, and are right."""
    altered: int = 0
    """Lines that were changed before they were written (secrets): their links stand for the original."""
    faults: tuple[str, ...] = ()


def verify(transcript: Transcript, key: bytes) -> Verification:
    """Check that every message follows the one before, and with the key of the chain that none was changed."""
    unaltered = [line for line in transcript.messages.values() if not line.altered]
    altered = len(transcript.messages) - len(unaltered) + sum(bool(head.altered) for head in transcript.heads.values())
    changed = [line for line in unaltered if line.link not in _derive_links(line, key)]
    faults = [*_find_holes(transcript), *(f"message {line.link[:16]} is not what it was" for line in changed)]
    return Verification(len(unaltered) - len(changed), altered, tuple(faults))


def _find_holes(transcript: Transcript) -> Iterator[str]:
    if unreadable := sum(parse(raw) is None for raw in transcript.saved.lines() if raw.endswith(b"\n")):
        yield f"{unreadable} lines cannot be read"
    for line in transcript.messages.values():
        if not is_json(line.message):
            yield f"message {line.link[:16]} cannot be read"
        if line.after not in transcript.messages and not line.tenant:
            yield f"message {line.link[:16]} follows {line.after[:16]}, which is in no file"
        if any(name not in transcript.heads for name in line.under):
            yield f"message {line.link[:16]} came under a system prompt that is in no file"
    for head in transcript.heads.values():
        if not head.altered and hash_head(head.message) != head.name:
            yield f"system prompt {head.name[:16]} is not what it was"


def _derive_links(line: MessageLine, key: bytes) -> Iterator[str]:
    """The link of a message, as this version derives it and as version 0.1 did."""
    with suppress(ValueError, RecursionError):
        message = read_message(json.loads(line.message), line.message)
        for form in (canonicalize, keep_as_written):
            yield compute_link(bytes.fromhex(line.after), message, key, form=form).hex()


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def duplicates(transcript: Transcript) -> int:
    """How many messages and system prompts were written once more."""
    return sum(count - 1 for count in Counter(find_ids(transcript.saved.lines())).values())


def torn(transcript: Transcript) -> int:
    return sum(not raw.endswith(b"\n") for raw in transcript.saved.lines())
