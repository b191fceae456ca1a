"""The messages of a conversation, from the saved originals, and the block that stands for them, from the store."""

import asyncio
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from proxy.config import Config
from proxy.core.identity import promise_key
from proxy.core.messages import Message, Request
from proxy.core.overlay import Block
from proxy.core.rules import Rules
from proxy.server import stores
from proxy.server.admin import shelf
from proxy.server.admin.fates import Fate, View, seen, speaker, untouched
from proxy.server.admin.routes import Desk
from proxy.store.promises import Found, StoreUnavailable
from proxy.store.transcripts.lines import Said
from proxy.store.transcripts.reading import Transcript
from proxy.wire import chat
from proxy.wire.redaction import Redaction

OBSERVED = "observed"
PREVIEW = 200
FORKS = 50


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One message and what became of it."""

    place: int
    role: str
    tool: str
    bytes: int
    bytes_sent: int
    """Of what stands there instead, or of itself."""
    fate: str
    step: str
    preview: str


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The block that stands for a history."""

    covers: int
    policy: str
    reason: str
    window: int | None
    rehearsed: bool
    """Only observed: it is not used."""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it was sent, beside what was forwarded instead."""

    place: int
    role: str
    fate: str
    step: str
    original: str
    raw: str
    """The same as JSON."""
    instead: list[str]
    tells: int
    """Of so many messages what stands there tells."""


@dataclass(frozen=True)
class History:
    """One branch of a conversation, up to one message."""

    transcript: Transcript
    path: list[Said]
    request: Request
    view: View
    rehearsed: bool
    redaction: Redaction

    @property
    def title(self) -> str:
        words = (speaker(said.message) for said in self.path)
        first = next((told for role, told in words if role == "user"), "")
        return self._clean(shelf.in_short(first))

    @property
    def head(self) -> list[str]:
        return [self._clean(speaker(each.message)[1]) for each in self.transcript.head_of(self.path[-1])]

    @property
    def forks(self) -> list[str]:
        return [leaf for leaf in self.transcript.leaves() if leaf != self.path[-1].at][:FORKS]

    @property
    def standing(self) -> Standing | None:
        block = self.view.block
        if block is None:
            return None
        return Standing(
            covers=block.covers,
            policy=block.policy,
            reason=block.reason,
            window=block.window,
            rehearsed=self.rehearsed,
        )

    @property
    def summary(self) -> str:
        return self._clean(self.view.summary)

    def pieces(self) -> list[Piece]:
        tools = self._tools
        return [
            self._piece(place, message, fate, tools.get(message.answers, ""))
            for place, (message, fate) in enumerate(zip(self.request.body, self.view.fates, strict=True))
        ]

    def opened(self, place: int) -> Opened:
        """IndexError: there is no such message."""
        message, fate = self.request.body[place], self.view.fates[place]
        role, words = speaker(message.raw)
        return Opened(
            place=place,
            role=role,
            fate=fate.fate,
            step=fate.step,
            original=self._clean(words),
            raw=self._clean(message.raw.decode("utf-8", "replace")),
            instead=[self._clean(speaker(each.raw)[1]) for each in fate.instead],
            tells=max((each.stop - each.start for each in fate.instead), default=1) or 1,
        )

    @cached_property
    def _tools(self) -> dict[str, str]:
        """Which tool a result is of."""
        return {call.answered_by: call.name for message in self.request.body for call in message.calls}

    def _piece(self, place: int, message: Message, fate: Fate, tool: str) -> Piece:
        role, words = speaker(message.raw)
        of_own = [each for each in fate.instead if each.start == place]
        return Piece(
            place=place,
            role=role,
            tool=tool or next((call.name for call in message.calls), ""),
            bytes=len(message.raw),
            bytes_sent=sum(len(each.raw) for each in of_own) if fate.instead or fate.is_gone else len(message.raw),
            fate=fate.fate,
            step=fate.step,
            preview=self._clean(" ".join(words[: 2 * PREVIEW].split())[:PREVIEW]),
        )

    def _clean(self, text: str) -> str:
        return self.redaction.of_text(text)[0]


async def opened(desk: Desk, conversation: str, tenant: str, at: str) -> History | str:
    """The history as of this request, or why it cannot be shown."""
    config = desk.config()
    found = await asyncio.to_thread(shelf.kept, desk.originals, conversation, tenant)
    if found is None:
        return _why_not(config)
    leaf = at if at in found.messages else next(iter(found.leaves()), "")
    path = found.path(leaf)
    request = chat.parse(b'{"messages":[' + b",".join(said.message for said in path) + b"]}")
    if request is None or not path:
        return "what is kept of this conversation cannot be read as a history"
    try:
        block, rehearsed = await _standing(desk, tenant, path)
    except StoreUnavailable as fault:
        return f"the blocks cannot be read: {fault}"
    view = await asyncio.to_thread(_seen, config, request, path, block)
    return History(found, path, request, view, rehearsed, stores.redacting(config))


def _why_not(config: Config) -> str:
    if config.transcripts.keep == "off":
        return "no originals are kept (`transcripts.keep: off`), so there are no messages to show"
    return (
        "nothing of it is kept here: originals are kept once something is about to be folded away, may have grown too "
        "old, or stand on another machine; a policy can keep none (`transcripts: false`)"
    )


async def _standing(desk: Desk, tenant: str, path: list[Said]) -> tuple[Block | None, bool]:
    """The block that stands, or, where none does, the one that was only observed."""
    links = [bytes.fromhex(link) for link in (path[0].after, *(said.at for said in path))][::-1]
    for space in (tenant, f"{tenant}/{OBSERVED}"):
        found: Found | None = (await desk.store.longest([promise_key(space, link) for link in links]))[0]
        if found is not None:
            return Block.from_bytes(found.value), space != tenant
    return None, False


def _seen(config: Config, request: Request, path: list[Said], block: Block | None) -> View:
    if block is None:
        return untouched(request)
    links = [bytes.fromhex(link) for link in (path[0].after, *(said.at for said in path))]
    return seen(request, links, block, _rules(config, block.policy.partition("@")[0]))


def _rules(config: Config, policy: str) -> Rules:
    """By which the block was made, as they are now: what it pins, what it takes for an environment's words."""
    return config.policy(policy).rules(policy) if policy in config.all_policies else Rules()


def turn_of(rows: list[dict[str, Any]], at: str) -> dict[str, Any]:
    """The request that is looked at: the one that was asked for, or the newest."""
    return next((row for row in reversed(rows) if row["link"] == at), rows[-1])
