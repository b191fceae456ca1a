"""The upstream of the fleet: it answers as a model would, counts, caches nothing, and takes the rules at their word.

What it saw of each conversation is kept as little as possible: the last view, to see whether the next one goes on from
it, and how often it did not.
"""

import json
from collections import Counter
from dataclasses import dataclass, field

from proxy.lab.replay.validity import find_breaches
from tests.support.scripted_upstream import Answerable, Request, answer, pace_turn, text_turn

USAGE_BYTES = 4
TALK = "I have read it; next comes the following file, for the test still fails there, and so on and so on."
PAUSE_SECONDS = 0.03


@dataclass
class Model:
    """`seen`: per conversation (its task), the last messages forwarded."""

    tally: Counter[str] = field(default_factory=Counter)
    """Of requests that only extend the one before, and of those that do not."""
    invalid: Counter[str] = field(default_factory=Counter)
    seen: dict[str, list[str]] = field(default_factory=dict)

    def __call__(self, request: Request) -> Answerable:
        if request.method != "POST":
            return answer({"object": "list", "data": [{"id": "fleet-1", "object": "model"}]})
        self._record(request.json["messages"])
        return pace_turn(text_turn(TALK).using(len(request.body) // USAGE_BYTES), PAUSE_SECONDS)(request)

    def _record(self, messages: list[dict[str, object]]) -> None:
        self.invalid += find_breaches(messages)
        task = next(str(message["content"]) for message in messages if message["role"] == "user")
        shown = [json.dumps(message) for message in messages]
        before = self.seen.get(task)
        if before is not None and len(shown) >= len(before) and shown[: len(before)] == before:
            self.tally["extending"] += 1
        elif before is not None:
            self.tally["rewritten"] += 1
        self.seen[task] = shown
