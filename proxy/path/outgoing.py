"""The request as it leaves: its body with the plan in place of the client's history."""

from dataclasses import dataclass, field
from typing import Protocol

from proxy.path.actions import Deliver, Opening
from proxy.path.conversation import Decision
from proxy.path.local_answers import LocalAnswer
from proxy.path.recovery import strip_signed
from proxy.path.request_context import RequestOptions
from proxy.recall.answering import OwnToolRounds
from proxy.store.transcripts.writer import SubmittedHistory
from proxy.upstream.client import Call
from proxy.wire.api_format import RequestFormat
from proxy.wire.token_counts import Tail, UsageView


class Driver(Protocol):
    """Drives one request from its first `Send` on."""

    own_tools: OwnToolRounds | None
    """The rounds that the proxy's own tools may bring; None if the request offers none of them."""
    model: str
    """The model that the client names, cut to a length that events may carry; empty if the request was not read."""

    @property
    def kept(self) -> SubmittedHistory | None:
        """The history on its way to the transcripts."""

    async def advance(self, opening: Opening | None) -> "OutgoingRequest | Deliver":
        """Go on after the upstream's answer began (None: from the start), to the next request or the delivery."""

    async def finish(self, tail: Tail, *, is_whole: bool) -> None:
        """Go on to the end, after the answer was delivered."""


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A request as it leaves: the call, the decision, and how its answer is shown to the client."""

    call: Call
    decision: Decision | None
    """None: a call of another API, of which nothing could be compacted."""
    options: RequestOptions = field(default_factory=RequestOptions)
    driver: Driver | None = None
    """Serves the request from here on. None if nothing can be decided about it: not understood, failed open."""
    usage_view: UsageView | None = None
    """None: the figures as the upstream reports them."""
    answer: LocalAnswer | None = None
    """The answer of this proxy itself: then nothing is sent."""
    keeps_originals: bool = True


def remove_reasoning(requests: RequestFormat, body: bytes) -> bytes:
    """Remove all signed reasoning from a body. *body* itself if it is not understood."""
    request = requests.parse(body, None)
    if request is None:
        return body
    return requests.render(request, strip_signed(request.messages))
