"""A choice of conversations by chance, the same for the same seed: every source has its turn.

    keep_large(conversations, 80_000)            those that come to so many tokens
    draw(conversations, 30, seed=1)              thirty of them, one of each source after the other
    take_part(conversations, 2, 5, seed=1)       the second of five parts; each part has its share of every source

A figure that was chosen on some parts is tried on the others.
"""

import random
from collections.abc import Sequence
from itertools import chain, zip_longest

from proxy.lab.replay.replay_history import encode
from proxy.lab.replay.replay_values import Conversation
from proxy.shorten.pipeline import estimate_tokens


def keep_large(conversations: Sequence[Conversation], tokens: int) -> list[Conversation]:
    """Those whose messages come to so many tokens."""
    return [conversation for conversation in conversations if _count(conversation) >= tokens]


def _count(conversation: Conversation) -> int:
    return sum(estimate_tokens(encode(message)) for message in conversation.messages)


def draw(conversations: Sequence[Conversation], count: int, seed: int) -> list[Conversation]:
    """So many of them, in the order in which they were given."""
    chosen = {id(conversation) for conversation in _deal(conversations, seed)[:count]}
    return [conversation for conversation in conversations if id(conversation) in chosen]


def take_part(conversations: Sequence[Conversation], part: int, parts: int, seed: int) -> list[Conversation]:
    """The part with this number, from 1 on. The parts have no conversation in common, and nothing is left over."""
    chosen = {id(conversation) for group in _shuffle(conversations, seed) for conversation in group[part - 1 :: parts]}
    return [conversation for conversation in conversations if id(conversation) in chosen]


def _deal(conversations: Sequence[Conversation], seed: int) -> list[Conversation]:
    dealt = chain.from_iterable(zip_longest(*_shuffle(conversations, seed)))
    return [conversation for conversation in dealt if conversation is not None]


def _shuffle(conversations: Sequence[Conversation], seed: int) -> list[list[Conversation]]:
    """The conversations of each source, shuffled."""
    groups: dict[str, list[Conversation]] = {}
    for conversation in conversations:
        groups.setdefault(conversation.source, []).append(conversation)
    dice = random.Random(seed)  # noqa: S311 (no secret)
    return [dice.sample(group, len(group)) for group in groups.values()]
