"""The most that a rewrite can free, by what each message of the view can give, which the next request continues.

    view             task   call   result   newest words   answer
    a fold may take    20     15      900             50       15      tokens of each message
                       20  +  15   +  900                              the newest words stay, and the newest part

A history that stays over its limit asks at every turn whether a rewrite would free enough, and a draft reads all of it.
A rewrite that a bound rules out is not tried. The bounds follow from the view alone, so each worker has the same.
"""

from collections.abc import Collection, Iterator, Sequence
from math import inf

from proxy.history.messages import Message
from proxy.history.pins import must_stay
from proxy.history.request import Count
from proxy.shorten.attempts import DEEPEST
from proxy.shorten.pipeline import Step
from proxy.shorten.rules import Keep
from proxy.shorten.state import ConversationState
from proxy.tools.tool_call import ToolCall


def bound_cleared(state: ConversationState, keep: Keep) -> float:
    """Return the most tokens that the when-full steps can free; infinite if one of them cannot tell."""
    known_view, rules, passages = state.known_view, state.rules, state.pinned_passages

    def bound_new(earlier: Sequence[float]) -> Iterator[float]:
        first = len(earlier)
        for message, call in zip(state.view[first:], known_view.callers[first:], strict=True):
            is_free = not must_stay(message, passages)
            yield bound_message(rules.when_full, message, call, state.estimate) if is_free else 0.0

    causes = rules.when_full, state.estimate, passages
    tokens = known_view.column("clearable tokens", bound_new, *causes)[: state.find_cut(keep)]
    if not any(tokens):
        return 0.0
    documents = state.find_documents(state.view, state.facts.usable_tokens)
    return _sum_up(state, tokens, documents | state.needs.in_use)


def bound_message(steps: Sequence[Step], message: Message, call: ToolCall | None, estimate: Count) -> float:
    """Return the most tokens that these steps can free of one message."""
    tokens = 0.0
    for step in steps:
        # Looked up by name: a check against a protocol takes longer than the decision on a request.
        worth = getattr(step, "worth", None)
        tokens += inf if worth is None else worth(message, call, estimate)
    return tokens


def bound_folded(state: ConversationState) -> float:
    """Return the most tokens that a rewrite can free: a fold or a summary can take all that need not stay.

    So does a rewrite without them that removes stray results, or reasoning which is bound to the history before it.
    """
    rules, passages, estimate = state.rules, state.pinned_passages, state.estimate
    keeps = DEEPEST, rules.keep  # a policy that keeps nothing takes the last answer as well
    binds_reasoning = state.binds_reasoning(is_refused=state.block.is_reasoning_refused)
    if not (rules.fold or rules.summary.enabled or rules.repair or binds_reasoning):
        return max(bound_cleared(state, keep) for keep in keeps)
    tokens = state.known_view.map(
        "foldable tokens",
        lambda message: 0 if must_stay(message, passages) else estimate(message.raw),
        estimate,
        passages,
    )
    cut = max(map(state.find_cut, keeps))
    # Of the newest part, stray results go, and reasoning that is bound.
    free = list(tokens[:cut])
    if binds_reasoning or rules.repair:
        newest = zip(state.view[cut:], tokens[cut:], state.known_view.callers[cut:], strict=True)
        for message, count, call in newest:
            is_stray = rules.repair and message.is_result and call is None
            may_go = is_stray or (binds_reasoning and message.has_claude_thinking)
            free.append(count if may_go else 0)
    return _sum_up(state, free, state.newest_words)


def _sum_up(state: ConversationState, tokens: Sequence[float], staying: Collection[int]) -> float:
    """Add up the tokens of the first messages of the view, without the client's own messages at these starts."""
    messages = zip(state.view, tokens, strict=False)
    free = [count for message, count in messages if message.start not in staying or message.literal]
    return state.calibration.ratio * sum(free)
