"""The most that a rewrite can free, by sums over the view which the next request continues.

    view             task   call   result   newest words   answer
    may be folded      20     35      935            935     950      the tokens of each message and of all before it
                                                    ^ older than what even the deepest fold keeps

A history that stays over its limit asks at every turn whether a rewrite would free enough, and a draft reads all of it.
A rewrite that a bound rules out is not tried. The bounds follow from the view alone, so each worker has the same.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from math import inf
from operator import attrgetter

from msgspec import Struct

from proxy.history.identity import remove_wrapping
from proxy.history.messages import Message
from proxy.history.pins import must_stay
from proxy.history.request import Count
from proxy.shorten.attempts import DEEPEST
from proxy.shorten.documents import may_keep, read_documents
from proxy.shorten.pipeline import Step
from proxy.shorten.rules import Keep
from proxy.shorten.state import ConversationState
from proxy.tools.tool_call import ToolCall


class _Clearable(Struct, frozen=True):
    tokens: float = 0.0
    """The most that steps can free of a message and all before it."""
    documents: frozenset[bytes] = frozenset()
    """The contents of the documents among them, which stay whole."""


def bound_cleared(state: ConversationState, keep: Keep) -> float:
    """Return the most tokens that the when-full steps can free; infinite if one of them cannot tell."""
    known_view, rules, window = state.known_view, state.rules, state.facts.usable_tokens
    passages, estimate = state.pinned_passages, state.estimate
    cut = state.find_cut(keep)

    def add_up(earlier: Sequence[_Clearable]) -> Iterator[_Clearable]:
        sums = earlier[-1] if earlier else _Clearable()
        readings = read_documents(state.known) if rules.keep_documents else ()
        first = len(earlier)
        for message, call in zip(known_view.messages[first:], known_view.callers[first:], strict=True):
            content = b""
            if readings and message.made == "" and readings[message.start].is_document:
                content = remove_wrapping(message.content)
            if content and may_keep(content, window) and content not in sums.documents:
                sums = _Clearable(sums.tokens, sums.documents | {content})
            elif not must_stay(message, passages):
                cleared_tokens = bound_message(rules.when_full, message, call, estimate)
                sums = _Clearable(sums.tokens + cleared_tokens, sums.documents)
            yield sums

    causes = estimate, passages, rules.when_full, rules.keep_documents, window
    sums = known_view.column("clearable tokens", add_up, *causes)
    return state.calibration.ratio * sums[cut - 1].tokens if cut else 0.0


def bound_message(steps: Sequence[Step], message: Message, call: ToolCall | None, estimate: Count) -> float:
    """Return the most tokens that these steps can free of one message."""
    tokens = 0.0
    for step in steps:
        # Looked up by name: a check against a protocol takes longer than the decision on a request.
        worth = getattr(step, "worth", None)
        tokens += inf if worth is None else worth(message, call, estimate)
    return tokens


def bound_folded(state: ConversationState) -> float:
    """Return the most tokens that a rewrite can free: a fold or a summary can take all that need not stay."""
    rules, passages, estimate = state.rules, state.pinned_passages, state.estimate
    if not rules.fold and not rules.summary.enabled:
        return bound_cleared(state, DEEPEST)
    view, cut = state.view, state.find_cut(DEEPEST)

    def add_up(earlier: Sequence[int]) -> Iterator[int]:
        tokens = earlier[-1] if earlier else 0
        for message in view[len(earlier) :]:
            if not must_stay(message, passages):
                tokens += estimate(message.raw)
            yield tokens

    sums = state.known_view.column("foldable tokens", add_up, estimate, passages)
    tokens = sums[cut - 1] if cut else 0
    for start in state.newest_words:
        place = bisect_left(view, start, hi=cut, key=attrgetter("start"))
        message = view[place] if place < cut else None
        if message is not None and message.start == start and not (message.literal or must_stay(message, passages)):
            tokens -= estimate(message.raw)
    return state.calibration.ratio * tokens
