"""The same generated conversations in the other two APIs, before an upstream that speaks them.

found = await play(place, MESSAGES, range(40))
assert found.faults == []
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.end_to_end.growing import run
from tests.end_to_end.growing.run import (
    ASKS,
    BYTES_PER_TOKEN,
    OTHER_BYTES,
    OTHER_BYTES_LATER,
    OTHER_MEMBER,
    OTHER_PREFIX,
    POLICIES,
    REPEATED_SHARE,
    SUMMARY_TOO_LONG,
    WINDOWS,
    Findings,
)
from tests.support.apis import MESSAGES, RESPONSES
from tests.support.growing_histories import Conversation
from tests.support.history_judge import LOOK_ALIKE
from tests.support.proxy_client import ask
from tests.support.scripted_upstream import answer, stream
from tests.support.summary_model import account

# A policy that takes tools away changes members of a request, and one that repairs may add to it.
PLAYED = tuple(name for name in POLICIES if name not in ("jp", "middleware"))
INVALID = "made invalid"
OUT_OF_ORDER = "kept parts in another order"
LOST_WORDS = "the newest words of the user are gone"
LONGER = "longer than it came"
ASKED_BYTES = 6_000
"""The end of a request, where a question for a summary is."""


def units_of(api, value):
    """What can be kept or left out; of Messages with its speaker: those of one speaker in a row are one."""
    if api is RESPONSES:
        return [json.dumps(item, sort_keys=True) for item in value["input"]]
    return [
        (message["role"], json.dumps(part, sort_keys=True))
        for message in value["messages"]
        for part in _parts(message["content"])
    ]


def find_words(api, value):
    """The newest words of the user."""
    said = [item["content"] for item in value[api.items] if item.get("role") == "user"]
    if api is RESPONSES:
        return [part["text"] for part in _parts(said[-1]) if "text" in part] if said else []
    return [part["text"] for content in said for part in _parts(content) if part["type"] == "text"][-1:]


def refuse(api, size, window, *, streams):
    if api is MESSAGES:
        return api.refuse(f"prompt is too long: {size} tokens > {window} maximum")
    if streams:
        return stream(*api.refused_events())
    return api.refuse(code="context_length_exceeded")


def is_accepted(reply):
    """True where the upstream took the request; Responses refuses within a stream of status 200, too."""
    return reply.status == 200 and b'"response.failed"' not in reply.body.data


def _parts(content):
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


APIS = {"Messages": MESSAGES, "Responses": RESPONSES}


@dataclass
class Provider:
    """Refuses what is over its window, and writes summaries, good ones and others."""

    api: object
    found: Findings
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    forwarded: dict = field(default_factory=dict)
    """The last body of each model."""

    def __call__(self, request):
        if request.method != "POST":
            return answer({}, 404)
        body, size = request.json, len(request.body) // BYTES_PER_TOKEN
        window = int(body["model"].split("-")[-2])
        if any(words in request.body[-ASKED_BYTES:] for words in ASKS):
            self.found.tally["summaries"] += 1
            if size > window:
                self.found.faults.append((SUMMARY_TOO_LONG, body["model"], size))
            return self._answer_text(
                self.chance.choice([account(), account(), account() + "long " * 20_000, "{}", ""]), body, 1
            )
        self.forwarded[body["model"]] = request.body
        if size > window:
            return refuse(self.api, size, window, streams=body.get("stream"))
        return self._answer_text("Go on.", body, size)

    def _answer_text(self, text, body, size):
        streams = bool(body.get("stream"))
        return self.api.reply((text or " ") if streams else text, max(20, size), streams=streams)


class Run:
    """One conversation through the proxy."""

    def __init__(self, provider: Provider, seed: int) -> None:
        self.provider, self.found, self.api, self.seed = provider, provider.found, provider.api, seed
        self.chance = random.Random(seed)
        self.policy, window = self.chance.choice(PLAYED), self.chance.choice(WINDOWS)
        self.model = f"{self.policy}-{window}-{seed}"
        self.more = {"model": self.model, "stream": self.chance.random() < 0.5}
        self.conversation = Conversation(seed)
        self.turns = self.chance.randrange(3, 22)
        self.turn = 0
        self.before = None
        """The units that the upstream accepted last, and the body of that request."""

    async def begin(self, proxy):
        for _ in range(self.turns // 2):
            await self._take_turn(proxy)

    async def play_to_end(self, proxy):
        await self._repeat(proxy, OTHER_BYTES_LATER)
        while self.turn < self.turns:
            await self._take_turn(proxy)

    async def _take_turn(self, proxy):
        history = [json.loads(raw) for raw in self.conversation.messages]
        body = self.api.write(history, **self.more)
        reply, action = await self._ask(proxy, body)
        self.found.tally.update({"histories": 1, action: 1, "refused": not is_accepted(reply)})
        left = self.provider.forwarded[self.model]
        sent, units = json.loads(left), units_of(self.api, json.loads(left))
        if left != body:
            self.found.tally["rewritten"] += 1
            self._judge(body, left, sent, units)
        if is_accepted(reply) and self.before is not None and action != "created" and self._has_grown(body):
            self._note(OTHER_PREFIX, units[: len(self.before[0])] != self.before[0])
        self.before = (units, body) if is_accepted(reply) else None
        if self.chance.random() < REPEATED_SHARE:
            await self._repeat(proxy, OTHER_BYTES)
        self.conversation.grow()
        self.turn += 1

    def _has_grown(self, body):
        """True where the request begins as the one before: an id that is used again may be one of another kind here."""
        came, earlier = (units_of(self.api, json.loads(each)) for each in (body, self.before[1]))
        return came[: len(earlier)] == earlier

    def _judge(self, body, left, sent, units):
        came = json.loads(body)
        was_valid = not self.api.find_faults(body)
        self.found.tally["valid"] += was_valid
        self._note(INVALID, was_valid and self.api.find_faults(left))
        own, kept = units_of(self.api, came), iter(units_of(self.api, came))
        known = set(own)
        self._note(OUT_OF_ORDER, not all(unit in kept for unit in units if unit in known))
        others = [{key: value[key] for key in value if key != self.api.items} for value in (came, sent)]
        self._note(OTHER_MEMBER, others[0] != others[1])
        data = json.dumps(sent, ensure_ascii=False)
        # What reads like a command's output is taken for that, and may be shortened.
        words = [text for text in find_words(self.api, came) if not LOOK_ALIKE.match(text)]
        self._note(LOST_WORDS, any(json.dumps(text, ensure_ascii=False) not in data for text in words))
        self._note(LONGER, len(left) > len(body))

    async def _repeat(self, proxy, sentence):
        """The last request once more, to whichever worker takes the new connection."""
        if self.before is None:
            return
        units, body = self.before
        reply, action = await self._ask(proxy, body)
        again = units_of(self.api, json.loads(self.provider.forwarded[self.model]))
        if action != "created":  # as where a summary came in between
            self.found.tally["repeated"] += 1
            self._note(sentence, again != units)
        if is_accepted(reply):
            self.before = (again, body)

    async def _ask(self, proxy, body):
        reply = await ask(proxy, body, self.api.path, headers={"authorization": f"Bearer sk-{self.seed}"})
        return reply, reply.head.first("x-compaction")

    def _note(self, sentence, is_found):
        if is_found:
            where = {"seed": self.seed, "turn": self.turn, "model": self.model, "found": is_found}
            self.found.faults.append((sentence, where))


async def play(place: Path, name: str, seeds: Sequence[int], *, histories: int | None = None) -> Findings:
    """These conversations in this API."""
    return await run.play(place, seeds, histories=histories, provider=partial(Provider, APIS[name]), run=Run)
