"""Scores: each forwarded request compared with what the agent sent.

A `Judge` follows one conversation. It is given what the upstream received, whether a policy in this process or any
running proxy made it, so both are judged by the same code.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from proxy.history.messages import Message
from proxy.history.pins import Pins
from proxy.lab.replay.cache import MARKS, PROVIDER, Cache, Habit
from proxy.lab.replay.instruction_documents import find_documents, is_whole
from proxy.lab.replay.prices import bill
from proxy.lab.replay.recall import measure_recall
from proxy.lab.replay.replay_history import Forwarded, ReplayHistory, RequestTurn, same
from proxy.lab.replay.replay_values import RECALLED, Estimate, Needed, Point, Recall, Result, Scores, Tokens
from proxy.lab.replay.simulation import Sent
from proxy.lab.replay.spans import NeededSpans, Span, choose_requests
from proxy.lab.replay.summarizers import SummaryRequest
from proxy.lab.replay.truth import judge_outcomes
from proxy.lab.replay.validity import BY_DIALECT, shape_of
from proxy.models.calibrations import find_prior_calibration
from proxy.models.tokenizer import Tokenizers
from proxy.models.windows import resolve_window
from proxy.shorten.economics import Calibration
from proxy.shorten.pipeline import Count, estimate_tokens
from proxy.wire.paths import CHAT_PATH, MESSAGES_PATH

UNPINNED = Pins()


@dataclass(frozen=True, slots=True)
class UpstreamModel:
    """The simulated upstream: what it can read, how it caches, whose prices it takes."""

    window: int = 128_000
    habit: Habit = PROVIDER
    model: str = ""
    """The model to price and count for; empty: the recorded one."""


class ReplayCase:
    """A history, and what is the same about it with any proxy."""

    def __init__(self, history: ReplayHistory, upstream: UpstreamModel) -> None:
        self.history = history
        self.upstream = upstream
        self.turns = list(history.turns())
        self.model = upstream.model or history.conversation.model
        self.prices = resolve_window(self.model)

    @cached_property
    def plain(self) -> list[Tokens]:
        """Each request as it was sent."""
        cache = Cache(self.habit, estimate_tokens)
        return [_read(cache, self.render_unchanged(turn).pieces, turn.seconds) for turn in self.turns]

    @cached_property
    def spans(self) -> NeededSpans:
        """The needed spans at the requests that are judged."""
        places = [turn.place for turn in self.turns]
        return NeededSpans(self.history.messages, choose_requests(places, [plain.read for plain in self.plain]))

    @property
    def habit(self) -> Habit:
        """How the upstream caches: of an agent that sets marks, as a provider does who wants them."""
        is_marked = self.history.path == MESSAGES_PATH and self.upstream.habit is PROVIDER
        return MARKS if is_marked else self.upstream.habit

    def render_unchanged(self, turn: RequestTurn) -> Forwarded:
        return self.history.render(turn.request, turn.request.messages, turn.request.tools)

    @cached_property
    def estimate(self) -> Estimate:
        """Our count against the recorded usage, with the tokenizer as in production; empty where none was recorded."""
        if not self.history.recorded:
            return Estimate()
        tokenizers = Tokenizers()
        try:
            return measure_estimate(self.history, tokenizers.of(self.model).count, find_prior_calibration(self.model))
        finally:
            tokenizers.close()

    def wrong(self, turn: RequestTurn, dialect: str) -> Counter[str]:
        """Rule breaches of a request as the agent sent it."""
        known = self._wrong.get((turn.number, dialect))
        if known is None:
            known = BY_DIALECT[dialect]([shape_of(message.raw) for message in turn.request.messages])
            self._wrong[turn.number, dialect] = known
        return known

    @cached_property
    def _wrong(self) -> dict[tuple[int, str], Counter[str]]:
        return {}


class Judge:
    """One conversation on its way through one policy or proxy."""

    def __init__(self, case: ReplayCase, pins: Pins = UNPINNED) -> None:
        self._case = case
        self._pins = pins
        self._cache = Cache(case.habit, estimate_tokens)
        self._last: Forwarded | None = None
        self._last_view: Sequence[Message] = ()
        self._charged: set[Span] = set()
        self._points: list[Point] = []
        self._rows: list[Scores] = []

    def score(self, turn: RequestTurn, sent: Sent) -> None:
        """One request, in its turn."""
        case, plain = self._case, self._case.plain[turn.number]
        summaries = [self._summary(asked, turn) for asked in sent.before]
        rendered = case.history.render(turn.request, sent.view, sent.tools)
        forwarded = _read(self._cache, rendered.pieces, turn.seconds)
        summaries += [self._summary(asked, turn) for asked in sent.after]
        rewrote = self._last is not None and _breaks(self._last, rendered)
        spent = sum_tokens(summaries)
        needed, rereads = self._judge_spans(turn, rendered.view, forwarded)
        self._points.append(
            Point(
                place=turn.place,
                seconds=round(turn.seconds, 3),
                raw=plain.read,
                raw_cached=plain.cached,
                forwarded=forwarded.read,
                cached=forwarded.cached,
                rewrote=rewrote,
                reason=sent.reason,
                summaries=len(summaries),
            )
        )
        self._rows.append(
            Scores(
                requests=1,
                raw=plain,
                forwarded=forwarded,
                rewrites=int(rewrote),
                peak=forwarded.read,
                over=int(forwarded.read > case.upstream.window),
                summary_calls=len(summaries),
                summaries=spent,
                invalid=self._invalid(turn, rendered.view),
                needed=needed,
                raw_bill=bill(plain, case.prices),
                bill=bill(forwarded, case.prices) + sum(bill(summary, case.prices) for summary in summaries),
                reread_bill=sum(bill(reread, case.prices) for reread in rereads),
                priced=int(case.prices.prices is not None),
                failed=int(sent.failed),
            )
        )
        self._last, self._last_view = rendered, sent.view

    def result(self, policy: str, prices: str = "") -> Result:
        conversation = self._case.history.conversation
        removed = max((point.raw - point.forwarded for point in self._points), default=0)
        whole = Scores(recall=self._recall(), estimate=self._case.estimate, removed=max(0, removed))
        scores = sum_scores([*self._rows, whole])
        return Result(
            policy=policy,
            conversation=conversation.name,
            source=conversation.source,
            model=self._case.model,
            window=self._case.upstream.window,
            scores=scores,
            points=tuple(self._points),
            prices=prices,
        )

    def _judge_spans(
        self, turn: RequestTurn, view: Sequence[Message], forwarded: Tokens
    ) -> tuple[Needed, Sequence[Tokens]]:
        """The needed spans of this request, and the steps by which the lost ones are read again."""
        spans = self._case.spans.by_place.get(turn.place, ())
        if not spans:
            return Needed(), ()
        lost = self._case.spans.find_lost(turn.place, view)
        sources = dict.fromkeys(span.source for span in lost if span not in self._charged)
        self._charged.update(lost)
        results = (estimate_tokens(self._case.history.messages[source].raw) for source in sources)
        rereads = [Tokens(forwarded.fresh + size, forwarded.cached) for size in results]
        asked = sum(len(span.text) for span in spans)
        needed = Needed(
            asked=len(spans),
            kept=len(spans) - len(lost),
            asked_characters=asked,
            kept_characters=asked - sum(len(span.text) for span in lost),
            rereads=len(rereads),
            reread=sum_tokens(rereads),
        )
        return needed, rereads

    def _summary(self, asked: SummaryRequest, turn: RequestTurn) -> Tokens:
        if asked.usage is not None:
            return asked.usage
        read = _read(self._cache, asked.pieces, turn.seconds)
        return Tokens(read.fresh, read.cached, asked.written)

    def _invalid(self, turn: RequestTurn, view: Sequence[Message]) -> dict[str, int]:
        """1 for each dialect in which something is wrong now that was right before."""
        if len(view) == len(turn.request.messages) and all(map(same, view, turn.request.messages)):
            return {}
        shapes = [shape_of(message.raw) for message in view]
        # Chat templates are for chat completions: the other APIs take two messages of a user in a row.
        dialects = [name for name in BY_DIALECT if name != "alternating" or self._case.history.path == CHAT_PATH]
        worse = (name for name in dialects if self._is_worse(turn, name, BY_DIALECT[name](shapes)))
        return dict.fromkeys(worse, 1)

    def _is_worse(self, turn: RequestTurn, dialect: str, breaches: Counter[str]) -> bool:
        known = self._case.wrong(turn, dialect)
        if dialect == "alternating":  # an upstream that takes two messages of a user in a row takes more of them
            return not breaches.keys() <= known.keys()
        return not breaches <= known

    def _recall(self) -> dict[str, Recall]:
        if self._last is None:
            return {}
        last = self._case.turns[len(self._points) - 1]
        messages = self._case.history.messages[: last.place]
        recall = measure_recall(messages, self._last.view, self._pins)
        documents = find_documents(messages)
        whole = sum(is_whole(document, self._last_view) for document in documents)
        recall["documents whole"] = Recall(len(documents), whole)
        for finding in judge_outcomes(messages, self._last_view):
            so_far = recall.get(finding.aspect, Recall())
            recall[finding.aspect] = so_far.plus(Recall(1, int(finding.is_good)))
        return recall


def sum_scores(each: Iterable[Scores]) -> Scores:
    """Many as one."""
    rows = list(each)
    return Scores(
        requests=sum(row.requests for row in rows),
        raw=sum_tokens(row.raw for row in rows),
        forwarded=sum_tokens(row.forwarded for row in rows),
        rewrites=sum(row.rewrites for row in rows),
        peak=max((row.peak for row in rows), default=0),
        over=sum(row.over for row in rows),
        summary_calls=sum(row.summary_calls for row in rows),
        summaries=sum_tokens(row.summaries for row in rows),
        invalid={name: found for name in BY_DIALECT if (found := sum(row.invalid.get(name, 0) for row in rows))},
        recall=_sum_recall(rows),
        needed=_sum_needed(rows),
        removed=sum(row.removed for row in rows),
        estimate=_sum_estimates(rows),
        raw_bill=sum(row.raw_bill for row in rows),
        bill=sum(row.bill for row in rows),
        reread_bill=sum(row.reread_bill for row in rows),
        priced=sum(row.priced for row in rows),
        failed=sum(row.failed for row in rows),
    )


def sum_tokens(each: Iterable[Tokens]) -> Tokens:
    found = Tokens()
    for tokens in each:
        found = found.plus(tokens)
    return found


def _sum_recall(rows: Sequence[Scores]) -> dict[str, Recall]:
    found: dict[str, Recall] = {}
    for row in rows:
        for name, recall in row.recall.items():
            found[name] = found.get(name, Recall()).plus(recall)
    return {name: found[name] for name in RECALLED if name in found}


def _sum_needed(rows: Sequence[Scores]) -> Needed:
    needed = Needed()
    for row in rows:
        needed = needed.plus(row.needed)
    return needed


def _sum_estimates(rows: Sequence[Scores]) -> Estimate:
    found = Estimate()
    for row in rows:
        found = found.plus(row.estimate)
    return found


def _breaks(before: Forwarded, now: Forwarded) -> bool:
    """True when the earlier request is not a prefix of this one."""
    return list(before.pieces) != list(now.pieces[: len(before.pieces)])


def _read(cache: Cache, pieces: Sequence[bytes], now: float) -> Tokens:
    tokens, cached = cache.read(pieces, now)
    return Tokens(tokens - cached, cached)


def measure_estimate(history: ReplayHistory, count: Count, calibration: Calibration) -> Estimate:
    """Error of our token count, measured where a record holds the upstream's own.

    Records often leave out system prompts and tools, so whole prompts cannot be compared. What was *added* from one
    request to the next can: the recorded prompts' growth against our count of the messages between them, with the
    correction that is shipped for that family of models. Pairs between which a prompt shrank (the agent compacted) or
    that skip a request are left out.
    """
    recorded, found = history.recorded, Estimate()
    for before, place in pairwise(history.places):
        first, then = recorded.get(before), recorded.get(place)
        if first is None or then is None or first.tokens is None or then.tokens is None or then.tokens <= first.tokens:
            continue
        grown = then.tokens - first.tokens
        ours = calibration.calibrate(sum(count(message.raw) for message in history.request.messages[before:place]))
        found = found.plus(Estimate(1, grown, ours, abs(ours - grown), then.tokens))
    return found
