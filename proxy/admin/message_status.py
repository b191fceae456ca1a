"""Status of each message: kept, shortened or folded, from a history and the block that was applied to it.

Pure. The view follows from both, as it did then; so each message is kept as it was sent, or stands there shortened by
a step, or is told by a note, or by a summary, or not at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from proxy.core.fold import is_of_summary
from proxy.core.messages import NOTE, Message, Request
from proxy.core.overlay import Block
from proxy.core.pipeline import quarter
from proxy.core.rules import Facts, Rules
from proxy.core.state import ConversationState

KEPT, PINNED, CLEARED, FOLDED, SUMMARISED = "kept", "pinned", "cleared", "folded", "summarised"
FATES = (KEPT, PINNED, CLEARED, FOLDED, SUMMARISED)


@dataclass(frozen=True, slots=True)
class MessageStatus:
    """Status of one message."""

    fate: str
    step: str = ""
    """Which step wrote what stands there instead."""
    instead: tuple[Message, ...] = ()
    """What stands there; of several messages that one note tells, each has it."""

    @property
    def is_gone(self) -> bool:
        """It does not stand there any more, neither as it was nor shortened."""
        return self.fate in (FOLDED, SUMMARISED)


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
        told = self.block.summary if self.block is not None else None
        return told.text if told is not None else ""


def show_without_block(request: Request) -> View:
    """The view of a history without a block."""
    return View((MessageStatus(KEPT),) * len(request.body), request.body, None)


def show_with_block(request: Request, links: Sequence[bytes], block: Block, rules: Rules) -> View:
    """`rules`: those of the policy that made the block, for what it pins."""
    facts = Facts(usable_tokens=block.window)
    scene = ConversationState.of(request, links, (block,), replace(rules, new_blocks=False), count=quarter, facts=facts)
    if not scene.has_block:
        return show_without_block(request)
    passages = scene.pinned_passages
    statuses = [_status(scene, place, message, passages) for place, message in enumerate(scene.body)]
    return View(tuple(statuses), scene.view, block)


def _status(scene: ConversationState, place: int, message: Message, passages: Sequence[str]) -> MessageStatus:
    there = [each for each in scene.view if each.start <= place < max(each.stop, each.start + 1)]
    if any(not each.literal and each.start == place for each in there):
        return MessageStatus(PINNED if _is_pinned(message, passages) else KEPT)
    steps = [each for each in there if each.literal and each.made != NOTE]
    if steps:
        return MessageStatus(CLEARED, steps[0].made, tuple(steps))
    notes = tuple(each for each in there if each.literal)
    summary = scene.block.summary
    told = any(map(is_of_summary, notes)) or (summary is not None and place < summary.covers)
    return MessageStatus(SUMMARISED if told else FOLDED, NOTE if notes else "", notes)


def _is_pinned(message: Message, passages: Sequence[str]) -> bool:
    return (
        bool(passages)
        and (message.is_user or message.role == "system")
        and any(passage in message.text for passage in passages)
    )
