"""Recall in one request: which rounds follow its first answer, and what they are asked with.

The gateway sends the rounds and passes the answers through `rounds`. Everything comes from the request itself: no
index is kept, and nothing is remembered of a recall once its request is over.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from proxy.core.messages import Message
from proxy.core.recall import PENDING, TOOL, EarlierMessages
from proxy.upstream import Call
from proxy.wire.formats import AnswerFormat
from proxy.wire.rounds import Round, Rounds

ROUNDS_MAX = 8
"""Rounds that may follow the first; in the last of them the tool is not offered."""
RECALLS_MAX = 64
"""Recalls of one request that are answered: each may go through the whole history."""
RECALLED_MAX_BYTES = 256 * 1024
"""What the recalls of one request may return in all."""
RECALLED_BYTES_WITHOUT_WINDOW = 64 * 1024
"""The same where the window of the model is not known."""
ROOM_SHARE = 0.5
"""The share of the free part of the window that recalls may fill: an answer has to follow them."""
BYTES_PER_TOKEN = 3


def find_room(usable_tokens: int | None, taken_tokens: int) -> int:
    """The bytes that recalls may return in a window with so many tokens taken."""
    if usable_tokens is None:
        return RECALLED_BYTES_WITHOUT_WINDOW
    free = max(0, usable_tokens - taken_tokens)
    return min(RECALLED_MAX_BYTES, int(free * ROOM_SHARE) * BYTES_PER_TOKEN)


class RecallLoop:
    """The rounds of one request, each asked with all rounds before it."""

    def __init__(self, body: Sequence[Message], call: Call, answers: AnswerFormat, room_bytes: int) -> None:
        self.rounds: Rounds = answers.start_rounds(stream=False)
        self._originals = EarlierMessages(body)
        self._call = call
        self._answers = answers
        self._room_bytes = room_bytes
        self.number = 0
        """Of the round that is under way; the first is 0."""
        self.answered_calls = self.returned_bytes = 0
        """Of this round: the recalls that led to it, and what they returned."""
        self._recalls_left = RECALLS_MAX
        self._before: tuple[bytes, Round] | None = None
        """The body of the round before, and its answer."""

    def start(self, *, stream: bool) -> None:
        """Begin to read answers: streams, or whole bodies, which some servers send instead."""
        self.rounds = self._answers.start_rounds(stream=stream)

    def estimate_work(self, answer: Round) -> int:
        """The bytes that answering these calls goes through at most."""
        return len(answer.calls) * sum(len(message.raw) for message in self._originals.body)

    def go_on(self, answer: Round) -> Call | None:
        """The call for the next round, behind this one."""
        if not isinstance(self._call.body, bytes):
            return None
        self._before = self._call.body, answer
        self.number += 1
        self.rounds.begin_round(is_last=self._is_last)
        return self._continue([*self._answer(answer)])

    def go_on_without_results(self) -> Call | None:
        """The same round once more, after it was refused for its size."""
        if self._before is None:
            return None
        self._room_bytes = 0
        return self._continue([*self._answer(self._before[1])])

    @property
    def _is_last(self) -> bool:
        return self.number >= ROUNDS_MAX

    def _continue(self, results: list[str]) -> Call | None:
        if self._before is None:
            return None
        body, answer = self._before
        body = self._answers.continue_request(body, answer, results, is_last=self._is_last)
        self._call = replace(self._call, body=body)
        return self._call

    def _answer(self, answer: Round) -> Iterator[str]:
        """The result of each call; one of the client's own tools gets a note that its result is still to come."""
        self.answered_calls = self.returned_bytes = 0
        for call in answer.calls:
            if call.name != TOOL:
                yield PENDING
                continue
            text = self._originals.answer(call.arguments, self._room_bytes if self._recalls_left > 0 else 0)
            self._recalls_left -= 1
            size = len(text.encode("utf-8", "surrogatepass"))
            self._room_bytes -= size
            self.answered_calls, self.returned_bytes = self.answered_calls + 1, self.returned_bytes + size
            yield text
