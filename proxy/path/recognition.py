"""Recognition: is a history large enough to matter, whose is it, and is it remembered?

A small history is left alone after a guess or a count. Any other is looked up in one round trip.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from proxy.history.identity import Identity
from proxy.history.observations import was_asked
from proxy.path import planning
from proxy.path.actions import Actions, CountTokens, Identify, NoteLocalWindow, Owner, ProbeWindow
from proxy.path.conversation import Context, Conversation
from proxy.path.planning import COUNT_ERROR_RATIO
from proxy.shorten.marked_history import count_all
from proxy.shorten.memory import FoundValues, LookUp, Memory
from proxy.shorten.rules import Rules

MAX_LOOK_UPS = 8
"""Blocks of other heads that are passed over in one history; each costs a look-up."""
BYTES_PER_TOKEN = 3
"""A low guess: a history below a threshold by this is below it by any tokenizer."""
SMALLEST_WINDOW_TOKENS = 2_048
LOOK_UP_MIN_TOKENS = 1_024
"""Above, a history is looked up even below every threshold: there may be a block from before a reload."""


def find_smallest_bytes(rules: Rules) -> int:
    """Return the size of the smallest request body about which anything is decided, in a window with some room."""
    thresholds = [LOOK_UP_MIN_TOKENS, rules.clear_tokens]
    if rules.trigger_tokens:
        thresholds.append(rules.trigger_tokens)
    return BYTES_PER_TOKEN * min(thresholds)


def guess_tokens(context: Context) -> int:
    """Guess the tokens of a request from its length."""
    return len(context.request.source) // BYTES_PER_TOKEN


def recognize(context: Context) -> Actions[Conversation]:
    """Look a conversation up. It stays unidentified if it is below every threshold and no block stands for it."""
    conversation, guess = Conversation.of(context), guess_tokens(context)
    if guess > SMALLEST_WINDOW_TOKENS and not conversation.window.is_known:
        yield ProbeWindow()  # a small window may matter long before any threshold is reached
    size = yield from _measure(conversation, guess)
    if size is not None:
        return (yield from load_memory(conversation, size))
    if guess >= LOOK_UP_MIN_TOKENS:
        conversation = yield from load_memory(conversation, guess)
        if conversation.memory.block is None:
            return replace(conversation, identity=None)
    return conversation


def _measure(conversation: Conversation, guess: int) -> Actions[int | None]:
    """Count the tokens of the request. Return None if it is below every threshold by any count."""
    context, rules = conversation.context, conversation.rules
    facts = conversation.gather_request_facts(conversation.narrow(context.local_window))
    if was_asked(context.request):
        facts = replace(facts, force=True)
    if planning.is_below_threshold(guess, rules, facts, count_error=COUNT_ERROR_RATIO):
        return None
    size = yield from _count_request(context)
    if planning.is_below_threshold(size, rules, facts, count_error=COUNT_ERROR_RATIO):
        return None
    if not planning.is_below_threshold(size, rules, facts):
        yield ProbeWindow()
    return size


def _count_request(context: Context) -> Actions[int]:
    """Count the tokens of the request. Messages that were counted for an earlier request are not counted again."""
    request, count = context.request, context.count
    counted_messages = request.columns.count_summed(count)
    outside = [*(message.raw for message in request.head), request.tools or b""]
    counts: list[int] = yield CountTokens([*outside, *(message.raw for message in request.body[counted_messages:])])
    return sum(counts[: len(outside)]) + count_all(request.columns, request.body, count)


def load_memory(conversation: Conversation, size: int) -> Actions[Conversation]:
    """Identify the conversation and look up its memory, in one round trip."""
    context = conversation.context
    owner: Owner = yield Identify()
    identity = Identity.of(context.request, owner.tenant, owner.secret, context.name, context.counter)
    conversation = yield from _look_up(_fill_pointer(replace(conversation, identity=identity)), size)
    memory = conversation.memory
    if memory.answered:
        yield NoteLocalWindow(memory.window)
    return replace(conversation, window=conversation.narrow(memory.window))


def _fill_pointer(conversation: Conversation) -> Conversation:
    """Write into the summary's pointer where the originals are. If none are kept there is nothing to point to."""
    rules, identity = conversation.rules, conversation.identified
    if "{" not in rules.summary.pointer:
        return conversation
    path, pointer = conversation.context.locate_originals(identity), ""
    if path:
        pointer = rules.summary.pointer.replace("{path}", path).replace("{conversation}", identity.conversation)
    return replace(conversation, rules=replace(rules, summary=replace(rules.summary, pointer=pointer)))


def _look_up(conversation: Conversation, size: int) -> Actions[Conversation]:
    """Look up the memory of a conversation."""
    context, identity = conversation.context, conversation.identified
    spaces = (False, True) if conversation.observes else (False,)
    look_up = LookUp(
        blocks=[*chain.from_iterable(_list_keys(conversation, partial(identity.block_key, space)) for space in spaces)],
        facts=[*_list_keys(conversation, identity.anchor_key), identity.scale_key],
        # A window that the operator has configured overrules a learned one.
        windows=() if context.window.origin == "config" else conversation.window_keys(identity.tenant),
        summaries=_list_keys(conversation, identity.summary_key_of) if conversation.may_need_summary(size) else (),
    )
    values: FoundValues | None = yield look_up
    memory = Memory.read(values, look_up, identity, context.prior, context.read_block)
    conversation = replace(conversation, memory=memory)
    if conversation.serves(memory.block):
        return conversation
    places = [(link, observed) for observed in spaces for link in reversed(identity.links)]
    return (yield from _find_other_block(conversation, places[look_up.blocks.index(memory.block_key) :]))


def _list_keys(conversation: Conversation, key_of: Callable[[bytes], str]) -> Sequence[str]:
    """Return the keys of all links, the newest first. Only those of links that are new in this request are written."""
    first, *links = conversation.identified.links

    def write_new(keys: Sequence[str]) -> Iterable[str]:
        return map(key_of, links[len(keys) :])

    # The key of the first link says whose they are, and of which kind.
    keys = conversation.context.request.columns.extend(("store keys", key_of(first)), len(links), write_new)
    return [*reversed(keys), key_of(first)]


def _find_other_block(conversation: Conversation, places: Sequence[tuple[bytes, bool]]) -> Actions[Conversation]:
    """Find the longest block of this head, after the longest of all turned out to hold a summary of another one."""
    context, identity, memory = conversation.context, conversation.identified, conversation.memory
    keys = [key for link, observed in places for key in reversed(identity.block_keys(link, observed=observed))]
    keys.remove(memory.block_key)
    for _ in range(MAX_LOOK_UPS):
        look_up = LookUp(blocks=keys)
        values: FoundValues | None = yield look_up
        other_memory = Memory.read(values, look_up, identity, context.prior, context.read_block)
        if conversation.serves(other_memory.block):
            break
        keys = keys[keys.index(other_memory.block_key) + 1 :]
    else:
        other_memory = Memory()
    memory = replace(
        memory,
        block=other_memory.block,
        block_key=other_memory.block_key,
        block_bytes=other_memory.block_bytes,
        observed=other_memory.observed,
    )
    return replace(conversation, memory=memory)
