"""The retries of what the proxy asks for by itself: a summary, and the next round of an answer.

The request of a client is sent once more as well, by remedies that know its history: `decide/remedies.py`.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


async def ask_again(
    ask: Callable[[Q], Awaitable[A]],
    question: Q,
    change: Callable[[Q, A], Awaitable[Q | None]],
    *,
    retries: int = 1,
) -> list[tuple[Q, A]]:
    """Ask, and once more as long as *change* has a remedy for the answer. Return all that was asked and answered."""
    asked = [(question, await ask(question))]
    while len(asked) <= retries:
        next_question = await change(*asked[-1])
        if next_question is None:
            break
        asked.append((next_question, await ask(next_question)))
    return asked
