"""What a provider's prompt cache makes of a run of requests: tokens read, written and cached, and what they cost.

`PrefixBill` is OpenAI's: what a request has in common with one before it is read from the cache. `MarkedBill` is
Anthropic's: only what ends at a mark is kept, and each mark looks back over twenty blocks.
"""

import json
from dataclasses import dataclass, field
from hashlib import blake2b

READ, WRITE = 0.1, 1.25
LOOK_BACK_BLOCKS = 20
BYTES_PER_TOKEN = 3.5


@dataclass
class Bill:
    cached: float = 0
    written: float = 0
    fresh: float = 0

    @property
    def share(self):
        """How much of all that was sent was read from the cache."""
        return self.cached / (self.cached + self.written + self.fresh)

    @property
    def cost(self):
        return READ * self.cached + WRITE * self.written + self.fresh


@dataclass
class PrefixBill(Bill):
    """Each request writes all that it has not read."""

    prefixes: set = field(default_factory=set)

    def add(self, body):
        value = json.loads(body)
        items = value.get("input") or value["messages"]
        digest, is_known = b"", True
        for part in [[value.get("tools"), value.get("instructions")], *items]:
            text = json.dumps(part)
            digest = blake2b(digest + text.encode()).digest()
            is_known = is_known and digest in self.prefixes
            self.prefixes.add(digest)
            tokens = len(text) / BYTES_PER_TOKEN
            self.cached += tokens * is_known
            self.written += tokens * (not is_known)


@dataclass
class MarkedBill(Bill):
    """A request reads up to the best entry that a mark finds, and writes from there to its last mark."""

    entries: set = field(default_factory=set)

    def add(self, body):
        blocks = list(_blocks(json.loads(body)))
        sizes = [len(text) / BYTES_PER_TOKEN for text, _ in blocks]
        names, chain = [], b""
        for text, _ in blocks:
            chain = blake2b(chain + text.encode()).digest()
            names.append(chain)
        marks = [place for place, (_, marked) in enumerate(blocks) if marked]
        seen = (at for mark in marks for at in range(mark, max(-1, mark - LOOK_BACK_BLOCKS), -1))
        hit = max((at for at in seen if names[at] in self.entries), default=-1)
        last = max(marks, default=-1)
        self.cached += sum(sizes[: hit + 1])
        self.written += sum(sizes[hit + 1 : last + 1])
        self.fresh += sum(sizes[last + 1 :])
        self.entries.update(names[mark] for mark in marks)


def _blocks(value):
    """Tools, system and content in the order in which they are read, each with whether it is marked."""
    for tool in value.get("tools") or ():
        yield _without_mark("tools", tool)
    for block in _as_blocks(value.get("system") or ()):
        yield _without_mark("system", block)
    for message in value["messages"]:
        for block in _as_blocks(message["content"]):
            yield _without_mark(message["role"], block)


def _as_blocks(content):
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _without_mark(role, block):
    found = {key: value for key, value in block.items() if key != "cache_control"}
    return json.dumps([role, found]), "cache_control" in block
