"""The heart as a gateway uses it: it decides, the upstream accepts, the promise is kept in a real store."""

import json
from dataclasses import dataclass, field

from chat import KEY, TENANT, body, parsed

from proxy.core.groups import flaws
from proxy.core.identity import chain, promise_key
from proxy.core.overlay import Block
from proxy.core.pipeline import Count, quarter
from proxy.core.plan import NeedSummary, Ready, decide
from proxy.core.rules import Facts, Rules
from proxy.store.memory import MemoryStore
from proxy.store.promises import Found
from proxy.wire.chat import render


@dataclass
class Heart:
    """One worker. Two that are given the same store are two workers of one house, or one before and after a restart."""

    rules: Rules = field(default_factory=Rules)
    facts: Facts = field(default_factory=Facts)
    tenant: str = TENANT
    conversation: str = ""
    store: MemoryStore = field(default_factory=MemoryStore)
    count: Count = quarter

    def send(self, messages, **more):
        """The upstream takes whatever it is sent."""
        sent = self.decides(messages, **more)
        self.accepted(sent)
        return sent

    def decides(self, messages, **more):
        request = parsed(body(messages, **more))
        links = chain(request, self.tenant, KEY, self.conversation)
        found, _ = at_once(self.store.longest([promise_key(self.tenant, link) for link in reversed(links)]))
        blocks = () if found is None else (Block.from_bytes(found.value),)
        made = decide(request, links, blocks, self.rules, count=self.count, facts=self.facts)
        plan = made.give_up() if isinstance(made, NeedSummary) else made
        return Sent(request.source, plan, found, render(request, plan.view, plan.tools))

    def accepted(self, sent):
        """As `proxy/compaction/recall.py` does: the first writer wins, and only what was built on is replaced."""
        if sent.plan.block is not None:
            key = promise_key(self.tenant, sent.plan.link)
            over = sent.found.value if sent.found is not None and sent.found.key == key else None
            at_once(self.store.put(key, sent.plan.block.to_bytes(), over=over))


def at_once(asked):
    """What a store in memory answers: it never waits for anything."""
    try:
        asked.send(None)
    except StopIteration as answer:
        return answer.value
    raise AssertionError("a store in memory does not wait")


@dataclass
class Sent:
    """One request as it came and as it left."""

    came: bytes
    plan: Ready
    found: Found | None
    left: bytes

    @property
    def messages(self):
        return json.loads(self.left)["messages"]

    @property
    def head(self):
        return parsed(self.came).head

    @property
    def body(self):
        """As the client sent it."""
        return parsed(self.came).body

    @property
    def raws(self):
        return [message.raw for message in self.plan.view]

    @property
    def flaws(self):
        return flaws(parsed(self.left).body)


def turns(messages):
    """The requests an agent makes on its way through a history: each ends where the model is to speak."""
    for place, message in enumerate(messages):
        if message["role"] == "assistant" and place:
            yield messages[:place]
    yield messages
