"""A conversation put together again from its lines, whoever wrote them.

Several processes may have written the same message; the first one counts. A line whose newline is missing was torn
and does not count. What nobody can read is counted and left out: a transcript with a hole in it is of use still.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proxy.store.transcripts.lines import Answered, Head, Said, read
from proxy.store.transcripts.retention import Stored

_GLANCE = re.compile(rb'\{"v":1,"(at|head|answer)":(?:"([^"]*)")?.{0,400}?"seen":"([^"]*)"')
_TENANT = re.compile(rb'"tenant":"([^"\\]*)"')
_START = 1000


@dataclass(frozen=True, slots=True)
class Transcript:
    """All that was said in a conversation, forks included."""

    stored: Stored
    messages: Mapping[str, Said]
    heads: Mapping[str, Head]
    answers: Sequence[Answered]
    twice: int = 0
    torn: int = 0
    unread: int = 0

    @property
    def tenant(self) -> str:
        return next((said.tenant for said in self.messages.values() if said.tenant), self.stored.tenant)

    def leaves(self) -> list[str]:
        """The messages that nothing follows, the newest first."""
        followed = {said.after for said in self.messages.values()}
        leaves = [said for said in self.messages.values() if said.at not in followed]
        return [said.at for said in sorted(leaves, key=lambda said: said.seen, reverse=True)]

    def path(self, leaf: str) -> list[Said]:
        """From the first message to this one, as far back as the lines reach."""
        walked, seen, here = [], set(), leaf
        while here in self.messages and here not in seen:
            seen.add(here)
            walked.append(self.messages[here])
            here = self.messages[here].after
        return walked[::-1]

    def head_of(self, said: Said) -> list[Head]:
        """The system prompts that led the request which first carried this message."""
        return [self.heads[name] for name in said.under if name in self.heads]

    def answers_to(self, at: str) -> list[Answered]:
        return [answer for answer in self.answers if answer.to == at]


@dataclass(frozen=True, slots=True)
class Glance:
    """What a list shows of a conversation: read from the beginnings of its lines."""

    stored: Stored
    tenant: str
    first: str
    last: str
    links: Sequence[str]
    answers: int


def transcript(stored: Stored) -> Transcript:
    messages: dict[str, Said] = {}
    heads: dict[str, Head] = {}
    answers: list[Answered] = []
    twice = torn = unread = 0
    for line in stored.lines():
        if not line.endswith(b"\n"):
            torn += 1
            continue
        match read(line):
            case Said() as said:
                twice += said.at in messages
                messages.setdefault(said.at, said)
            case Head() as head:
                twice += head.name in heads
                heads.setdefault(head.name, head)
            case Answered() as answer:
                answers.append(answer)
            case None:
                unread += 1
    return Transcript(stored, messages, heads, answers, twice, torn, unread)


def glance(stored: Stored) -> Glance:
    links: dict[str, None] = {}
    seen: list[str] = []
    answers, tenant = 0, stored.tenant
    for line in stored.lines():
        start = line[:_START]
        found = _GLANCE.match(start)
        if not found or not line.endswith(b"\n"):
            continue
        seen.append(found[3].decode())
        answers += found[1] == b"answer"
        if found[1] == b"at":
            links[found[2].decode()] = None
        if named := _TENANT.search(start, 0, found.end()):
            tenant = named[1].decode()
    return Glance(stored, tenant, min(seen, default=""), max(seen, default=""), list(links), answers)
