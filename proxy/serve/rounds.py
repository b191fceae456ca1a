"""The rounds of one answer, in which the model calls the proxy's own tools and is answered: the client sees one answer.

If it calls `Compact`, the history is compacted as by a client's `/compact`, and the rounds go on behind the compacted
history. Its block is stored once the upstream has accepted such a round, so the client's next request finds it. Nothing
else is remembered of these calls.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from proxy import events
from proxy.decide.conversation import Decision
from proxy.decide.remedies import INVALID_STATUSES
from proxy.events import RequestFinished
from proxy.foundation.errors import ProxyError, UpstreamBroke
from proxy.foundation.threads import run_apart
from proxy.history.messages import Message
from proxy.recall.tool import COMPACT, PENDING, RECALL, EarlierMessages, read_focus
from proxy.serve.answers import LocalAnswer
from proxy.serve.performer import note_decision
from proxy.upstream.client import Call, Reply
from proxy.wire.answer_assembly import ANSWER_MAX_BYTES
from proxy.wire.api_format import AnswerFormat, Round, Rounds, withdraw_own_tools
from proxy.wire.event_streams import OPENING_MAX_BYTES, StreamOpening, StreamWatch, read_error
from proxy.wire.http_head import find_encoding, is_event_stream, remove_headers
from proxy.wire.refusals import Refusal

ROUNDS_MAX = 8
"""After the first one; in the last of them the tools are not offered."""
RECALLS_MAX = 64
"""In one request: each may go through the whole history."""
COMPACTED_ALREADY = "Nothing more was compacted: this is done once in an answer."


def find_room(usable_tokens: int | None, taken_tokens: int) -> int:
    """In bytes: half of the free part of the window, as an answer has to follow."""
    if usable_tokens is None:
        return 64 * 1024
    free_tokens = max(0, usable_tokens - taken_tokens)
    return min(256 * 1024, free_tokens // 2 * 3)


class CompactedHistory(Struct, frozen=True):
    body: bytes
    room_bytes: int
    binds_reasoning: bool
    """Earlier reasoning is refused behind this history."""
    decision: Decision
    accept: Callable[[], Coroutine[Any, Any, None]]
    reject: Callable[[int], Coroutine[Any, Any, None]]


T = TypeVar("T")
AskUpstream = Callable[[Call], Awaitable[tuple[Reply, Refusal | None]]]
FailOpen = Callable[[Coroutine[Any, Any, Any], Any], Awaitable[Any]]
"""Invariant 7: act, or return the second value (`Gateway`)."""


class RoundLog(Struct):
    """What the account of a turn needs. The driver holds it in place of the rounds, which hold the driver."""

    rounds: Rounds
    number: int = 0
    base_number: int = 0
    """The number of the first round with the history that is forwarded now."""
    added: list[bytes] = []
    """What the rounds have added to that history."""


class AnswerRounds:
    def __init__(
        self,
        body: Sequence[Message],
        answers: AnswerFormat,
        *,
        tools: Mapping[str, bytes],
        room_bytes: int,
        compact: Callable[[str], Awaitable[tuple[str, CompactedHistory | None]]],
        emit: events.Listener,
    ) -> None:
        self._tools = tools
        self._originals = EarlierMessages(body)
        self._answers = answers
        self._room_bytes = room_bytes
        self._compact = compact
        self._emit = emit
        self.log = RoundLog(answers.ROUNDS(tools, stream=False))
        self.accepted: CompactedHistory | None = None
        self._compacted: CompactedHistory | None = None
        """A history that the next round is the first to send."""
        self._answered_calls = self._returned_bytes = 0
        self._report = ""
        self._has_tried_to_compact = False
        self._recalls_left = RECALLS_MAX
        self._earlier: list[tuple[Round, list[str]]] = []
        self._base = b""

    async def join(
        self,
        call: Call,
        reply: Reply,
        watch: StreamWatch | None,
        *,
        record: RequestFinished,
        ask: AskUpstream,
        fail_open: FailOpen,
    ) -> tuple[Reply | LocalAnswer, AsyncGenerator[bytes] | None]:
        """The chunks of all rounds are a stream as it comes; None: those of the answer, once it is there."""
        self._call, self._record, self._ask, self._fail_open = call, record, ask, fail_open
        self.log.rounds = self._answers.ROUNDS(self._tools, stream=watch is not None)
        if watch is not None:
            return reply, self._stream(reply, watch)
        if find_encoding(reply.headers):
            return reply, None
        answer = await self._gather(reply)
        record.headers_at = perf_counter()  # of the last round: the time before is no overhead of the proxy
        return answer, None

    async def _stream(self, reply: Reply, watch: StreamWatch) -> AsyncGenerator[bytes]:
        is_read = True
        following: Reply | None = reply
        while following is not None:
            async with aclosing(following.chunks()) as chunks:
                async for chunk in chunks:
                    piece: bytes | None = chunk
                    if is_read:
                        piece = await self._try(partial(self.log.rounds.feed, chunk))
                    if piece is None:  # from the fault on as it comes: nothing may be lost of an answer
                        is_read, piece = False, self.log.rounds.held
                    if piece:
                        yield piece
            try:
                following = await self._ask_next() if is_read else None
            except ProxyError as fault:
                raise UpstreamBroke(fault.message) from None
            if following is not None and not following.is_good:
                beginning = await following.peek(_is_larger_than_opening) or b""
                error = read_error(StreamOpening().find_refusal(beginning) or beginning)
                watch.error = error if error["message"] else None
                raise UpstreamBroke(f"the upstream refused to go on with its answer: status {following.status}")
            if following is not None and not is_event_stream(following.headers):
                raise UpstreamBroke("the upstream went on with a stream by an answer that is none")
        if is_read and (rest := self.log.rounds.close()):
            yield rest

    async def _gather(self, reply: Reply) -> Reply | LocalAnswer:
        following: Reply | None = reply
        while following is not None:
            reply = following
            body = None
            if reply.is_good:
                body = await reply.peek(_is_larger_than_answer)
            if body is None or _is_larger_than_answer(body):
                return reply
            if await self._try(partial(self.log.rounds.feed, body)) is None:
                return reply
            following = await self._ask_next()
        body_of_all = await self._try(self.log.rounds.close)
        if body_of_all is None:
            return reply
        return LocalAnswer(remove_headers(reply.headers, "content-length"), body_of_all)

    async def _ask_next(self) -> Reply | None:
        """None: the model calls no tool of the proxy."""
        answer = await self._try(self.log.rounds.end_round)
        if answer is None:
            return None
        await self._fail_open(self._compact_if_called(answer), None)
        work = len(answer.calls) * sum(len(message.raw) for message in self._originals.body)
        call = await self._fail_open(run_apart(work, partial(self._go_on, answer)), None)
        if call is None:
            return None
        record = self._record
        if self._answered_calls:
            self._emit(
                events.RecallAnswered(
                    record.request_id, record.conversation, self.log.number, self._answered_calls, self._returned_bytes
                )
            )
        reply, refusal = await self._ask(call)
        if not reply.is_good and self._may_help(refusal, reply.status):
            reply = await self._ask_again(reply)
        if reply.is_good and self._compacted is not None:
            await self._fail_open(self._accept(self._compacted), None)
        return reply

    def _may_help(self, refusal: Refusal | None, status: int) -> bool:
        if refusal is not None and refusal.kind in ("input", "tpm-hard"):
            return True
        return self._compacted is not None and (refusal is not None or status in INVALID_STATUSES)

    async def _ask_again(self, refused_reply: Reply) -> Reply:
        """Send a refused round once more, with nothing recalled and its history as it was."""
        was_compacted = self._compacted is not None
        if self._compacted is not None:
            await self._fail_open(self._compacted.reject(refused_reply.status), None)
        again = await self._try(self._go_on_without_results)
        if again is None:
            return refused_reply
        refused_reply.close()
        reply, _ = await self._ask(again)
        if was_compacted:
            self._emit(events.ViewRefused(self._record.request_id, self._record.upstream or "", reply.is_good))
        return reply

    async def _try(self, act: Callable[[], T]) -> T | None:
        """None if it fails. Work without I/O."""

        async def run() -> T:
            return act()

        result: T | None = await self._fail_open(run(), None)
        return result

    async def _compact_if_called(self, answer: Round) -> None:
        """Once in a request."""
        self._report = COMPACTED_ALREADY
        call = next((call for call in answer.calls if self._is_own(call.name, COMPACT.name)), None)
        if call is None or self._has_tried_to_compact:
            return
        self._has_tried_to_compact = True
        self._report = "Nothing was compacted: the proxy could not do it."  # if the next line fails
        self._report, self._compacted = await self._compact(read_focus(call.arguments))

    def _go_on(self, answer: Round) -> Call | None:
        if not isinstance(self._call.body, bytes):
            return None
        self.log.number += 1
        self.log.rounds.begin_round(is_last=self._is_last)
        results = [*self._answer(answer)]
        self._base = self._call.body
        self._earlier.append((answer, results))
        if self._compacted is None:
            return self._continue(self._base, self._earlier[-1:])
        self._room_bytes = self._compacted.room_bytes
        earlier = self._earlier
        if self._compacted.binds_reasoning:
            earlier = [(self._answers.remove_reasoning(answer), results) for answer, results in earlier]
        self.log.added = [piece for answer, results in earlier for piece in (*answer.elements, *map(_encode, results))]
        return self._continue(self._compacted.body, earlier)

    def _go_on_without_results(self) -> Call | None:
        if not self._earlier:
            return None
        self._room_bytes = 0
        if self._compacted is not None:
            self._report, self._compacted = "Nothing was compacted: the shortened conversation was refused.", None
        answer, _ = self._earlier.pop()
        self._earlier.append((answer, [*self._answer(answer)]))
        return self._continue(self._base, self._earlier[-1:])

    async def _accept(self, compacted: CompactedHistory) -> None:
        self.accepted, self._compacted, self.log.base_number = compacted, None, self.log.number
        note_decision(compacted.decision, self._record)
        await compacted.accept()

    @property
    def _is_last(self) -> bool:
        return self.log.number >= ROUNDS_MAX

    def _is_own(self, name: str, tool: str) -> bool:
        return name == tool and tool in self._tools

    def _continue(self, body: bytes, rounds: Sequence[tuple[Round, list[str]]]) -> Call:
        for answer, results in rounds:
            body = self._answers.continue_request(body, answer, results)
        if self._is_last:
            body = withdraw_own_tools(body, self._tools.values())
        self._call = replace(self._call, body=body)
        return self._call

    def _answer(self, answer: Round) -> Iterator[str]:
        """The result of each call; for a tool of the client, a note that its result is still to come."""
        self._answered_calls = self._returned_bytes = 0
        report = self._report
        for call in answer.calls:
            if self._is_own(call.name, COMPACT.name):
                yield report
                report = COMPACTED_ALREADY
            elif self._is_own(call.name, RECALL.name):
                yield self._recall(call.arguments)
            else:
                yield PENDING

    def _recall(self, arguments: str) -> str:
        text = self._originals.answer(arguments, self._room_bytes if self._recalls_left > 0 else 0)
        self._recalls_left -= 1
        size = len(_encode(text))
        self._room_bytes -= size
        self._answered_calls, self._returned_bytes = self._answered_calls + 1, self._returned_bytes + size
        return text


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _is_larger_than_answer(body: bytes | bytearray) -> bool:
    return len(body) > ANSWER_MAX_BYTES


def _is_larger_than_opening(beginning: bytes | bytearray) -> bool:
    return len(beginning) > OPENING_MAX_BYTES
