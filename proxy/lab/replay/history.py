"""A recorded conversation, read once: its messages as the heart knows them, and each request that it was.

Request *i* carries everything before assistant message *i*. Where the record tells when each answer came, that is the
clock; where it does not, answers come at the pace that was measured on those that tell.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from proxy.core.agents import OBSERVATIONS, mark_observations
from proxy.core.conversation import Owner
from proxy.core.messages import Message, Request, chain
from proxy.lab.replay.values import Conversation, Json
from proxy.lab.saved import UnreadableError
from proxy.wire.chat import parse

PACE_SECONDS = 8.0
"""Seconds from one answer to the next, where no times are recorded: the median of those that were."""
OWNER = Owner("replay", b"k" * 32)
"""Whose recorded conversations are: one tenant with a key of no secrecy, so that every replay is the same."""


@dataclass(frozen=True, slots=True)
class RequestTurn:
    """One request of a conversation."""

    number: int
    place: int
    """Where the assistant message stands that answered it."""
    request: Request
    links: tuple[bytes, ...]
    seconds: float
    """Since the first one."""


class ReplayHistory:
    """A conversation with all that is the same under every policy."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.pieces = tuple(map(encode, conversation.messages))
        self.tools = encode(list(conversation.tools)) if conversation.tools else None
        request = parse(self.body(len(self.pieces)))
        if request is None:
            raise UnreadableError(f"{conversation.name}: not a history of messages")
        self.request = request
        self._links = chain(request, OWNER.tenant, OWNER.secret)
        head = request.head_size
        self.messages = request.messages[:head] + mark_observations(request.messages[head:], OBSERVATIONS)
        """Those in which an environment speaks as a user are marked."""

    def body(self, stop: int, more: bytes = b"") -> bytes:
        """The request up to a message, as an agent would send it; `more`: further members, each with its comma."""
        model = json.dumps(self.conversation.model).encode()
        tools = b'"tools": ' + self.tools + b", " if self.tools else b""
        return b'{"model": ' + model + b", " + more + tools + b'"messages": [' + b", ".join(self.pieces[:stop]) + b"]}"

    @property
    def places(self) -> list[int]:
        """Indices of the assistant messages that answered a request."""
        first = max(1, self.conversation.begins)
        return [at for at, each in enumerate(self.request.messages) if each.role == "assistant" and at >= first]

    def turns(self) -> Iterator[RequestTurn]:
        whole, head, places = self.request, self.request.head_size, self.places
        for number, (place, seconds) in enumerate(zip(places, self._clock(places), strict=True)):
            request = replace(whole, messages=whole.messages[:place], offsets=whole.offsets[:place])
            yield RequestTurn(number, place, request, self._links[: max(0, place - head) + 1], seconds)

    def _clock(self, places: list[int]) -> Iterator[float]:
        """Recorded times never run backwards here, and what stands between two of them passes at the usual pace."""
        now, before = 0.0, None
        for number, place in enumerate(places):
            told = self.conversation.recorded.get(place)
            at = told.at if told is not None else None
            known = before is not None and at is not None
            now += (max(0.0, at - before) if known else PACE_SECONDS) if number else 0.0  # type: ignore[operator]
            before = at if at is not None else None if before is None else before + PACE_SECONDS
            yield now


def encode(value: Json | list[Json]) -> bytes:
    """JSON as clients write it."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def same(one: Message, other: Message) -> bool:
    return one is other or one.raw == other.raw
