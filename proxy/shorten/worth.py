"""Decide whether a shorter view is worth a rewrite, and whether a summary is worth a call of a model.

One test judges a summary twice: before a model is asked, by the longest answer, and again when it is used.
"""

from proxy.shorten.rules import ENOUGH_SHARE
from proxy.shorten.state import ConversationState

READ_PER_CALL = 4
"""Between two calls for summaries, requests read at least this many times as much as one call does."""
LARGE_GAIN = 0.3
"""A block that frees this share of the view is of use, even if the view stays over its limit (decision 0005)."""


def is_worth_rewriting(state: ConversationState, freed_tokens: int, limit: int) -> bool:
    """Return whether a view that is shorter by *freed_tokens* lasts until the next block is due."""
    if freed_tokens < count_required_tokens(state, limit):
        return False
    size = state.size - freed_tokens
    if size <= limit or not _follows_another(state):
        return True
    usable_tokens = state.facts.usable_tokens
    makes_it_fit = usable_tokens is not None and size <= usable_tokens < state.size
    return makes_it_fit or freed_tokens >= state.size * LARGE_GAIN


def count_required_tokens(state: ConversationState, limit: int) -> int:
    """Return how many tokens a block must free while the request fits.

    A block that follows another must bring the view well under the limit, or every turn would make one.
    """
    min_tokens = max(1, int(state.size * state.rules.min_progress))
    if _follows_another(state):
        return max(min_tokens, limit - int(limit * ENOUGH_SHARE))
    return min_tokens


def may_call_again(state: ConversationState) -> bool:
    """Return whether requests have read enough since the last call for a summary to pay for another one.

    Each call in a row whose answer was not used doubles the amount.
    """
    read_tokens = state.facts.read_since_question
    if read_tokens is None:
        return True
    return read_tokens >= READ_PER_CALL * state.size << state.facts.unused_summaries


def _follows_another(state: ConversationState) -> bool:
    return state.has_block and state.block.is_for_window
