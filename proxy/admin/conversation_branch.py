"""One branch of a conversation up to a request: its messages, the block that stood for them then, and their statuses.

The messages come from the saved originals, the block from the store. A later block may cover messages that an earlier
request held already, so only those blocks are looked for that could have been there by then.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from proxy import assembly
from proxy.admin.routes import Json
from proxy.config import Config
from proxy.foundation.errors import NotFound
from proxy.foundation.threads import FILES
from proxy.history.identity import OBSERVED, make_block_key
from proxy.history.messages import NOTE, Message, find_last_assistant
from proxy.history.request import Request
from proxy.shorten.block import Block
from proxy.shorten.fold import is_of_summary
from proxy.shorten.pipeline import estimate_tokens
from proxy.shorten.rules import Facts, Rules
from proxy.shorten.state import ConversationState
from proxy.store.activity_log import ActivityLog
from proxy.store.contract import Store, StoreUnavailable
from proxy.store.transcripts.archive import Archive, Transcript, read_transcript, role_and_text
from proxy.store.transcripts.files import MessageLine
from proxy.wire.chat.chat_format import CHAT_FORMAT
from proxy.wire.redaction import Redaction

TURNS_LIMIT = 2_000
_TURNS = """
select conversation, tenant, team, at, link, messages, action, reason, policy || '@' || policy_version as policy, model,
       upstream, tokens_before as tokens_raw, tokens_after as tokens_forwarded, prompt_tokens as tokens_read,
       cached_tokens as tokens_cached, output_tokens as tokens_written, paid_dollars as paid,
       plain_dollars - paid_dollars as saved, coalesce(tokens_would_be, tokens_after) as tokens_would_be,
       paid_dollars - would_be_dollars as would_save, tokens_unshortened, refetches, user, session, key, request_id
from (select * from turns where conversation = ? order by at desc limit ?) order by at
"""


class MessageStatus(Struct, frozen=True):
    status: Literal["kept", "pinned", "cleared", "folded", "summarised"]
    step: str = ""
    instead: tuple[Message, ...] = ()
    """The messages that stand in its place: the same for all messages that one note replaces."""


class ShownView(Struct, frozen=True):
    """A history as it was forwarded, and the status of each of the messages that were sent."""

    statuses: tuple[MessageStatus, ...]
    messages: tuple[Message, ...]
    block: Block | None
    fetched_again: int = 0
    """The number of results with content that had been shortened before."""


def show_without_block(request: Request) -> ShownView:
    return ShownView((MessageStatus("kept"),) * len(request.body), request.body, None)


def show_with_block(request: Request, links: Sequence[bytes], block: Block, rules: Rules) -> ShownView:
    """Return the status of each message under a block. `rules`: those of the block's policy, with its pins."""
    facts = Facts(usable_tokens=block.window)
    state = ConversationState.of(
        request, links, block, replace(rules, new_blocks=False), count=estimate_tokens, facts=facts
    )
    if not state.has_block:
        return show_without_block(request)
    sent_whole = set()
    replacements = defaultdict[int, list[Message]](list)
    for sent_message in state.parted_view:
        if not sent_message.literal:
            sent_whole.add(sent_message.start)
            continue
        for index in range(sent_message.start, max(sent_message.stop, sent_message.start + 1)):
            replacements[index].append(sent_message)
    statuses = []
    for index, message in enumerate(state.body):
        if index not in sent_whole:
            statuses.append(_find_status(index, replacements[index], block))
        elif _is_pinned(message, state.pinned_passages):
            statuses.append(MessageStatus("pinned"))
        else:
            statuses.append(MessageStatus("kept"))
    return ShownView(tuple(statuses), state.view, block, len(state.fetches))


def _find_status(index: int, replacements: list[Message], block: Block) -> MessageStatus:
    steps = [message for message in replacements if message.made != NOTE]
    if steps:
        return MessageStatus("cleared", steps[0].made, tuple(steps))
    step = NOTE if replacements else ""
    is_covered = block.summary is not None and index < block.summary.covers
    if is_covered or any(map(is_of_summary, replacements)):
        return MessageStatus("summarised", step, tuple(replacements))
    return MessageStatus("folded", step, tuple(replacements))


def _is_pinned(message: Message, pins: Sequence[str]) -> bool:
    if not message.is_user and message.role != "system":
        return False
    return any(pin in message.text for pin in pins)


class ConversationBranch(Struct, frozen=True, dict=True):
    transcript: Transcript
    lines: list[MessageLine]
    request: Request
    view: ShownView
    is_observed: bool
    """A block was only computed, and the messages forwarded as they came."""
    redaction: Redaction

    def describe(self) -> Json:
        block = self.view.block
        described_block = summary = None
        if block is not None:
            summary = block.summary
            described_block = {
                "covers": block.covers,
                "policy": block.policy,
                "reason": block.reason,
                "observed": self.is_observed,
            }
        return {
            "title": self._redact(find_title(self.lines)),
            "at": self.lines[-1].at,
            "block": described_block,
            "summary": self._redact(summary.text) if summary else "",
            "head": [self._redact(role_and_text(line.message)[1]) for line in self.transcript.head_of(self.lines[-1])],
            "pieces": [self._describe_piece(index) for index in range(len(self.request.body))],
            "why_no_pieces": "",
        }

    def describe_message(self, index: int) -> Json:
        message, status = self.request.body[index], self.view.statuses[index]
        role, text = role_and_text(message.raw)
        told_messages = 1
        sent_texts = []
        for sent_message in status.instead:
            told_messages = max(told_messages, sent_message.stop - sent_message.start)
            sent_texts.append(self._redact(role_and_text(sent_message.raw)[1]))
        return {
            "place": index,
            "role": role,
            "status": status.status,
            "step": status.step,
            "original": self._redact(text),
            "raw": self._redact(message.raw.decode("utf-8", "replace")),
            "instead": sent_texts,
            "tells": told_messages,  # strip.js shows a diff if the note stands for this message only
        }

    @cached_property
    def _tools(self) -> dict[str, str]:
        tools = {}
        for message in self.request.body:
            for call in message.calls:
                tools[call.answered_by] = call.name
        return tools

    def _describe_piece(self, index: int) -> Json:
        message, status = self.request.body[index], self.view.statuses[index]
        role, text = role_and_text(message.raw)
        tool = self._tools.get(message.answers, "")
        if not tool and message.calls:
            tool = message.calls[0].name
        bytes_sent = len(message.raw)
        if status.instead or status.status in ("folded", "summarised"):
            bytes_sent = 0
            for sent_message in status.instead:
                if sent_message.start == index:
                    bytes_sent += len(sent_message.raw)
        preview = " ".join(text[:400].split())[:200]
        return {
            "place": index,
            "link": self.lines[index].at,  # as in search results
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


def list_turns(activity_log: ActivityLog, conversation: str) -> list[Json]:
    """Return the newest turns of a conversation, the oldest of them first."""
    return activity_log.query(_TURNS, [conversation, TURNS_LIMIT])


async def open_branch(
    config: Config, archive: Archive, store: Store, turn: Json, turns: Sequence[Json]
) -> ConversationBranch:
    """Return the branch up to one of the turns. NotFound: why it cannot be shown."""
    tenant, is_observed = turn["tenant"], turn["action"] == "observed"
    saved_conversation = await FILES.run(next, archive.find(turn["conversation"], tenant), None)
    if saved_conversation is None:
        raise NotFound(_explain_no_messages(config))
    transcript = await FILES.run(read_transcript, saved_conversation)
    leaf = turn["link"] if turn["link"] in transcript.messages else next(iter(transcript.leaves()), "")
    lines = transcript.path(leaf)
    request = parse_path(lines)
    if request is None or not lines:
        raise NotFound("what is kept of this conversation cannot be read as a history")
    try:
        links = links_of(lines)[: _count_links(request, lines, turn, turns)]
        block = await _find_block(store, f"{tenant}/{OBSERVED}" if is_observed else tenant, links)
    except StoreUnavailable as fault:
        raise NotFound(f"the blocks cannot be read: {fault}") from None
    view = await FILES.run(_build_view, config, request, lines, block)
    return ConversationBranch(transcript, lines, request, view, is_observed, assembly.build_redaction(config))


def _explain_no_messages(config: Config) -> str:
    if config.transcripts.keep == "off":
        return "no originals are kept (`transcripts.keep: off`), so there are no messages to show"
    return (
        "nothing of it is kept here: originals are kept once something is about to be folded away, may have grown too "
        "old, or stand on another machine; a policy can keep none (`transcripts: false`, `store_text: false`)"
    )


def _count_links(request: Request, lines: list[MessageLine], turn: Json, turns: Sequence[Json]) -> int:
    """Return how many links a block of this turn could have covered."""
    if turn["action"] != "observed" and turn["tokens_forwarded"] >= turn["tokens_raw"]:
        return 0
    maker = turn
    for earlier_turn in turns:
        if earlier_turn["at"] <= turn["at"] and earlier_turn["action"] == "created":
            maker = earlier_turn
    length = len(lines)
    for number, line in enumerate(lines, 1):
        if line.at == maker["link"]:
            length = number
            break
    return (find_last_assistant(request.body[:length]) or 0) + 2


async def _find_block(store: Store, space: str, links: Sequence[bytes]) -> Block | None:
    """Return the block that covers most."""
    keys = [make_block_key(space, link) for link in reversed(links)]
    stored_value = (await store.find_first(keys))[0] if keys else None
    return None if stored_value is None else Block.from_bytes(stored_value.value)


def parse_path(lines: Sequence[MessageLine]) -> Request | None:
    return CHAT_FORMAT.parse(b'{"messages":[' + b",".join(line.message for line in lines) + b"]}")


def links_of(lines: Sequence[MessageLine]) -> list[bytes]:
    """Return the link before the first message, and the one after each."""
    links = [bytes.fromhex(lines[0].after)]
    links += [bytes.fromhex(line.at) for line in lines]
    return links


def _build_view(config: Config, request: Request, lines: list[MessageLine], block: Block | None) -> ShownView:
    if block is None:
        return show_without_block(request)
    # The rules as they are now, of the policy that made the block.
    policy = block.policy.partition("@")[0]
    rules = config.policy(policy).rules(policy) if policy in config.all_policies else Rules()
    return show_with_block(request, links_of(lines), block, rules)


def find_title(lines: Iterable[object]) -> str:
    """Return the beginning of the user's first message. Other lines are passed over."""
    for line in lines:
        if isinstance(line, MessageLine):
            role, text = role_and_text(line.message)
            if role == "user":
                return _cut_title(text)
    return ""


def _cut_title(text: str, max_chars: int = 140) -> str:
    line = " ".join(text[: 4 * max_chars].split())
    return line if len(line) <= max_chars else line[:max_chars].rpartition(" ")[0] + " …"
