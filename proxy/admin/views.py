"""The status of each message of a history: kept, pinned, cleared, folded or summarised."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from proxy.history.messages import NOTE, Message
from proxy.history.request import Request
from proxy.shorten.block import Block
from proxy.shorten.fold import is_of_summary
from proxy.shorten.pipeline import estimate_tokens
from proxy.shorten.rules import Facts, Rules
from proxy.shorten.state import ConversationState

KEPT, PINNED, CLEARED, FOLDED, SUMMARISED = "kept", "pinned", "cleared", "folded", "summarised"


@dataclass(frozen=True, slots=True)
class MessageStatus:
    """The status of one message."""

    status: str
    step: str = ""
    """The step that wrote the text in its place."""
    instead: tuple[Message, ...] = ()
    """The text in its place. Several messages that are replaced by one note have the same."""

    @property
    def is_removed(self) -> bool:
        """Whether it is not forwarded, not even in a shorter form."""
        return self.status in (FOLDED, SUMMARISED)


@dataclass(frozen=True, slots=True)
class View:
    """A history as the model saw it."""

    statuses: tuple[MessageStatus, ...]
    """One per message of the body."""
    messages: tuple[Message, ...]
    block: Block | None

    @property
    def summary(self) -> str:
        """The newest summary, as the model wrote it."""
        if self.block is None or self.block.summary is None:
            return ""
        return self.block.summary.text


def show_without_block(request: Request) -> View:
    """Return the view of a history that was forwarded whole."""
    return View((MessageStatus(KEPT),) * len(request.body), request.body, None)


def show_with_block(request: Request, links: Sequence[bytes], block: Block, rules: Rules) -> View:
    """Return the view of a history under a block. `rules` are those of its policy, with its pins."""
    facts = Facts(usable_tokens=block.window)
    state = ConversationState.of(
        request, links, block, replace(rules, new_blocks=False), count=estimate_tokens, facts=facts
    )
    if not state.has_block:
        return show_without_block(request)
    pins = state.pinned_passages
    statuses = [_find_status(state, index, message, pins) for index, message in enumerate(state.body)]
    return View(tuple(statuses), state.view, block)


def _find_status(state: ConversationState, index: int, message: Message, pins: Sequence[str]) -> MessageStatus:
    steps = []
    notes = []
    for forwarded in state.view:
        if not forwarded.start <= index < max(forwarded.stop, forwarded.start + 1):
            continue
        if not forwarded.literal:
            if forwarded.start == index:
                return MessageStatus(PINNED if _is_pinned(message, pins) else KEPT)
        elif forwarded.made == NOTE:
            notes.append(forwarded)
        else:
            steps.append(forwarded)
    if steps:
        return MessageStatus(CLEARED, steps[0].made, tuple(steps))
    summary = state.block.summary
    is_summarised = any(map(is_of_summary, notes)) or (summary is not None and index < summary.covers)
    return MessageStatus(SUMMARISED if is_summarised else FOLDED, NOTE if notes else "", tuple(notes))


def _is_pinned(message: Message, pins: Sequence[str]) -> bool:
    if not message.is_user and message.role != "system":
        return False
    return any(pin in message.text for pin in pins)
