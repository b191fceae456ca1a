"""One branch of a conversation up to a request: its messages, and the block that stood for them then.

The messages come from the saved originals, the block from the store. The store knows blocks by what they cover, and not
by when they were made. A later block may cover messages that an earlier request held already, so only those blocks are
looked for that could have been there by then. From both follows the view, as it was then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from proxy import assembly
from proxy.admin.routes import AdminContext, Json, run_in_admin_thread
from proxy.admin.views import MessageStatus, View, show_with_block, show_without_block
from proxy.config import Config
from proxy.history.identity import make_block_key
from proxy.history.messages import Message, find_last_assistant
from proxy.history.request import Request
from proxy.shorten.block import Block
from proxy.shorten.rules import Rules
from proxy.store.contract import StoreUnavailable
from proxy.store.transcripts.archive import Archive, Transcript, read_transcript, role_and_text
from proxy.store.transcripts.files import MessageLine
from proxy.wire.chat.chat_format import CHAT_FORMAT
from proxy.wire.redaction import Redaction

PREVIEW_CHARACTERS = 200
TITLE_CHARACTERS = 140
CREATED, OBSERVED = "created", "observed"

Turn = Mapping[str, Any]
"""A request of a conversation, as a row of the activity log."""


@dataclass(frozen=True)
class ConversationBranch:
    """One branch of a conversation, up to one message."""

    transcript: Transcript
    lines: list[MessageLine]
    request: Request
    view: View
    is_observed: bool
    redaction: Redaction

    def describe(self) -> Json:
        """Return the branch as the API shows it: its block, its summary, and the status of each message."""
        title = ""
        for line in self.lines:
            role, text = role_and_text(line.message)
            if role == "user":
                title = cut_title(text)
                break
        statuses = zip(self.request.body, self.view.statuses, strict=True)
        return {
            "title": self._redact(title),
            "at": self.lines[-1].at,
            "block": self._describe_block(),
            "summary": self._redact(self.view.summary),
            "head": [self._redact(role_and_text(line.message)[1]) for line in self.transcript.head_of(self.lines[-1])],
            "pieces": [self._describe_piece(index, *message) for index, message in enumerate(statuses)],
            "why_no_pieces": "",
        }

    def _describe_block(self) -> Json | None:
        """Return the block. `observed`: it was only computed, and is not used."""
        block = self.view.block
        if block is None:
            return None
        return {
            "covers": block.covers,
            "policy": block.policy,
            "reason": block.reason,
            "window": block.window,
            "observed": self.is_observed,
        }

    def describe_message(self, index: int) -> Json:
        """Return a message as it was sent, beside the text that was forwarded instead."""
        message, status = self.request.body[index], self.view.statuses[index]
        role, text = role_and_text(message.raw)
        covered_counts = [forwarded.stop - forwarded.start for forwarded in status.instead]
        return {
            "place": index,
            "role": role,
            "status": status.status,
            "step": status.step,
            "original": self._redact(text),
            "raw": self._redact(message.raw.decode("utf-8", "replace")),
            "instead": [self._redact(role_and_text(forwarded.raw)[1]) for forwarded in status.instead],
            "tells": max([1, *covered_counts]),  # messages that the same note stands for
        }

    @cached_property
    def _tools(self) -> dict[str, str]:
        """Names of tools by the ids that their results answer."""
        return {call.answered_by: call.name for message in self.request.body for call in message.calls}

    def _describe_piece(self, index: int, message: Message, status: MessageStatus) -> Json:
        role, text = role_and_text(message.raw)
        tool = self._tools.get(message.answers, "")
        if not tool and message.calls:
            tool = message.calls[0].name
        bytes_sent = len(message.raw)
        if status.instead or status.is_removed:
            bytes_sent = sum(len(forwarded.raw) for forwarded in status.instead if forwarded.start == index)
        preview = " ".join(text[: 2 * PREVIEW_CHARACTERS].split())[:PREVIEW_CHARACTERS]
        return {
            "place": index,
            "link": self.lines[index].at,  # its name in the originals and in search results
            "role": role,
            "tool": tool,
            "bytes": len(message.raw),
            "bytes_sent": bytes_sent,
            "status": status.status,
            "step": status.step,
            "preview": self._redact(preview),
        }

    def _redact(self, text: str) -> str:
        return self.redaction.of_text(text)[0]


async def open_branch(context: AdminContext, turn: Turn, turns: Sequence[Turn]) -> ConversationBranch | str:
    """Return the branch up to one of these turns, as it was then, or the reason why it cannot be shown."""
    config = context.config()
    tenant = turn["tenant"]
    transcript = await run_in_admin_thread(find_transcript, context.archive, turn["conversation"], tenant)
    if transcript is None:
        return _explain_no_messages(config)
    leaf = turn["link"]
    if leaf not in transcript.messages:
        leaf = next(iter(transcript.leaves()), "")
    lines = transcript.path(leaf)
    request = parse_path(lines)
    if request is None or not lines:
        return "what is kept of this conversation cannot be read as a history"
    try:
        block, is_observed = await _find_block(context, tenant, lines, _count_links(request, lines, turn, turns))
    except StoreUnavailable as fault:
        return f"the blocks cannot be read: {fault}"
    view = await run_in_admin_thread(_build_view, config, request, lines, block)
    return ConversationBranch(transcript, lines, request, view, is_observed, assembly.build_redaction(config))


def _explain_no_messages(config: Config) -> str:
    if config.transcripts.keep == "off":
        return "no originals are kept (`transcripts.keep: off`), so there are no messages to show"
    return (
        "nothing of it is kept here: originals are kept once something is about to be folded away, may have grown too "
        "old, or stand on another machine; a policy can keep none (`transcripts: false`)"
    )


def _count_links(request: Request, lines: list[MessageLine], turn: Turn, turns: Sequence[Turn]) -> int:
    """Return how many links of the chain, from its beginning, a block that stood for it could have covered.

    It was made by the newest turn up to this one that made any, and ended at the last answer in it at most.
    """
    if turn["action"] != OBSERVED and turn["tokens_forwarded"] >= turn["tokens_raw"]:
        return 0
    maker = turn
    for earlier_turn in turns:
        if earlier_turn["at"] <= turn["at"] and earlier_turn["action"] == CREATED:
            maker = earlier_turn
    length = len(lines)
    for number, line in enumerate(lines, 1):
        if line.at == maker["link"]:
            length = number
            break
    return (find_last_assistant(request.body[:length]) or 0) + 2


async def _find_block(
    context: AdminContext, tenant: str, lines: list[MessageLine], link_count: int
) -> tuple[Block | None, bool]:
    """Return the block that covers most, and False; or else one that was only observed, and True."""
    links = links_of(lines)[:link_count]
    if not links:
        return None, False
    for space in (tenant, f"{tenant}/{OBSERVED}"):
        keys = [make_block_key(space, link) for link in reversed(links)]
        stored = (await context.store.find_first(keys))[0]
        if stored is not None:
            return Block.from_bytes(stored.value), space != tenant
    return None, False


def parse_path(lines: Sequence[MessageLine]) -> Request | None:
    """Read saved messages as the history of a request."""
    return CHAT_FORMAT.parse(b'{"messages":[' + b",".join(line.message for line in lines) + b"]}")


def links_of(lines: Sequence[MessageLine]) -> list[bytes]:
    """Return the chain: the link before the first message, and the one after each."""
    return [bytes.fromhex(link) for link in (lines[0].after, *(line.at for line in lines))]


def _build_view(config: Config, request: Request, lines: list[MessageLine], block: Block | None) -> View:
    if block is None:
        return show_without_block(request)
    # The rules as they are now, of the policy that made the block.
    policy = block.policy.partition("@")[0]
    rules = config.policy(policy).rules(policy) if policy in config.all_policies else Rules()
    return show_with_block(request, links_of(lines), block, rules)


def find_transcript(archive: Archive, conversation: str, tenant: str) -> Transcript | None:
    """Return the conversation whose name begins with *conversation*."""
    for saved in archive.find(conversation, tenant):
        return read_transcript(saved)
    return None


def cut_title(text: str) -> str:
    """Return the beginning of a text on one line, cut between two words."""
    line = " ".join(text[: 4 * TITLE_CHARACTERS].split())
    if len(line) <= TITLE_CHARACTERS:
        return line
    return line[:TITLE_CHARACTERS].rpartition(" ")[0] + " …"
