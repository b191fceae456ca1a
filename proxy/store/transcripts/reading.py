"""A conversation put together again from its lines, and the check that nothing of it is missing or changed.

Several processes may have written the same message; the first one counts. A line whose newline is missing was torn
and does not count. What cannot be read is counted and left out: a transcript with a hole in it is still of use.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from proxy.core.messages import follow, read_message
from proxy.store.transcripts.archive import SavedConversation
from proxy.store.transcripts.lines import AnswerLine, HeadLine, MessageLine, hash_head, parse


@dataclass(frozen=True, slots=True)
class Transcript:
    """All messages of a conversation, forks included, and the answers to them."""

    saved: SavedConversation
    messages: Mapping[str, MessageLine]
    heads: Mapping[str, HeadLine]
    answers: Sequence[AnswerLine]
    duplicates: int = 0
    torn: int = 0
    unreadable: int = 0

    @property
    def tenant(self) -> str:
        return next((line.tenant for line in self.messages.values() if line.tenant), self.saved.tenant)

    @property
    def first_seen(self) -> str:
        return min(self._times(), default="")

    @property
    def last_seen(self) -> str:
        return max(self._times(), default="")

    def leaves(self) -> list[str]:
        """The messages that nothing follows, the newest first."""
        followed = {line.after for line in self.messages.values()}
        leaves = [line for line in self.messages.values() if line.at not in followed]
        return [line.at for line in sorted(leaves, key=lambda line: line.seen, reverse=True)]

    def path(self, leaf: str) -> list[MessageLine]:
        """From the first message to this one, as far back as the lines reach."""
        path, seen, at = [], set(), leaf
        while at in self.messages and at not in seen:
            seen.add(at)
            path.append(self.messages[at])
            at = self.messages[at].after
        return path[::-1]

    def head_of(self, line: MessageLine) -> list[HeadLine]:
        """The system prompts of the request that first carried this message."""
        return [self.heads[name] for name in line.under if name in self.heads]

    def answers_to(self, at: str) -> list[AnswerLine]:
        return [answer for answer in self.answers if answer.to == at]

    def texts(self) -> Iterator[tuple[str, str, str, str]]:
        """Everything in it: at which link, by which role, when, and the text. System prompts have no link."""
        for head in self.heads.values():
            role, text = role_and_text(head.message)
            yield "", role, head.seen, text
        for line in self.messages.values():
            role, text = role_and_text(line.message)
            yield line.at, role, line.seen, text
        for answer in self.answers:
            yield answer.to, "answer", answer.seen, role_and_text(answer.message)[1]

    def _times(self) -> Iterator[str]:
        for lines in (self.messages.values(), self.heads.values(), self.answers):
            yield from (line.seen for line in lines)


def read_transcript(saved: SavedConversation) -> Transcript:
    messages: dict[str, MessageLine] = {}
    heads: dict[str, HeadLine] = {}
    answers: list[AnswerLine] = []
    duplicates = torn = unreadable = 0
    for raw in saved.lines():
        if not raw.endswith(b"\n"):
            torn += 1
            continue
        match parse(raw):
            case MessageLine() as line:
                duplicates += line.at in messages
                messages.setdefault(line.at, line)
            case HeadLine() as head:
                duplicates += head.name in heads
                heads.setdefault(head.name, head)
            case AnswerLine() as answer:
                answers.append(answer)
            case None:
                unreadable += 1
    return Transcript(saved, messages, heads, answers, duplicates, torn, unreadable)


def role_and_text(raw: bytes) -> tuple[str, str]:
    """The role of a message, and its text with its calls. What cannot be read is shown as it stands."""
    try:
        message = read_message(json.loads(raw), raw)
        calls = [f"{call.name}({call.arguments})" for call in message.calls]
        return message.role, "\n".join(filter(None, [message.text, *calls]))
    except (ValueError, RecursionError):
        return "?", raw.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of checking a transcript. Only `faults` are wrong; the rest is worth knowing."""

    transcript: Transcript
    derived: int = 0
    """Links that were computed again from their message, and are right."""
    altered: int = 0
    """Lines that were changed before they were written (secrets): their links stand for the original."""
    other_key: bool = False
    """Not one link could be derived: the store that held their key is gone."""
    faults: tuple[str, ...] = ()


def verify(transcript: Transcript, key: bytes | None) -> Verification:
    """Check that every message follows the one before, and with the key of the chain that none was changed."""
    unaltered = [line for line in transcript.messages.values() if not line.altered]
    altered = len(transcript.messages) - len(unaltered) + sum(bool(head.altered) for head in transcript.heads.values())
    changed = [line for line in unaltered if key and _derive_link(line, key) != line.at]
    derived = len(unaltered) - len(changed) if key else 0
    other_key = bool(changed) and not derived
    faults = [*_find_holes(transcript)]
    if not other_key:
        faults += [f"message {line.at[:16]} is not what it was" for line in changed]
    return Verification(transcript, derived, altered, other_key, tuple(faults))


def _find_holes(transcript: Transcript) -> Iterator[str]:
    if transcript.unreadable:
        yield f"{transcript.unreadable} lines cannot be read"
    for line in transcript.messages.values():
        if not _is_json(line.message):
            yield f"message {line.at[:16]} cannot be read"
        if line.after not in transcript.messages and not line.tenant:
            yield f"message {line.at[:16]} follows {line.after[:16]}, which is in no file"
        if any(name not in transcript.heads for name in line.under):
            yield f"message {line.at[:16]} came under a system prompt that is in no file"
    for head in transcript.heads.values():
        if not head.altered and hash_head(head.message) != head.name:
            yield f"system prompt {head.name[:16]} is not what it was"


def _is_json(raw: bytes) -> bool:
    try:
        json.loads(raw)
    except (ValueError, RecursionError):
        return False
    return True


def _derive_link(line: MessageLine, key: bytes) -> str:
    try:
        return follow(bytes.fromhex(line.after), read_message(json.loads(line.message), line.message), key).hex()
    except (ValueError, RecursionError):
        return ""
