"""A request that is bypassed: its own bytes are forwarded in any case."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from proxy import events
from proxy.path import actions
from proxy.path.actions import Deliver, Opening, Send
from proxy.path.conversation import Decision
from proxy.path.driver import advance_actions
from proxy.path.history_threads import estimate_work, run_apart
from proxy.path.outgoing import OutgoingRequest, remove_reasoning
from proxy.path.performer import report_refusal
from proxy.path.program import run_bypassed
from proxy.upstream.client import Client
from proxy.wire.formats import REQUEST_FORMATS
from proxy.wire.token_counts import Tail

if TYPE_CHECKING:
    from proxy.recall.answering import OwnToolRounds
    from proxy.store.transcripts.writer import SubmittedHistory


class BypassedDriver:
    """Drives a request whose own bytes are forwarded in any case."""

    def __init__(self, outgoing: OutgoingRequest, decision: Decision, client: Client, emit: events.Listener) -> None:
        self.own_tools: OwnToolRounds | None = None
        self.kept: SubmittedHistory | None = None
        self.model = ""
        self._outgoing = replace(outgoing, decision=decision, driver=self)
        self._client = client
        self._emit = emit
        self._life = run_bypassed(decision)

    async def advance(self, opening: Opening | None) -> OutgoingRequest | Deliver:
        result: object = opening
        while True:
            action = advance_actions(self._life, result)
            match action:
                case Deliver():
                    return action
                case Send(forwarding) if not forwarding.decision.removes_reasoning:
                    return self._outgoing
                case Send(forwarding):
                    call = self._outgoing.call
                    if isinstance(call.body, bytes):
                        remove = partial(remove_reasoning, REQUEST_FORMATS[call.path], call.body)
                        body = await run_apart(estimate_work(call.body), remove)
                        if body != call.body:
                            return replace(self._outgoing, call=replace(call, body=body), decision=forwarding.decision)
                    result = Opening(is_good=False, was_sent=False)
                case actions.ReportRefusal():
                    report_refusal(action, self._outgoing.call, self._client, self._emit)
                    result = None
                case _:
                    raise TypeError("nothing else is done for a request that is bypassed")

    async def finish(self, tail: Tail, *, is_whole: bool) -> None:
        """Nothing is noted of it."""
