"""The simulated model: it counts what it is sent, remembers every prefix, refuses what is too long or malformed, and
says the next step of the run.

What a provider's cache does is kept simple and not kind: whole messages only, at least 1,024 tokens, in steps of 128.
The last call in a request tells which step comes next, so retries, restarts and rewritten histories lead nowhere
else. A request that ends in words of a user other than the task is a demand for a summary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from http import HTTPStatus
from itertools import cycle
from time import perf_counter
from typing import Literal

from proxy.history.messages import Message
from proxy.history.request import Request
from proxy.lab.demo.demo_run import NUDGE, TASK, Run, encode
from proxy.lab.demo.demo_summaries import Turnout, answer_demand
from proxy.lab.demo.speech import DemoUsage, ModelReply, refusal
from proxy.models.tokenizer import Tokenizer
from proxy.wire.chat.chat_format import CHAT_FORMAT

WINDOW_TOKENS = 128_000
CACHED_LEAST, CACHED_STEP = 1_024, 128
NAME = "gpt-5.1"
"""The model whose prices are charged and whose tokenizer counts."""

Kind = Literal["turn", "summary"]


def asks_summary(request: Request) -> bool:
    """Agents end their requests with results, or with words of the person."""
    last = request.messages[-1]
    return last.role == "user" and last.text not in (TASK, NUDGE)


@dataclass(frozen=True, slots=True)
class Manner:
    """How the model behaves."""

    window: int = WINDOW_TOKENS
    turn_seconds: float = 0.0
    summary_seconds: float = 0.0
    summaries: Sequence[Turnout] = ("good",)
    """One after another, and then from the beginning."""
    slow_seconds: float = 60.0
    """What a slow summary takes."""
    asks_summary: Callable[[Request], bool] = asks_summary


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One request as the upstream saw it."""

    kind: Kind
    status: int
    usage: DemoUsage
    step: int = 0
    broke: bool = False
    """What the turn before had sent is no prefix of it."""
    at: float = 0.0
    """When it had arrived, by the clock of this process."""
    too_long: bool = False
    malformed: bool = False

    @property
    def answered(self) -> bool:
        return self.status == HTTPStatus.OK


@dataclass(slots=True)
class PrefixCache:
    """The prefixes that were ever sent, as a provider's cache has them."""

    known: set[bytes] = field(default_factory=set)

    def count_cached(self, links: Sequence[bytes], counts: Sequence[int]) -> int:
        """Tokens of the longest prefix that is known; from now on all of these are."""
        tokens = 0
        for link, count in zip(links, counts, strict=True):
            if link not in self.known:
                break
            tokens += count
        self.known.update(links)
        return tokens // CACHED_STEP * CACHED_STEP if tokens >= CACHED_LEAST else 0


class SimulatedModel:
    """One simulated model, and everything it heard."""

    def __init__(self, run: Run, tokenizer: Tokenizer, manner: Manner = Manner()) -> None:
        self.run = run
        self.manner = manner
        self.received: list[ReceivedRequest] = []
        self._tokenizer = tokenizer
        self._memory = PrefixCache()
        self._last: Sequence[bytes] = ()
        self._turnouts = cycle(manner.summaries)

    @property
    def window(self) -> int:
        """Tokens it can take."""
        return self.manner.window

    async def answer(self, body: bytes) -> ModelReply:
        """The reply to one request."""
        at = perf_counter()
        request = CHAT_FORMAT.parse(body)
        if request is None:
            return refusal(400, "We could not parse the JSON body of your request.", "invalid_request_error", None)
        kind: Kind = "summary" if self.manner.asks_summary(request) else "turn"
        pieces = [request.tools or b"", *(message.raw for message in request.messages)]
        counts = await self._tokenizer.count_all(pieces)
        tokens = sum(counts)
        fault = find_breach(request.messages)
        reply = self._refuse(request, fault, tokens) or self._reply(kind, request)
        usage, broke = DemoUsage(tokens), False
        if not reply.is_refusal:
            links = link_prefixes(pieces)
            usage = DemoUsage(
                tokens, self._memory.count_cached(links, counts), self._tokenizer.count(encode(reply.message))
            )
            broke = kind == "turn" and self._breaks(links)
        too_long = self._needed_tokens(request, tokens) > self.manner.window
        self.received.append(
            ReceivedRequest(kind, reply.status, usage, self._step(request), broke, at, too_long, bool(fault))
        )
        return replace(reply, usage=usage)

    def _breaks(self, links: Sequence[bytes]) -> bool:
        """True when a turn does not continue the one before it."""
        before, self._last = self._last, links
        return list(links[: len(before)]) != list(before)

    def _needed_tokens(self, request: Request, tokens: int) -> int:
        """The window is for the answer, too."""
        return tokens + (request.max_output or 0)

    def _refuse(self, request: Request, fault: str, tokens: int) -> ModelReply | None:
        if fault:
            return refusal(400, fault, "invalid_request_error", None)
        wanted = self._needed_tokens(request, tokens)
        if wanted <= self.manner.window:
            return None
        words = (
            f"This model's maximum context length is {self.manner.window} tokens. However, you requested {wanted} "
            f"tokens ({tokens} in the messages, {wanted - tokens} in the completion). Please reduce the length of the "
            "messages or completion."
        )
        return refusal(400, words, "invalid_request_error", "context_length_exceeded")

    def _reply(self, kind: Kind, request: Request) -> ModelReply:
        if kind == "summary":
            return self._summary(request)
        step = self._step(request)
        finish = "tool_calls" if self.run.steps[step].acts else "stop"
        return ModelReply(message=self.run.answer(step), finish=finish, seconds=self.manner.turn_seconds)

    def _step(self, request: Request) -> int:
        """The one after the newest call that was answered."""
        places = self.run.places
        answered = (places[message.answers][0] for message in request.messages if message.answers in places)
        return max(answered, default=-1) + 1

    def _summary(self, request: Request) -> ModelReply:
        turnout = next(self._turnouts)
        seconds = self.manner.slow_seconds if turnout == "slow" else self.manner.summary_seconds
        return replace(answer_demand(turnout, request), seconds=seconds)


def link_prefixes(pieces: Sequence[bytes]) -> list[bytes]:
    """A link for each prefix."""
    links, link = [], b""
    for piece in pieces:
        link = blake2b(link + piece, digest_size=16).digest()
        links.append(link)
    return links


def find_breach(messages: Sequence[Message]) -> str:
    """The rule a request breaks: a result without its call, a call without result, no user. Empty: none."""
    waiting: list[str] = []
    for place, message in enumerate(messages):
        if message.role == "tool":
            if message.answers not in waiting:
                return (
                    f"Invalid parameter: messages[{place}] with role 'tool' must be a response to a preceding message "
                    "with 'tool_calls'."
                )
            waiting.remove(message.answers)
        elif waiting:
            return f"An assistant message with 'tool_calls' must be followed by tool messages; missing: {waiting}"
        waiting += [call.id for call in message.calls]
    if waiting:
        return f"An assistant message with 'tool_calls' must be followed by tool messages; missing: {waiting}"
    return "" if any(message.role == "user" for message in messages) else "There must be a message with role 'user'."
