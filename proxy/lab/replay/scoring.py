"""Scores: each forwarded request compared with the agent's own.

A `Judge` follows one conversation. Policies of this process and running proxies are judged by the same code.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import fields, replace

from proxy.history.messages import Message
from proxy.history.pins import Pins
from proxy.lab.replay.instruction_texts import STANDINGS, find_documents, find_standing
from proxy.lab.replay.kept_words import measure_recall
from proxy.lab.replay.replay_history import (
    MARKS,
    PROVIDER,
    UNMARKED,
    Cache,
    Forwarded,
    Habit,
    ReplayHistory,
    RequestTurn,
    same,
)
from proxy.lab.replay.replay_values import (
    RECALLED,
    Documents,
    Judged,
    Needed,
    Point,
    Recall,
    Result,
    Scores,
    Tokens,
    bill,
)
from proxy.lab.replay.sentence_verdicts import SentenceJudge, measure_acts_told
from proxy.lab.replay.simulation import Sent
from proxy.lab.replay.spans import NeededSpans, Span, choose_requests
from proxy.lab.replay.summarizers import SummaryRequest
from proxy.lab.replay.validity import BY_DIALECT, shape_of
from proxy.models.windows import resolve_window
from proxy.shorten.pipeline import estimate_tokens
from proxy.wire.http_head import ApiPath

UNPINNED = Pins()


class UpstreamModel(Struct, frozen=True):
    window: int = 128_000
    habit: Habit = PROVIDER
    model: str = ""
    """To price for; empty: the recorded one."""


class ReplayCase:
    """Everything about a history that is the same for all policies."""

    def __init__(self, history: ReplayHistory, upstream: UpstreamModel) -> None:
        self.history = history
        self.upstream = upstream
        self.turns = list(history.turns())
        self.model = upstream.model or history.conversation.model
        self.prices = resolve_window(self.model)

    @cached_property
    def plain(self) -> list[Tokens]:
        cache = Cache(self.habit, estimate_tokens)
        return [cache.read(self.history.render_unchanged(turn.request).pieces, turn.seconds) for turn in self.turns]

    @cached_property
    def spans(self) -> NeededSpans:
        return NeededSpans(self.history.messages, self._chosen)

    @cached_property
    def own_spans(self) -> NeededSpans:
        return NeededSpans(self.history.messages, self._chosen, own=True)

    @property
    def _chosen(self) -> list[int]:
        return choose_requests([turn.place for turn in self.turns], [plain.read for plain in self.plain])

    @property
    def habit(self) -> Habit:
        """Only Messages has marks, and its provider reads them."""
        habit, has_marks = self.upstream.habit, self.history.path == ApiPath.MESSAGES
        if has_marks and habit == PROVIDER:
            return MARKS
        if not has_marks and habit == UNMARKED:
            return PROVIDER
        return habit

    def find_documents(self, place: int) -> list[Message]:
        """The instruction documents in the request that is answered by the message at *place*."""
        places = {id(message): at for at, message in enumerate(self.history.messages)}
        return [document for document in self._documents if places[id(document)] < place]

    @cached_property
    def _documents(self) -> list[Message]:
        return find_documents(self.history.messages)

    def wrong(self, turn: RequestTurn, dialect: str) -> Counter[str]:
        """Rule breaches of a request as sent."""
        breaches = self._wrong.get((turn.number, dialect))
        if breaches is None:
            breaches = BY_DIALECT[dialect]([shape_of(message.raw) for message in turn.request.messages])
            self._wrong[turn.number, dialect] = breaches
        return breaches

    @cached_property
    def _wrong(self) -> dict[tuple[int, str], Counter[str]]:
        return {}


class Judge:
    """One conversation through one policy or proxy."""

    def __init__(self, case: ReplayCase, pins: Pins = UNPINNED, *, is_proxied: bool = True) -> None:
        self._case = case
        self._pins = pins
        self._is_proxied = is_proxied
        self._cache = Cache(case.habit, estimate_tokens)
        self._last: Forwarded | None = None
        self._last_view: Sequence[Message] = ()
        self._sentences = SentenceJudge()
        self._charged: set[Span] = set()
        self._points: list[Point] = []
        self._rows: list[Scores] = []

    def score(self, turn: RequestTurn, sent: Sent) -> None:
        case, plain = self._case, self._case.plain[turn.number]
        summaries = [self._summary(call, turn) for call in sent.before]
        request = case.history.render(turn.request, sent.view, sent.tools)
        if not self._is_proxied:
            request = case.history.render_unchanged(turn.request)
        forwarded_tokens = self._cache.read(request.pieces, turn.seconds)
        summaries += [self._summary(call, turn) for call in sent.after]
        rewrote = self._last is not None and _breaks(self._last, request)
        summary_tokens = sum(summaries, Tokens())
        needs, rereads = self._judge_spans(turn, request.view, forwarded_tokens)
        sentences, failures = self._sentences.judge_view(case.history.messages[: turn.place], sent.view)
        self._points.append(
            Point(
                place=turn.place,
                seconds=round(turn.seconds, 3),
                raw=plain.read,
                raw_cached=plain.cached,
                forwarded=forwarded_tokens.read,
                cached=forwarded_tokens.cached,
                rewrote=rewrote,
                reason=sent.reason,
                summaries=len(summaries),
            )
        )
        self._rows.append(
            Scores(
                requests=1,
                raw=plain,
                forwarded=forwarded_tokens,
                rewrites=int(rewrote),
                peak=forwarded_tokens.read,
                over=int(forwarded_tokens.read > case.upstream.window),
                summary_calls=len(summaries),
                summaries=summary_tokens,
                invalid=self._invalid(turn, request.view),
                recall={"failures told": failures},
                sentences=sentences,
                documents=self._judge_documents(turn, sent.view) if rewrote else Documents(),
                needed=needs,
                own=self._judge_own_words(turn, request.view),
                read_again=sent.read_again,
                refetched=sent.refetched,
                raw_bill=bill(plain, case.prices),
                bill=bill(forwarded_tokens, case.prices) + sum(bill(summary, case.prices) for summary in summaries),
                reread_bill=sum(bill(reread, case.prices) for reread in rereads),
                priced=int(case.prices.prices is not None),
                failed=int(sent.failed),
            )
        )
        self._last, self._last_view = request, sent.view

    def result(self, policy: str, prices: str = "") -> Result:
        conversation = self._case.history.conversation
        removed_tokens = max((point.raw - point.forwarded for point in self._points), default=0)
        final_scores = Scores(recall=self._recall(), removed=max(0, removed_tokens))
        scores = sum_scores([*self._rows, final_scores])
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
        self, turn: RequestTurn, view: Sequence[Message], forwarded_tokens: Tokens
    ) -> tuple[Needed, Sequence[Tokens]]:
        spans = self._case.spans.by_place.get(turn.place, ())
        if not spans:
            return Needed(), ()
        lost_spans = self._case.spans.find_lost(turn.place, view)
        sources = dict.fromkeys(span.source for span in lost_spans if span not in self._charged)
        self._charged.update(lost_spans)
        results = (estimate_tokens(self._case.history.messages[source].raw) for source in sources)
        rereads = [replace(forwarded_tokens, fresh=forwarded_tokens.fresh + size) for size in results]
        needs = Needed(
            asked=len(spans),
            kept=len(spans) - len(lost_spans),
            rereads=len(rereads),
            reread=sum(rereads, Tokens()),
        )
        return needs, rereads

    def _judge_own_words(self, turn: RequestTurn, view: Sequence[Message]) -> Recall:
        spans = self._case.own_spans.by_place.get(turn.place, ())
        if not spans:
            return Recall()
        return Recall(len(spans), len(spans) - len(self._case.own_spans.find_lost(turn.place, view)))

    def _summary(self, call: SummaryRequest, turn: RequestTurn) -> Tokens:
        if call.usage is not None:
            return call.usage
        return replace(self._cache.read(call.pieces, turn.seconds), written=call.written)

    def _invalid(self, turn: RequestTurn, view: Sequence[Message]) -> dict[str, int]:
        """1 for each dialect with a new breach."""
        if len(view) == len(turn.request.messages) and all(map(same, view, turn.request.messages)):
            return {}
        shapes = [shape_of(message.raw) for message in view]
        # Chat templates are for chat completions: the other APIs take two messages of a user in a row.
        dialects = [name for name in BY_DIALECT if name != "alternating" or self._case.history.path == ApiPath.CHAT]
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
        return {**recall, "acts told": measure_acts_told(messages, self._last_view)}

    def _judge_documents(self, turn: RequestTurn, view: Sequence[Message]) -> Documents:
        standings = Counter(find_standing(document, view) for document in self._case.find_documents(turn.place))
        return Documents(*(standings[standing] for standing in STANDINGS))


def sum_scores(scores_list: Iterable[Scores]) -> Scores:
    rows, nothing = list(scores_list), Scores()
    sums: dict[str, Any] = {}
    for field in fields(Scores):
        if field.name not in ("peak", "invalid", "recall", "sentences"):
            sums[field.name] = sum((getattr(row, field.name) for row in rows), getattr(nothing, field.name))
    recall: dict[str, Recall] = {}
    invalid: Counter[str] = Counter()
    sentences: dict[str, Judged] = {}
    for row in rows:
        for kind, judged in row.sentences.items():
            sentences[kind] = sentences.get(kind, Judged()) + judged
        invalid.update(row.invalid)
        for name, row_recall in row.recall.items():
            recall[name] = recall.get(name, Recall()) + row_recall
    return Scores(
        **sums,
        peak=max((row.peak for row in rows), default=0),
        invalid={dialect: invalid[dialect] for dialect in BY_DIALECT if invalid[dialect]},
        recall={name: recall[name] for name in RECALLED if name in recall},
        sentences=dict(sorted(sentences.items())),
    )


def _breaks(before: Forwarded, now: Forwarded) -> bool:
    return list(before.pieces) != list(now.pieces[: len(before.pieces)])
