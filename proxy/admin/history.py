"""The messages of a conversation as of one request, and what became of each: kept, shortened, folded or summarised.

The messages come from the saved originals, the block that stood for them then from the store. The store knows blocks by
what they cover, not by when they were made. A later one may cover what an earlier request held already; so one is
looked for only among those that could have been there by then. From both follows the view, as it did then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from proxy import assembly
from proxy.admin.context import AdminContext, Json, run_in_admin_thread
from proxy.config import Config
from proxy.history.grouping import find_last_assistant
from proxy.history.identity import make_block_key
from proxy.history.messages import NOTE, Message, Request
from proxy.shorten.block import Block
from proxy.shorten.fold import is_of_summary
from proxy.shorten.pipeline import estimate_tokens
from proxy.shorten.rules import Facts, Rules
from proxy.shorten.state import ConversationState
from proxy.store.contract import Found, StoreUnavailable
from proxy.store.transcripts.archive import Archive, Transcript, read_transcript, role_and_text
from proxy.store.transcripts.saved_lines import MessageLine
from proxy.wire.chat.requests import parse
from proxy.wire.redaction import Redaction

KEPT, PINNED, CLEARED, FOLDED, SUMMARISED = "kept", "pinned", "cleared", "folded", "summarised"
PREVIEW_CHARACTERS = 200
FORKS_LIMIT = 50
TITLE_CHARACTERS = 140


@dataclass(frozen=True, slots=True)
class MessageStatus:
    """Status of one message."""

    status: str
    step: str = ""
    """The step that wrote the text in its place."""
    instead: tuple[Message, ...] = ()
    """The text in its place. Several messages that are replaced by one note have the same."""

    @property
    def is_removed(self) -> bool:
        """True where nothing is in its place, neither the message nor a shorter form."""
        return self.status in (FOLDED, SUMMARISED)


@dataclass(frozen=True, slots=True)
class View:
    """A history as the model saw it."""

    statuses: tuple[MessageStatus, ...]
    """One for each message of the body."""
    messages: tuple[Message, ...]
    block: Block | None

    @property
    def summary(self) -> str:
        """The newest, as the model wrote it."""
        summary = self.block.summary if self.block is not None else None
        return summary.text if summary is not None else ""


def show_without_block(request: Request) -> View:
    """The view of a history without a block."""
    return View((MessageStatus(KEPT),) * len(request.body), request.body, None)


def show_with_block(request: Request, links: Sequence[bytes], block: Block, rules: Rules) -> View:
    """`rules`: those of the policy that made the block, for what it pins."""
    facts = Facts(usable_tokens=block.window)
    state = ConversationState.of(
        request, links, block, replace(rules, new_blocks=False), count=estimate_tokens, facts=facts
    )
    if not state.has_block:
        return show_without_block(request)
    passages = state.pinned_passages
    statuses = [_status(state, place, message, passages) for place, message in enumerate(state.body)]
    return View(tuple(statuses), state.view, block)


def _status(state: ConversationState, place: int, message: Message, passages: Sequence[str]) -> MessageStatus:
    there = [shown for shown in state.view if shown.start <= place < max(shown.stop, shown.start + 1)]
    if any(not shown.literal and shown.start == place for shown in there):
        return MessageStatus(PINNED if _is_pinned(message, passages) else KEPT)
    steps = [shown for shown in there if shown.literal and shown.made != NOTE]
    if steps:
        return MessageStatus(CLEARED, steps[0].made, tuple(steps))
    notes = tuple(shown for shown in there if shown.literal)
    summary = state.block.summary
    is_summarised = any(map(is_of_summary, notes)) or (summary is not None and place < summary.covers)
    return MessageStatus(SUMMARISED if is_summarised else FOLDED, NOTE if notes else "", notes)


def _is_pinned(message: Message, passages: Sequence[str]) -> bool:
    return (
        bool(passages)
        and (message.is_user or message.role == "system")
        and any(passage in message.text for passage in passages)
    )


Turn = Mapping[str, Any]
"""A request, as a row of the activity log."""
CREATED, OBSERVED = "created", "observed"


@dataclass(frozen=True)
class ConversationBranch:
    """One branch of a conversation, up to one message."""

    transcript: Transcript
    path: list[MessageLine]
    request: Request
    view: View
    is_observed: bool
    redaction: Redaction

    def describe(self) -> Json:
        """The branch as the API shows it: its block, its summary, and what became of each message."""
        texts = (role_and_text(line.message) for line in self.path)
        title = next((text for role, text in texts if role == "user"), "")
        return {
            "title": self._redact(shorten(title)),
            "at": self.path[-1].at,
            "block": self._describe_block(),
            "summary": self._redact(self.view.summary),
            "head": [self._redact(role_and_text(line.message)[1]) for line in self.transcript.head_of(self.path[-1])],
            "pieces": [
                self._piece(index, message, status)
                for index, (message, status) in enumerate(zip(self.request.body, self.view.statuses, strict=True))
            ],
            "forks": [leaf for leaf in self.transcript.leaves() if leaf != self.path[-1].at][:FORKS_LIMIT],
            "why_no_pieces": "",
        }

    def _describe_block(self) -> Json | None:
        """The block that stands for it; `observed`: it was only computed, and is not used."""
        if self.view.block is None:
            return None
        shown = {name: getattr(self.view.block, name) for name in ("covers", "policy", "reason", "window")}
        return {**shown, "observed": self.is_observed}

    def message(self, index: int) -> Json:
        """A message as it was sent, beside what was forwarded instead."""
        message, status = self.request.body[index], self.view.statuses[index]
        role, words = role_and_text(message.raw)
        return {
            "place": index,
            "role": role,
            "status": status.status,
            "step": status.step,
            "original": self._redact(words),
            "raw": self._redact(message.raw.decode("utf-8", "replace")),
            "instead": [self._redact(role_and_text(shown.raw)[1]) for shown in status.instead],
            # one note may stand for several messages
            "tells": max((shown.stop - shown.start for shown in status.instead), default=1) or 1,
        }

    @cached_property
    def _tools(self) -> dict[str, str]:
        """Name of the tool by the id that its result answers."""
        return {call.answered_by: call.name for message in self.request.body for call in message.calls}

    def _piece(self, index: int, message: Message, status: MessageStatus) -> Json:
        role, words = role_and_text(message.raw)
        own = [shown for shown in status.instead if shown.start == index]
        is_changed = bool(status.instead) or status.is_removed
        return {
            "place": index,
            "link": self.path[index].at,  # its name in the kept originals and in search results
            "role": role,
            "tool": self._tools.get(message.answers, "") or next((call.name for call in message.calls), ""),
            "bytes": len(message.raw),
            "bytes_sent": sum(len(shown.raw) for shown in own) if is_changed else len(message.raw),
            "status": status.status,
            "step": status.step,
            "preview": self._redact(" ".join(words[: 2 * PREVIEW_CHARACTERS].split())[:PREVIEW_CHARACTERS]),
        }

    def _redact(self, text: str) -> str:
        return self.redaction.of_text(text)[0]


async def open_history(context: AdminContext, turn: Turn, turns: Sequence[Turn]) -> ConversationBranch | str:
    """The history of one of these requests, as it was then; or why it cannot be shown."""
    config, tenant = context.config(), turn["tenant"]
    found = await run_in_admin_thread(find_transcript, context.archive, turn["conversation"], tenant)
    if found is None:
        return _why_no_messages(config)
    leaf = turn["link"] if turn["link"] in found.messages else next(iter(found.leaves()), "")
    path = found.path(leaf)
    request = parse_path(path)
    if request is None or not path:
        return "what is kept of this conversation cannot be read as a history"
    try:
        block, is_observed = await _find_block(context, tenant, path, _covered_links(request, path, turn, turns))
    except StoreUnavailable as fault:
        return f"the blocks cannot be read: {fault}"
    view = await run_in_admin_thread(_build_view, config, request, path, block)
    return ConversationBranch(found, path, request, view, is_observed, assembly.build_redaction(config))


def _why_no_messages(config: Config) -> str:
    if config.transcripts.keep == "off":
        return "no originals are kept (`transcripts.keep: off`), so there are no messages to show"
    return (
        "nothing of it is kept here: originals are kept once something is about to be folded away, may have grown too "
        "old, or stand on another machine; a policy can keep none (`transcripts: false`)"
    )


def _covered_links(request: Request, path: list[MessageLine], turn: Turn, turns: Sequence[Turn]) -> int:
    """At so many places of the chain, from its beginning on, a block that stood for it can have ended.

    It was made by the newest request up to this one that made any, and covered no more than the last answer therein.
    """
    if turn["action"] != OBSERVED and turn["tokens_forwarded"] >= turn["tokens_raw"]:
        return 0
    made = next(
        (earlier for earlier in reversed(turns) if earlier["at"] <= turn["at"] and earlier["action"] == CREATED), turn
    )
    known = [place for place, line in enumerate(path, 1) if line.at == made["link"]]  # not in another branch
    return (find_last_assistant(request.body[: known[0] if known else len(path)]) or 0) + 2


async def _find_block(
    context: AdminContext, tenant: str, path: list[MessageLine], reach: int
) -> tuple[Block | None, bool]:
    """The block that stood for so much of it, or, where none did, the one that was only observed."""
    links = links_of(path)[:reach][::-1]
    for space in (tenant, f"{tenant}/{OBSERVED}") if links else ():
        found: Found | None = (await context.store.find_first([make_block_key(space, link) for link in links]))[0]
        if found is not None:
            return Block.from_bytes(found.value), space != tenant
    return None, False


def parse_path(path: Sequence[MessageLine]) -> Request | None:
    """Saved messages as the history of a request."""
    return parse(b'{"messages":[' + b",".join(line.message for line in path) + b"]}")


def links_of(path: Sequence[MessageLine]) -> list[bytes]:
    """The chain: before the first message, and after each."""
    return [bytes.fromhex(link) for link in (path[0].after, *(line.at for line in path))]


def _build_view(config: Config, request: Request, path: list[MessageLine], block: Block | None) -> View:
    if block is None:
        return show_without_block(request)
    return show_with_block(request, links_of(path), block, _rules(config, block.policy.partition("@")[0]))


def _rules(config: Config, policy: str) -> Rules:
    """By which the block was made, as they are now: what it pins, what it takes for an environment's words."""
    return config.policy(policy).rules(policy) if policy in config.all_policies else Rules()


def find_transcript(archive: Archive, conversation: str, tenant: str) -> Transcript | None:
    """The conversation whose name begins like this."""
    found = next(archive.find(conversation, tenant), None)
    return read_transcript(found) if found is not None else None


def shorten(words: str, most: int = TITLE_CHARACTERS) -> str:
    """The beginning of a text on one line, cut between two words."""
    line = " ".join(words[: 4 * most].split())
    return line if len(line) <= most else line[:most].rpartition(" ")[0] + " …"
