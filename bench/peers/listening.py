"""The recorder as strangers need it: nothing that they do in their own way counts against them.

The plain recorder knows a turn by its last message, and takes what ends otherwise for a proxy's own question. Some
shorten that message, too, and never ask: of these everything is the turn.

It answers a question whose history stands before it, message by message, and reads the wanted headings off the rest.
Others put the old part into the question as text; there it would take headings of quoted files for wishes, and answer
with nothing of use. So here the old part is found again in the question, and what is told of it is told by the same
stand-in, of everything up to the last message that stands there: an earlier summary that was to be carried on is
carried on.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from proxy.core.messages import Message, Request
from proxy.core.pipeline import quarter
from proxy.demo.speech import Said
from proxy.replay import standin
from proxy.replay.heart import Sent
from proxy.replay.history import History, Turn, written
from proxy.replay.scoring import Upstream
from proxy.replay.summaries import Asked
from proxy.replay.through import Recorder
from proxy.replay.values import Json
from proxy.wire import chat

_TELLING = 80
"""Characters of a message by which it is known again in a text; a shorter one proves nothing."""


class Listener(Recorder):
    """A recorder that understands questions of any form, and who never asks one."""

    def __init__(self, upstream: Upstream, *, asks: bool = True) -> None:
        super().__init__(upstream)
        self._asks = asks
        self._written: list[int] = []
        """Tokens of the answers to each question of this turn, in order."""

    def opens(self, history: History, turn: Turn) -> None:
        super().opens(history, turn)
        self._written = []

    async def answer(self, body: bytes) -> Said:
        said, scene = await super().answer(body), self._scene
        if scene is None or said.is_refusal:
            return said
        recorded = {"content": None, **scene.history.conversation.messages[scene.turn.place]}
        if said.message == recorded:
            return said
        if not self._asks:
            scene.heard, scene.before, scene.after = _request(body, scene.known), (), ()
            message, finish = recorded, "tool_calls" if recorded.get("tool_calls") else "stop"
        else:
            message, finish = told(body, scene.history, scene.turn) or dict(said.message), said.finish
            self._written.append(quarter(written(message)))
        return replace(
            said, message=message, finish=finish, usage=replace(said.usage, answer=quarter(written(message)))
        )

    def sent(self, *, failed: bool) -> Sent:
        sent = super().sent(failed=failed)
        early = len(sent.before)
        return replace(
            sent,
            before=_charged(sent.before, self._written[:early]),
            after=_charged(sent.after, self._written[early:]),
        )


def _charged(asked: Sequence[Asked], tokens: Sequence[int]) -> tuple[Asked, ...]:
    return tuple(replace(each, written=count) for each, count in zip(asked, tokens, strict=True))


def _request(body: bytes, known: Callable[[Request], Request]) -> Request | None:
    request = chat.parse(body)
    return None if request is None else known(request)


def told(body: bytes, history: History, turn: Turn) -> Json | None:
    """The summary of what stands in a question as text; None where nothing does."""
    request = chat.parse(body)
    last = _last_quoted(request.messages[-1].text, history.messages[: turn.place]) if request else None
    if last is None:
        return None
    asked = json.loads(body)
    limit = asked.get("max_tokens") or asked.get("max_completion_tokens")
    most = min(standin.LENGTH, 4 * limit) if limit else standin.LENGTH
    return {"role": "assistant", "content": standin.account(history.messages[: last + 1], most=most)}


def _last_quoted(question: str, messages: Sequence[Message]) -> int | None:
    texts = enumerate(message.text for message in messages)
    found = [place for place, text in texts if len(text) >= _TELLING and text[:_TELLING] in question]
    return found[-1] if found else None
