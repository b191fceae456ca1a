"""The heart as a gateway uses it: it decides, the upstream accepts, the promise is kept."""

import json
from dataclasses import dataclass, field

from chat import KEY, TENANT, body, parsed

from proxy.core.groups import flaws
from proxy.core.identity import chain, promise_key
from proxy.core.overlay import Block
from proxy.core.pipeline import quarter
from proxy.core.plan import NeedSummary, Ready, decide
from proxy.core.rules import Facts, Rules
from proxy.wire.chat import render


@dataclass
class Heart:
    """Blocks are kept as bytes, as in any store: the first writer wins, and only what was built on is replaced."""

    rules: Rules = field(default_factory=Rules)
    facts: Facts = field(default_factory=Facts)
    tenant: str = TENANT
    conversation: str = ""
    store: dict = field(default_factory=dict)
    accepts: bool = True
    standing: str = ""

    def plan(self, messages, **more):
        request = parsed(body(messages, **more))
        links = chain(request, self.tenant, KEY, self.conversation)
        keys = [promise_key(self.tenant, link) for link in reversed(links)]
        found = next((Block.from_bytes(self.store[key]) for key in keys if key in self.store), None)
        self.standing = next((key for key in keys if key in self.store), "")
        made = decide(request, links, (found,) if found else (), self.rules, count=quarter, facts=self.facts)
        return request, made.give_up() if isinstance(made, NeedSummary) else made

    def send(self, messages, **more):
        request, plan = self.plan(messages, **more)
        if plan.block is not None and self.accepts:
            key = promise_key(self.tenant, plan.link)
            if key not in self.store or key == self.standing:
                self.store[key] = plan.block.to_bytes()
        return Sent(request.source, plan, render(request, plan.view, plan.tools))


@dataclass
class Sent:
    """One request as it came and as it left."""

    came: bytes
    plan: Ready
    left: bytes

    @property
    def messages(self):
        return json.loads(self.left)["messages"]

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
