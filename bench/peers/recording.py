"""The recorder as other people's proxies need it: nothing that they do in their own way counts against them.

The plain recorder knows a turn by its last message, and takes a request that ends otherwise for a proxy's own question.
Some proxies shorten that last message too, and never ask anything: of these every request is the turn.

The plain recorder answers a question whose history comes before it, message by message, and reads the wanted headings
off the rest. Other proxies put the old part into the question as text; there it would take headings of quoted files
for requests, and answer with nothing of use. So here the old part is found again in the question, and the same stand-in
tells of everything up to the last message found there: an earlier summary that was to be carried on is carried on.
"""

from collections.abc import Sequence

from proxy.history.messages import Message
from proxy.history.request import Request
from proxy.lab.replay import summarizers
from proxy.lab.replay.replay_values import Json
from proxy.lab.replay.scoring import UpstreamModel
from proxy.lab.replay.through import TELLING_CHARACTERS, PlayedTurn, Recorder


class PeerRecorder(Recorder):
    """A recorder that understands questions of any form, and proxies that never ask one."""

    def __init__(self, upstream: UpstreamModel, *, asks: bool = True) -> None:
        super().__init__(upstream)
        self._asks = asks

    def is_turn(self, request: Request, stage: PlayedTurn) -> bool:
        return not self._asks or super().is_turn(request, stage)

    def summary(self, request: Request, stage: PlayedTurn) -> Json:
        return summarize_quoted(request, stage.history.messages[: stage.turn.place]) or super().summary(request, stage)


def summarize_quoted(request: Request, history: Sequence[Message]) -> Json | None:
    """The summary of what a question quotes of the history as text; None where it quotes nothing."""
    last = _last_quoted(request.messages[-1].text, history)
    if last is None:
        return None
    most = min(summarizers.SUMMARY_BYTES, 4 * request.max_output) if request.max_output else summarizers.SUMMARY_BYTES
    return {"role": "assistant", "content": summarizers.write_summary(history[: last + 1], most=most)}


def _last_quoted(question: str, history: Sequence[Message]) -> int | None:
    """A text shorter than what it is recognised by proves nothing."""
    texts = enumerate(message.text for message in history)
    found = [
        place for place, text in texts if len(text) >= TELLING_CHARACTERS and text[:TELLING_CHARACTERS] in question
    ]
    return found[-1] if found else None
