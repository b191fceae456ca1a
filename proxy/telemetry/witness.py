"""A listener that writes the chronicle: of each event the line, and the count, that the admin pages show later."""

from collections import Counter
from collections.abc import Callable

from proxy import events
from proxy.store.chronicle import Chronicle, Happening, Tally
from proxy.telemetry.log import encode_fields, line_of
from proxy.windows import resolve_window

MICRO = 1_000_000
"""Money is counted in so manieth parts of a dollar."""
_OUTCOMES = {"refused": "refused", "failed": "failed", "client-left": "left", "upstream-broke": "broke"}
_COUNTED = {
    events.BreakerOpened: "breakers",
    events.FailedOpen: "failed-open",
    events.OurFault: "our-faults",
    events.StoreFailed: "store-faults",
    events.CutSilently: "cut",
}
_UNTOLD = (events.TurnEnded, events.CompactionStarted, events.LoopLagged)


class Witness:
    """Requests are counted here and handed over four times a second, with the beat of the loop: there are many."""

    def __init__(self, chronicle: Chronicle, is_listed_team: Callable[[str], bool] = bool) -> None:
        self._chronicle = chronicle
        self._is_listed_team = is_listed_team
        self._finished: dict[str, Counter[str]] = {}

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.RequestFinished):
            self._count(event)
        else:
            self._other(event)

    def hand_over(self) -> None:
        """What was counted since."""
        counted, self._finished = self._finished, {}
        for team, counts in counted.items():
            self._chronicle.tell(Tally(counts, team))

    def _other(self, event: events.Event) -> None:
        match event:
            case events.LoopLagged() | events.Lifecycle():
                self.hand_over()
            case events.TurnEnded():
                self._chronicle.tell(event)
                self._chronicle.tell(Tally(_counts(event), event.team if self._is_listed_team(event.team) else ""))
            case events.SummaryEnded():
                self._chronicle.tell(Tally({"summaries": 1, "spent": _price_of(event)}))
            case events.Refused():
                self._chronicle.tell(Tally({"overflows-helped" if event.helped else "overflows": 1}))
            case _ if type(event) in _COUNTED:
                self._chronicle.tell(Tally({_COUNTED[type(event)]: 1}))
            case _:
                pass
        if not _is_untold(event):
            self._told(event)

    def _count(self, event: events.RequestFinished) -> None:
        counts = self._finished.get(event.team)
        if counts is None:
            counts = self._finished[event.team] = Counter()
        counts["requests"] += 1
        if event.compaction is not None:
            counts["chats"] += 1
        if event.outcome in _OUTCOMES:
            counts[_OUTCOMES[event.outcome]] += 1

    def _told(self, event: events.Event) -> None:
        line = line_of(event)
        if line is not None and line[0] != "debug":
            severity, name, fields = line
            conversation = str(fields.get("conversation", ""))
            if isinstance(event, events.SummaryEnded):
                fields |= {"dollars": _price_of(event) / MICRO}
            told = encode_fields(fields).decode()
            self._chronicle.tell(Happening(severity, name, conversation, told))


def _is_untold(event: events.Event) -> bool:
    """Who shows wrong keys must not be able to fill the chronicle; the audit log has that."""
    return isinstance(event, _UNTOLD) or (isinstance(event, events.AdminActed) and event.outcome != "done")


def _counts(turn: events.TurnEnded) -> dict[str, int]:
    counts = {"turns": 1, "raw": turn.before, "forwarded": turn.after, "blocks": int(turn.action == "created")}
    if turn.cached is not None:
        counts |= {"prompt": turn.prompt, "cached": turn.cached}
    if turn.paid is not None and turn.plain is not None:
        counts |= {"priced": 1, "paid": round(turn.paid * MICRO), "plain": round(turn.plain * MICRO)}
    return counts


def _price_of(event: events.SummaryEnded) -> int:
    """What a summary cost, where the prices of its model are known."""
    prices = resolve_window(event.model).prices_at(event.tokens_read)
    if prices is None:
        return 0
    read = event.tokens_cached * prices.cached + (event.tokens_read - event.tokens_cached) * prices.fresh
    return round(read + event.tokens_written * (prices.output or 0.0))
