"""The heart as a gateway uses it: it decides, the upstream accepts, the promise is kept in a real store."""

import json
from dataclasses import dataclass, field, replace

from chat import KEY, TENANT, body, parsed

from proxy.core.groups import flaws
from proxy.core.identity import chain, promise_key
from proxy.core.messages import Request
from proxy.core.overlay import Block
from proxy.core.pipeline import Count, quarter
from proxy.core.plan import NeedSummary, Ready, ahead, decide, without_a_model
from proxy.core.rules import Facts, Rules
from proxy.core.scene import Scene
from proxy.core.summary import Summary
from proxy.store.memory import MemoryStore
from proxy.store.promises import Found
from proxy.wire.chat import render


@dataclass
class Heart:
    """One worker. Two that are given the same store are two workers of one house, or one before and after a restart.

    `model` is what a model says whenever it is asked for a summary; without one the ladder serves.
    """

    rules: Rules = field(default_factory=Rules)
    facts: Facts = field(default_factory=Facts)
    tenant: str = TENANT
    conversation: str = ""
    store: MemoryStore = field(default_factory=MemoryStore)
    count: Count = quarter
    model: str = ""
    accounts: dict = field(default_factory=dict)

    def send(self, messages, **more):
        """The upstream takes whatever it is sent."""
        sent = self.decides(messages, **more)
        self.accepted(sent)
        return sent

    def decides(self, messages, **more):
        """What would be sent."""
        ground = self._ground(messages, **more)
        made = self._decided(ground)
        if isinstance(made, NeedSummary) and self.model:
            covers = made.question.covers
            self.accounts[ground.links[covers]] = Summary(covers, self.model)
            made = self._decided(ground, may_ask=False)
        plan = without_a_model(made)
        return Sent(ground.request.source, plan, ground.found, render(ground.request, plan.view, plan.tools))

    def considers(self, messages):
        """What is decided before anybody is asked."""
        return self._decided(self._ground(messages))

    def asks(self, messages):
        """What is asked ahead of need."""
        return self._decided(self._ground(messages), by=ahead)

    def _ground(self, messages, **more):
        request = parsed(body(messages, **more))
        links = chain(request, self.tenant, KEY, self.conversation)
        found, _ = at_once(self.store.longest([promise_key(self.tenant, link) for link in reversed(links)]))
        return Ground(request, links, found)

    def _decided(self, ground, *, by=decide, may_ask=True):
        blocks = () if ground.found is None else (Block.from_bytes(ground.found.value),)
        told = next((self.accounts[link] for link in reversed(ground.links) if link in self.accounts), None)
        facts = replace(self.facts, may_ask=self.facts.may_ask and may_ask, summary=told or self.facts.summary)
        return by(Scene.of(ground.request, ground.links, blocks, self.rules, count=self.count, facts=facts))

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
class Ground:
    """A request, and what is known of its history."""

    request: Request
    links: tuple
    found: Found | None


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
