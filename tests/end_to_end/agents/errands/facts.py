"""What a reader of a request should be able to tell of the errands, judged by words alone.

A fact is told where its words stand close together in one text of the request: a result, a placeholder, a note.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.end_to_end.agents.errands.plan import WORD

CLOSE = 700  # characters
AS_FAR_AS_IN_THE_RESULT = 4_000


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    words: tuple[str, ...]
    """Each is a pattern, and the first is what the others must be close to."""
    within: int = CLOSE


FACTS = (
    Fact("the id of the charge", (r"ch_3Nw7Qx2eZvKYlo",)),
    Fact("the charge succeeded", (r"ch_3Nw7Qx2eZvKYlo", r"succeeded"), AS_FAR_AS_IN_THE_RESULT),
    Fact("the first deploy was rolled back", (r"dep_7741", r"(?i)rolled.back")),
    Fact("the second deploy is live", (r"dep_7742", r"\bLIVE\b")),
    Fact("the pushed commit", (r"9c3b7d2", r"fix/retry-budget")),
    Fact("the id of the mail", (r"msg_0f4e91c2",)),
    Fact("the order on hold, and why", (r"on_hold", r"address_mismatch")),
    Fact("the log's error", (r"pool exhausted: 100/100 connections in use",)),
    Fact("why terraform failed", (r"AccessDenied", r"SetQueueAttributes")),
    Fact("the settlement that failed", (r"stl_0093", r"account_closed")),
    Fact("the end of the traceback", (r"RetryBudgetExceeded: budget of 3 attempts",)),
    Fact("how CI failed", (r"exit code 137", r"integration")),
    Fact("the rule about amounts", (r"All amounts are integer cents",)),
    Fact("the rule about Fridays", (r"Never deploy on a Friday after 14:00",)),
    Fact("the closing word", (rf"close with the word {WORD}",)),
)

DONE_ONCE = [fact.name for fact in FACTS[:6]]
"""What came of the errands that cost money or reach customers: to ask again would be to do it again."""


def told_facts(body: Mapping[str, Any]) -> list[str]:
    """The names of the facts that a chat request tells."""
    said = list(texts(body))
    return [fact.name for fact in FACTS if any(is_told(fact, text) for text in said)]


def is_told(fact: Fact, text: str) -> bool:
    first, *others = fact.words
    for place in re.finditer(first, text):
        around = text[max(place.start() - fact.within, 0) : place.end() + fact.within]
        if all(re.search(words, around) for words in others):
            return True
    return False


def texts(body: Mapping[str, Any]) -> Iterator[str]:
    """Every text and the arguments of every call, each with what it stands in taken off."""
    for message in body["messages"]:
        content = message.get("content") or ""
        yield content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
        for call in message.get("tool_calls") or ():
            yield call["function"]["name"] + json.dumps(call["function"]["arguments"])
