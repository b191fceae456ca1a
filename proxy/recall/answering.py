"""The proxy's own tools in one request: which rounds follow its first answer, and their requests.

The gateway sends the rounds and passes the answers through `rounds`. What a model recalls comes from the request
itself. If it calls `Compact`, the history is compacted as a client's `/compact` would, and the rounds go on behind the
compacted history. Its block is stored once the upstream has accepted such a round, so the client's next request finds
it by the history that both begin with. Nothing else is remembered of these calls once the request is over.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from proxy.history.messages import Message
from proxy.path.conversation import Decision
from proxy.recall.tool import COMPACT, PENDING, RECALL, EarlierMessages, offer_tool, read_focus
from proxy.upstream.client import Call
from proxy.wire.api_format import AnswerFormat, Round, Rounds, withdraw_own_tools

ROUNDS_MAX = 8
"""Rounds that may follow the first; in the last of them the tools are not offered."""
RECALLS_MAX = 64
"""Recalls of one request that are answered: each may go through the whole history."""
RECALLED_MAX_BYTES = 256 * 1024
RECALLED_BYTES_WITHOUT_WINDOW = 64 * 1024
ROOM_SHARE = 0.5
"""The share of the free part of the window that recalls may fill: an answer has to follow them."""
BYTES_PER_TOKEN = 3
COMPACTED_ALREADY = "Nothing more was compacted: this is done once in an answer."
COMPACTION_REFUSED = "Nothing was compacted: the shortened conversation was refused."
COMPACTION_FAILED = "Nothing was compacted: the proxy could not do it."


def find_room(usable_tokens: int | None, taken_tokens: int) -> int:
    if usable_tokens is None:
        return RECALLED_BYTES_WITHOUT_WINDOW
    free = max(0, usable_tokens - taken_tokens)
    return min(RECALLED_MAX_BYTES, int(free * ROOM_SHARE) * BYTES_PER_TOKEN)


def list_tools(
    answers: AnswerFormat,
    offered_tools: bytes | None,
    forwarded_tools: bytes | None,
    recall_tool: bytes,
    *,
    offers_compact: bool,
) -> dict[str, bytes]:
    """The proxy's own tools that a request may call, by name. `forwarded`: its tools as they leave; `recall_tool`: may
    be empty.
    """
    tools = dict[str, bytes]()
    if offers_compact:
        tools[COMPACT.name] = answers.COMPACT_TOOL
    # A history that is left alone offers no recalls, but it may be compacted in the midst of the answer.
    may_be_offered = offers_compact and offer_tool(offered_tools, recall_tool, RECALL.name) is not offered_tools
    if may_be_offered or (recall_tool and recall_tool in (forwarded_tools or b"")):
        tools[RECALL.name] = answers.RECALL_TOOL
    return tools


@dataclass(frozen=True, slots=True)
class CompactedHistory:
    body: bytes
    room_bytes: int
    binds_reasoning: bool
    """What the model thought before is refused behind this history."""
    decision: Decision
    accept: Callable[[], Awaitable[None]]
    """Called once the upstream has accepted it."""
    reject: Callable[[int], Awaitable[None]]


CompactHistory = Callable[[str], Awaitable[tuple[str, CompactedHistory | None]]]
"""Compacts the history of a request, with a focus. Returns a report, and None if the history stays as it is."""


class OwnToolRounds:
    def __init__(
        self,
        body: Sequence[Message],
        call: Call,
        answers: AnswerFormat,
        *,
        tools: Mapping[str, bytes],
        room_bytes: int,
        compact: CompactHistory,
    ) -> None:
        self._tools = tools
        self._originals = EarlierMessages(body)
        self._call = call
        self._answers = answers
        self._room_bytes = room_bytes
        self._compact = compact
        self.rounds: Rounds = answers.start_rounds(tools, stream=False)
        self.number = 0
        self.answered_calls = self.returned_bytes = 0
        self.compacted: CompactedHistory | None = None
        """The history that this round is the first to be asked with."""
        self.accepted: CompactedHistory | None = None
        self.base_number = 0
        """The number of the first round with the history that is forwarded now."""
        self.added: list[bytes] = []
        self._report = ""
        self._has_tried_to_compact = False
        self._recalls_left = RECALLS_MAX
        self._earlier: list[tuple[Round, list[str]]] = []
        self._base = b""

    def start(self, call: Call, *, stream: bool) -> None:
        """Begin to read the answer to this call: a stream, or a whole body, which some servers send instead."""
        self._call = call
        self.rounds = self._answers.start_rounds(self._tools, stream=stream)

    def estimate_work(self, answer: Round) -> int:
        return len(answer.calls) * sum(len(message.raw) for message in self._originals.body)

    async def compact_if_called(self, answer: Round) -> None:
        """Compact the history if this answer calls for it, once in a request."""
        self._report = COMPACTED_ALREADY
        call = next((call for call in answer.calls if self._is_own(call.name, COMPACT.name)), None)
        if call is None or self._has_tried_to_compact:
            return
        self._has_tried_to_compact = True
        self._report = COMPACTION_FAILED  # if the next line fails
        self._report, self.compacted = await self._compact(read_focus(call.arguments))

    def go_on(self, answer: Round) -> Call | None:
        if not isinstance(self._call.body, bytes):
            return None
        self.number += 1
        self.rounds.begin_round(is_last=self._is_last)
        results = [*self._answer(answer)]
        self._base = self._call.body
        self._earlier.append((answer, results))
        if self.compacted is None:
            return self._continue(self._base, self._earlier[-1:])
        self._room_bytes = self.compacted.room_bytes
        earlier = self._earlier
        if self.compacted.binds_reasoning:
            earlier = [(self._answers.remove_reasoning(answer), results) for answer, results in earlier]
        self.added = [piece for answer, results in earlier for piece in (*answer.elements, *map(_encode, results))]
        return self._continue(self.compacted.body, earlier)

    def go_on_without_results(self) -> Call | None:
        """The same round once more, after it was refused: nothing recalled, nothing compacted."""
        if not self._earlier:
            return None
        self._room_bytes = 0
        if self.compacted is not None:
            self._report, self.compacted = COMPACTION_REFUSED, None
        answer, _ = self._earlier.pop()
        self._earlier.append((answer, [*self._answer(answer)]))
        return self._continue(self._base, self._earlier[-1:])

    async def accept(self) -> None:
        if self.compacted is None:
            return
        self.accepted, self.compacted, self.base_number = self.compacted, None, self.number
        await self.accepted.accept()

    async def reject(self, status: int) -> None:
        if self.compacted is not None:
            await self.compacted.reject(status)

    @property
    def _is_last(self) -> bool:
        return self.number >= ROUNDS_MAX

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
        """The result of each call; one of the client's own tools gets a note that its result is still to come."""
        self.answered_calls = self.returned_bytes = 0
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
        self.answered_calls, self.returned_bytes = self.answered_calls + 1, self.returned_bytes + size
        return text


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
