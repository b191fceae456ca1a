"""The same generated conversations in the other two APIs, before an upstream that speaks them.

found = await play("Messages", place, range(40))
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
    OTHER_MEMBER,
    POLICIES,
    SUMMARY_TOO_LONG,
    Findings,
)
from tests.support.apis import MESSAGES, RESPONSES, TOO_LONG
from tests.support.growing_histories import Conversation
from tests.support.history_judge import LOOK_ALIKE
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
        return stream(*api.refused_events(TOO_LONG, "context_length_exceeded"))
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


class Run(run.Run):
    """One conversation through the proxy, in the API of its provider."""

    policies = PLAYED

    @property
    def api(self):
        return self.provider.api

    @property
    def path(self):
        return self.api.path

    def start(self, draw):
        self.more = {"model": self.model, "stream": draw < 0.5}
        return Conversation(self.seed)

    def write(self):
        return self.api.write([json.loads(raw) for raw in self.conversation.messages], **self.more)

    def read(self, body):
        return units_of(self.api, json.loads(body))

    def is_accepted(self, reply):
        return is_accepted(reply)

    def has_grown(self, body):
        """An id that is used again may be one of another kind here."""
        came, earlier = self.read(body), self.read(self.before[1])
        return came[: len(earlier)] == earlier

    def judge(self, body, left, reply, where):
        if left == body:
            return
        came, sent = json.loads(body), json.loads(left)
        was_valid = not self.api.find_faults(body)
        self.found.tally["valid"] += was_valid
        self.note(INVALID, where, was_valid and self.api.find_faults(left))
        own, units, kept = set(self.read(body)), self.read(left), iter(self.read(body))
        self.note(OUT_OF_ORDER, where, not all(unit in kept for unit in units if unit in own))
        others = [{key: value[key] for key in value if key != self.api.items} for value in (came, sent)]
        self.note(OTHER_MEMBER, where, others[0] != others[1])
        data = json.dumps(sent, ensure_ascii=False)
        # What reads like a command's output is taken for that, and may be shortened.
        words = [text for text in find_words(self.api, came) if not LOOK_ALIKE.match(text)]
        self.note(LOST_WORDS, where, any(json.dumps(text, ensure_ascii=False) not in data for text in words))
        self.note(LONGER, where, len(left) > len(body))


async def play(name: str, place: Path, seeds: Sequence[int], *, histories: int | None = None) -> Findings:
    """These conversations in this API."""
    return await run.play(place, seeds, histories=histories, provider=partial(Provider, APIS[name]), run=Run)
