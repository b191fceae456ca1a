"""What a provider's prompt cache makes of a run of requests, and what they cost, in tokens of new input.

`PrefixBill` is OpenAI's: what a request has in common with one before it is read from the cache. `MarkedBill` is
Anthropic's: only what ends at a mark is kept, and each mark looks back over twenty blocks.
"""

import json

from proxy.lab.replay.replay_history import FOREVER, MARKS, Cache, Marked
from proxy.lab.replay.replay_values import Tokens

READ, WRITE = 0.1, 1.25
BYTES_PER_TOKEN = 4


class PrefixBill:
    """Each request writes all that it has not read."""

    habit = FOREVER

    def __init__(self):
        self.cache, self.tokens = Cache(self.habit, lambda piece: len(piece) // BYTES_PER_TOKEN), Tokens()

    @property
    def share(self):
        """How much of all that was sent was read from the cache."""
        return self.tokens.cached / self.tokens.read

    @property
    def cost(self):
        return READ * self.tokens.cached + WRITE * self.tokens.fresh + self.tokens.unstored

    def add(self, body):
        self.tokens += self.cache.read(list(self.split(json.loads(body))), now=0)

    def split(self, value):
        for part in [[value.get("tools"), value.get("instructions")], *(value.get("input") or value["messages"])]:
            yield json.dumps(part).encode()


class MarkedBill(PrefixBill):
    """A request reads up to the best entry that a mark finds, and writes from there to its last mark."""

    habit = MARKS

    def split(self, value):
        """Tools, system and content in the order in which they are read."""
        contents = [("tools", value.get("tools") or ()), ("system", value.get("system") or ())]
        contents += [(message["role"], message["content"]) for message in value["messages"]]
        for role, content in contents:
            for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                kept = {key: value for key, value in block.items() if key != "cache_control"}
                piece = json.dumps([role, kept]).encode()
                yield Marked(piece) if "cache_control" in block else piece
