"""Decide whether a shorter view is worth a rewrite, and whether a summary is worth a call of a model.

One test judges a summary twice: before a model is asked, by the longest answer, and again when it is used.
"""

from proxy.shorten.rules import ENOUGH_SHARE
from proxy.shorten.state import ConversationState


def is_worth_rewriting(state: ConversationState, freed_tokens: int, limit: int) -> bool:
    """Return whether a view that is shorter by *freed_tokens* lasts until the next block is due."""
    if freed_tokens < count_required_tokens(state, limit):
        return False
    size = state.size - freed_tokens
    if size <= limit or not _follows_another(state):
        return True
    usable_tokens = state.facts.usable_tokens
    makes_it_fit = usable_tokens is not None and size <= usable_tokens < state.size
    # A large gain is of use, even if the view stays over its limit (decision 0005).
    return makes_it_fit or freed_tokens >= state.size * 0.3


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

    Four times as much as one call reads is enough. Each call in a row whose answer was not used doubles that amount.
    """
    read_tokens = state.facts.read_since_question
    if read_tokens is None:
        return True
    return read_tokens >= 4 * state.size << state.facts.unused_summaries


def _follows_another(state: ConversationState) -> bool:
    return state.has_block and state.block.is_for_window
