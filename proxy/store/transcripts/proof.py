"""Does every line follow its `after`? The chain of a transcript derived again, from the bytes that were kept.

With the key of the chain (it stands in the store) each link is computed again, so that a message that was changed, by a
disk or by a person, is found. A message that was altered before it was written (secrets, line breaks) cannot be: its
link stands for what the client sent. Of such a line, and of all of them without the key, only its place is checked:
that what it follows is there.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from proxy.core.identity import follow
from proxy.core.messages import understood
from proxy.store.transcripts.lines import Said
from proxy.store.transcripts.reading import Transcript


@dataclass(frozen=True, slots=True)
class Report:
    """What the proof of one conversation came to. Only faults are wrong; the rest is worth knowing."""

    transcript: Transcript
    derived: int = 0
    """Links that were computed again, and are right."""
    altered: int = 0
    """Lines whose links stand for what they were before."""
    other_key: bool = False
    """Not one link could be derived: the store that held their key is gone."""
    orphans: int = 0
    """Answers to messages that are not kept."""
    faults: tuple[str, ...] = ()


def proven(transcript: Transcript, key: bytes | None) -> Report:
    whole = [said for said in transcript.messages.values() if not said.altered]
    altered = len(transcript.messages) - len(whole) + sum(bool(head.altered) for head in transcript.heads.values())
    wrong = [said for said in whole if key and _link(said, key) != said.at]
    derived = len(whole) - len(wrong) if key else 0
    other_key = bool(wrong) and not derived
    return Report(
        transcript,
        derived,
        altered,
        other_key,
        orphans=sum(answer.to not in transcript.messages for answer in transcript.answers),
        faults=(*_holes(transcript), *([] if other_key else map(_changed, wrong))),
    )


def _holes(transcript: Transcript) -> Iterator[str]:
    if transcript.unread:
        yield f"{transcript.unread} lines cannot be read"
    for said in transcript.messages.values():
        if not _is_json(said.message):
            yield f"message {said.at[:16]} cannot be read"
        if said.after not in transcript.messages and not said.tenant:
            yield f"message {said.at[:16]} follows {said.after[:16]}, which is in no file"
        if any(name not in transcript.heads for name in said.under):
            yield f"message {said.at[:16]} came under a system prompt that is in no file"
    for head in transcript.heads.values():
        if not head.altered and blake2b(head.message, digest_size=16).hexdigest() != head.name:
            yield f"system prompt {head.name[:16]} is not what it was"


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


def _changed(said: Said) -> str:
    return f"message {said.at[:16]} is not what it was"


def _link(said: Said, key: bytes) -> str:
    try:
        message = understood(json.loads(said.message), said.message)
        return follow(bytes.fromhex(said.after), message, key).hex()
    except (ValueError, RecursionError):
        return ""
