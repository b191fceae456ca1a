"""A recorded conversation, read once: its messages, each request that it was, and the prompt cache of its upstream.

Request *i* carries everything before assistant message *i*, at the recorded time, or else at the pace of those that
have one. The session of an agent that speaks Messages or Responses makes requests of that API, by its format.

Cached are prefixes of whole messages: a little less than a provider might have, never more.
"""

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from proxy.history.messages import Message
from proxy.history.observations import OBSERVATIONS, mark_observations
from proxy.history.request import Count, Request
from proxy.lab.replay.replay_values import Conversation, Json, RecordedUsage, Tokens
from proxy.lab.sessions.session_files import UnreadableError
from proxy.wire.api_format import Try
from proxy.wire.cache_placement import ForwardedView
from proxy.wire.formats import REQUEST_FORMATS
from proxy.wire.http_head import ApiPath
from proxy.wire.known_requests import PiecedRequest


class Habit(Struct, frozen=True):
    least: int
    """Shorter prefixes are not kept."""
    step: int
    """Cached tokens are charged in whole blocks of this many."""
    lifetime: float
    """Seconds without use until a prefix is forgotten."""
    ends_only: bool = False
    """A prefix is kept only at the end of a request."""
    look_back: int = 0
    """If not 0: prefixes are kept at marks, and looked for in this many pieces before each mark."""
    has_client_marks: bool = True
    """The agent marks the end of its requests."""


PROVIDER = Habit(least=1_024, step=128, lifetime=300.0)
FOREVER = Habit(least=0, step=1, lifetime=inf)
# OpenAI from GPT-5.6 on, for a client that sets no breakpoints: one is written after the newest message.
BREAKPOINTS = Habit(least=1_024, step=1, lifetime=1_800.0, ends_only=True)
# Anthropic: a prefix ends at a mark, and from each mark the API looks back over twenty blocks.
MARKS = Habit(least=1_024, step=1, lifetime=300.0, look_back=20)
# The same for an agent that sets no marks, as most libraries: only a proxy can.
UNMARKED = Habit(least=1_024, step=1, lifetime=300.0, look_back=20, has_client_marks=False)
HABITS = {"provider": PROVIDER, "forever": FOREVER, "breakpoints": BREAKPOINTS, "unmarked": UNMARKED}


class Marked(bytes):
    """The request has a cache mark at the end of this piece."""


class Cache:
    def __init__(self, habit: Habit, count: Count) -> None:
        self._habit = habit
        self._count = count
        self._used: dict[int, float] = {}

    def read(self, pieces: Sequence[bytes], now: float) -> Tokens:
        """Read a request, and keep it from now on, up to its last mark if prefixes are kept at marks."""
        total = cached_tokens = stored_tokens = link = 0
        links: list[int] = []
        marks = [place for place, piece in enumerate(pieces) if isinstance(piece, Marked)]
        back = self._habit.look_back
        used, oldest = self._used, now - self._habit.lifetime
        for place, piece in enumerate(pieces):
            link = hash((link, piece))
            links.append(link)
            total += self._count(piece)
            if not back or isinstance(piece, Marked):
                stored_tokens = total
            last_use = used.get(link)
            if last_use is None or last_use < oldest:
                continue
            if not back or any(0 <= mark - place < back for mark in marks):
                cached_tokens = total
        if back:
            links = [links[mark] for mark in marks]
        elif self._habit.ends_only:
            links = links[-1:]
        used.update(dict.fromkeys(links, now))
        cached_tokens = self._charge(cached_tokens)
        stored_tokens = max(stored_tokens, cached_tokens)
        return Tokens(stored_tokens - cached_tokens, cached_tokens, unstored=total - stored_tokens)

    def _charge(self, cached_tokens: int) -> int:
        return cached_tokens // self._habit.step * self._habit.step if cached_tokens >= self._habit.least else 0


PACE_SECONDS = 8.0
"""The median of recorded answers; used if no times are recorded."""


class RequestTurn(Struct, frozen=True):
    number: int
    place: int
    """Index of the assistant message that answered it."""
    request: Request
    seconds: float
    """Since the first one."""


class ReplayHistory:
    def __init__(self, conversation: Conversation, *, has_client_marks: bool = True) -> None:
        own = conversation.own
        self.conversation = conversation
        self._has_client_marks = has_client_marks
        self.path = ApiPath.CHAT if own is None else own.path
        self.format = REQUEST_FORMATS[self.path]
        self.pieces = tuple(map(encode, conversation.messages if own is None else own.elements))
        self.tools = encode(list(conversation.tools)) if conversation.tools else None
        request = self.format.parse(self._write(len(self.pieces)))
        if request is None:
            raise UnreadableError(f"{conversation.name}: not a history of messages")
        self.request = request
        head = request.head_size
        self.messages = request.messages[:head] + mark_observations(request.known, OBSERVATIONS).messages

    def body(self, stop: int, members: bytes = b"") -> bytes:
        """`members`: further ones, each with its comma."""
        return self._write(stop if self.conversation.own is None else self._starts[stop], members)

    def _write(self, stop: int, members: bytes = b"") -> bytes:
        """A request of Messages is marked at its end for the cache, as Claude Code does."""
        own, pieces = self.conversation.own, self.pieces[:stop]
        if own is not None:
            members += b"".join(encode(name) + b": " + encode(value) + b", " for name, value in own.members.items())
            if own.path == ApiPath.MESSAGES and pieces and self._has_client_marks:
                pieces = (*pieces[:-1], encode(_mark(own.elements[stop - 1])))
        tools = b'"tools": ' + self.tools + b", " if self.tools else b""
        model = encode(self.conversation.model)
        key = self.format.list_name.encode()
        return b'{"model": %b, %b%b"%b": [%b]}' % (model, members, tools, key, b", ".join(pieces))

    @cached_property
    def recorded(self) -> Mapping[int, RecordedUsage]:
        usage = self.conversation.recorded
        return {place: usage[there] for place, there in self._answers.items() if there in usage}

    @property
    def places(self) -> list[int]:
        """Indices of the assistant messages that answered a request."""
        return list(self._answers)

    @cached_property
    def _answers(self) -> dict[int, int]:
        conversation, own, messages = self.conversation, self.conversation.own, self.request.messages
        first = max(1, conversation.begins)
        if own is None:
            return {at: at for at, each in enumerate(messages) if each.role == "assistant" and at >= first}
        containers, answers = self._containers, dict[int, int]()
        for there, message in enumerate(conversation.messages):
            if message["role"] != "assistant" or there < first:
                continue
            stop = own.starts[there + 1] if there + 1 < len(own.starts) else len(own.elements)
            span = range(bisect_left(containers, own.starts[there]), bisect_left(containers, stop))
            # An answer may hold nothing but instructions for the core (a search for tools, say).
            for at in span:
                if at and messages[at].role == "assistant":
                    answers[at] = there
                    break
        return answers

    @cached_property
    def _starts(self) -> dict[int, int]:
        """By answer, the number of the agent's own messages or items before it."""
        own = self.conversation.own
        if own is None:
            return {}
        return {at: own.starts[there] for at, there in self._answers.items()}

    @cached_property
    def _containers(self) -> list[int]:
        """By message, the index of the agent's own message or item that it came from."""
        assert isinstance(self.request, PiecedRequest)  # noqa: S101 - its API is not chat completions
        return [-1 if piece is None else piece.container for piece in self.request.pieces]

    def turns(self) -> Iterator[RequestTurn]:
        places = self.places
        for number, (place, seconds) in enumerate(zip(places, self._clock(places), strict=True)):
            yield RequestTurn(number, place, self.request_before(place), seconds)

    def request_before(self, place: int) -> Request:
        if self.conversation.own is None:
            last_request = self.request
            source = last_request.source[: last_request.find_end(place)] + b"]}"
            return replace(
                last_request,
                source=source,
                messages=last_request.messages[:place],
                offsets=last_request.offsets[:place],
            )
        request = self.format.parse(self.body(place))
        assert request is not None  # noqa: S101 - the whole was read
        return request

    def render(self, request: Request, view: Sequence[Message], tools: bytes | None) -> "Forwarded":
        if self.conversation.own is None:
            return Forwarded(split_chat(view, tools), tuple(view))
        return self.read(self._place_marks(self.format.render(request, view, tools), request, view))

    def render_unchanged(self, request: Request) -> "Forwarded":
        """Read the request as it goes to an upstream without a proxy."""
        if self.conversation.own is None:
            return Forwarded(split_chat(request.messages, request.tools), request.messages)
        return self.read(request.source)

    def ask(self, request: Request, put: Try, max_tokens: int) -> Sequence[bytes]:
        """Return a question for a summary, in pieces."""
        if self.conversation.own is None:
            return split_chat(put.messages, put.tools)
        bounds = dict.fromkeys(self.format.find_bounds(request.source, request.model), max_tokens)
        body = self.format.render_question(request, put, bounds)
        if put.aligned:
            body = self._place_marks(body, request, put.messages)
        return self.read(body).pieces

    def _place_marks(self, body: bytes, request: Request, view: Sequence[Message]) -> bytes:
        """Mark *body* as the running proxy does: of a client that sets marks, only the end of the shortened part."""
        return self.format.place_marks(body, request, "auto", ForwardedView(view))

    def read(self, body: bytes) -> "Forwarded":
        """Read a request of the agent's own API."""
        value = json.loads(body)
        pieces = [encode(value[name]) for name in ("tools", "system", "instructions") if value.get(name)]
        for element in _elements(value):
            pieces += _split(element)
            for block in _blocks(element):
                block.pop(_MARK, None)
        request = self.format.parse(encode(value))
        return Forwarded(pieces, () if request is None else request.messages)

    def _clock(self, places: list[int]) -> Iterator[float]:
        """Recorded times never run backwards here; between two of them time passes at the usual pace."""
        now, before = 0.0, None
        for number, place in enumerate(places):
            usage = self.recorded.get(place)
            at = usage.at if usage is not None else None
            if number and before is not None and at is not None:
                now += max(0.0, at - before)
            elif number:
                now += PACE_SECONDS
            if at is not None:
                before = at
            elif before is not None:
                before += PACE_SECONDS
            yield now


class Forwarded(Struct, frozen=True):
    pieces: Sequence[bytes]
    """Tools and instructions, then messages, items or blocks, as the upstream's cache takes them."""
    view: tuple[Message, ...]
    """Its messages, read again."""


_MARK = "cache_control"


def split_chat(view: Sequence[Message], tools: bytes | None) -> Sequence[bytes]:
    pieces = [message.raw for message in view]
    if tools:
        return [tools, *pieces]
    return pieces


def _elements(value: Json) -> list[Json]:
    return value["input"] if "input" in value else value["messages"]  # type: ignore[no-any-return]


def _blocks(element: Json) -> list[Json]:
    content = element.get("content")
    return content if isinstance(content, list) else []


def _split(element: Json) -> Iterator[bytes]:
    """A message of Messages becomes its blocks, with the role, without cache marks."""
    if "type" in element or not _blocks(element):
        yield encode(element)
        return
    for block in _blocks(element):
        piece = encode([element["role"], {name: member for name, member in block.items() if name != _MARK}])
        yield Marked(piece) if _MARK in block else piece


def _mark(message: Json) -> Json:
    """Claude Code marks the last block of its newest message."""
    *blocks, last = message["content"]
    return {**message, "content": [*blocks, {**last, _MARK: {"type": "ephemeral"}}]}


def encode(value: object) -> bytes:
    """As clients write it."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def same(first: Message, second: Message) -> bool:
    return first is second or first.raw == second.raw
