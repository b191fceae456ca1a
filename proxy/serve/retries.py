"""The retries of requests that the proxy makes by itself: for a summary, and for the next round of an answer.

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
    """Ask, and again while *change* returns another question, *retries* times at most.

    Return all questions with their answers.
    """
    exchanges = [(question, await ask(question))]
    while len(exchanges) <= retries:
        next_question = await change(*exchanges[-1])
        if next_question is None:
            break
        exchanges.append((next_question, await ask(next_question)))
    return exchanges
