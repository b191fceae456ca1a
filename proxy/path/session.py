"""A session: one exchange of `core.conversation`, and what performs its actions.

Counts come from the tokenizer, blocks and facts from the store, summaries from models, originals go to the transcripts.
What the core does between two actions runs off the event loop where the history is large.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from secrets import token_hex
from types import NoneType
from typing import Any, TypeVar

from proxy import events
from proxy.errors import ProxyError
from proxy.history.identity import Identity
from proxy.history.messages import Request
from proxy.models.tokenizer import Tokenizer
from proxy.models.windows import resolve_window
from proxy.path.actions import (
    Action,
    Actions,
    AwaitSummary,
    BeginCompaction,
    CanKeepOriginals,
    CanSummarize,
    CountTokens,
    Decision,
    Identify,
    KeepOriginals,
    NoteLocalWindow,
    Owner,
    ProbeWindow,
    RecountByProbe,
    Report,
    Rewrite,
    ShareProbedWindow,
    StartSummary,
    StoreBlock,
    StoreFact,
    TurnReport,
)
from proxy.path.context import CompiledPolicy, RequestOptions, find_session, find_tenant, make_window_scope
from proxy.path.conversation import WINDOW_UNKNOWN, AnswerReport, Context, Exchange
from proxy.path.history_threads import estimate_work, run_apart
from proxy.path.known_requests import WORTHWHILE_BYTES
from proxy.path.local_answers import LocalAnswer, report_compaction
from proxy.path.recovery import Refusal
from proxy.path.services import Services
from proxy.recall.answering import CompactedHistory, OwnToolRounds, find_room, list_tools
from proxy.shorten.memory import FoundValues, LookUp
from proxy.shorten.summary import Summary
from proxy.shorten.window import LEARNED_SECONDS, encode_window
from proxy.store.contract import StoreUnavailable
from proxy.store.transcripts.writer import SubmittedHistory
from proxy.summary.calls import SummaryCall, SummaryOrder, fetch_whole_answer
from proxy.summary.question import Question
from proxy.upstream import Call, Client
from proxy.wire import delivery, http
from proxy.wire.delivery import UsageView
from proxy.wire.formats import ANSWER_FORMATS, REQUEST_FORMATS
from proxy.wire.outline import Prefix

T = TypeVar("T")
UNKNOWN_WINDOW_REQUESTS = 2
RECOUNT_ANSWER_TOKENS = 16
TAG_MAX_CHARS = 64
NAME_MAX_CHARS = 200
MODEL_MAX_CHARS = 128
HEAVY_AFTER = (NoneType, CountTokens, Identify, LookUp, NoteLocalWindow, KeepOriginals, CanKeepOriginals, AwaitSummary)
"""Actions after which a history is searched, added up, hashed, its block read, or a decision made. None: the first."""


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A request as it leaves: the call, what was decided, and how its answer is shown to the client."""

    call: Call
    decision: Decision | None
    """None: a call of another API, of which nothing could be compacted."""
    options: RequestOptions = field(default_factory=RequestOptions)
    session: "Session | None" = None
    """None where nothing is decided: bypassed, not understood, failed open."""
    usage_view: UsageView | None = None
    """None: the figures as the upstream reports them."""
    answer: LocalAnswer | None = None
    """What this proxy answers by itself: then nothing is sent."""
    keeps_originals: bool = True


def _locate_nothing(_identity: Identity) -> str:
    """For policies under which no originals are kept."""
    return ""


class ClientLeftError(Exception):
    """Nobody waits for what a thread works on."""


class Session:
    """One exchange, and what performs its actions."""

    kept: SubmittedHistory | None = None
    """The history on its way to the transcripts."""
    own_tools: OwnToolRounds | None = None
    """The rounds that the proxy's own tools may bring; None if the request offers none of them."""

    def __init__(
        self,
        services: Services,
        call: Call,
        request: Request,
        *,
        options: RequestOptions,
        policy: CompiledPolicy,
        client: Client,
        prefix: Prefix | None = None,
        offers_compact: bool = False,
        answer_has_begun: bool = False,
    ) -> None:
        self.policy = policy
        self._offers_compact = offers_compact
        """The proxy has put the tool `Compact` into this request."""
        self._answer_has_begun = answer_has_begun
        """The model has called that tool in its answer to this request."""
        self._prefix = prefix
        self._services = services
        self._call = call
        self._request = request
        self._client = client
        self._format = REQUEST_FORMATS[call.path]
        self._answers = ANSWER_FORMATS[call.path]
        self._scope = make_window_scope(client.settings, request.model, call)
        self._profile = services.profiles.find(client.settings, request.model, policy.settings.estimator)
        self._body: bytes = request.source
        self._new_work = estimate_work(request.source if prefix is None else request.source[prefix.stop :])
        self._options = options
        self._exchange: Exchange | None = None
        self._drops_usage_option = False
        """The upstream has refused the option for usage that the proxy had added."""
        self._has_left = False
        """The client has left before its request was answered."""

    @property
    def _tokenizer(self) -> Tokenizer:
        return self._profile.tokenizer.of_owner(self._scope.caller)

    @property
    def exchange(self) -> Exchange:
        """Made when it is needed: a small request that the upstream accepts is decided without one."""
        if self._exchange is None:
            self._exchange = Exchange(self._context(self._options))
        return self._exchange

    @property
    def model(self) -> str:
        """The model that the client names, cut to a length that events may carry."""
        return self._request.model[:MODEL_MAX_CHARS]

    @property
    def is_identified(self) -> bool:
        """True where something was decided about the conversation, and is to be remembered."""
        return self._exchange is not None and self._exchange.identity is not None

    def force(self, focus: str) -> None:
        """The client has asked to compact now."""
        self._options = self._options.with_force(focus)

    def _context(self, options: RequestOptions) -> Context:
        services, policy, profile = self._services, self.policy.settings, self._profile
        probed = services.window_probe.find(self._scope)
        window = profile.window
        if probed is not None and window.origin != "config":
            window = resolve_window(self._request.model, probed)
        observes = options.mode == "observe" or (policy.mode == "observe" and options.mode == "auto")
        mode = "observe" if observes else options.mode
        return Context(
            request=self._request,
            rules=replace(
                self.policy.rules,
                redact=lambda raw: services.redaction.of_json(raw)[0],
                go_on=self._go_on,
                recall_tool=self._answers.RECALL_TOOL if self._may_recall() else b"",
            ),
            count=self._tokenizer.count,
            now=time.time(),
            mode=mode if mode != "bypass" else "auto",
            focus=options.focus,
            insists=options.is_by_name,
            answer_has_begun=self._answer_has_begun,
            locate_originals=services.keeper.locate if policy.transcripts else _locate_nothing,
            name=options.conversation,
            upstream=self._client.settings.base_url,
            counter=profile.counter,
            prior=profile.prior,
            window=window,
            prices=profile.prices,
            local_window=services.learned.find_hint(self._scope),
            is_halted=self._call.caller.halted,
            is_known=self._is_known,
            keeps_originals=policy.transcripts,
            must_keep_originals=services.keeper.required,
            without_originals=policy.without_originals,
            recounts=policy.recount == "probe",
            wait_seconds=policy.summary.wait,
            summary_seconds=policy.summary.seconds,
            read_block=partial(services.blocks.read, self._scope.caller),
        )

    def _may_recall(self) -> bool:
        """True where the model is offered the tool that reads earlier messages again."""
        return self.policy.settings.recall == "on" and self._answers.allows_rounds(self._request.source)

    async def prepare(self, outgoing: OutgoingRequest) -> OutgoingRequest:
        decision = await self._drive_for_client(self.exchange.prepare())
        if decision.reason == WINDOW_UNKNOWN:
            self._warn_of_unknown_window()
        self._announce(decision)
        return await self._render(outgoing, decision)

    def is_small(self) -> bool:
        """True where nothing is to be decided: titles, probes, the first words of a conversation."""
        is_plain = self._options.mode == "auto" and self.policy.rules.new_blocks and not self._call.caller.halted
        return (
            is_plain
            and self.policy.leaves_alone(self._request, self._profile.window)
            and self._services.learned.find_hint(self._scope) is None
        )

    def _warn_of_unknown_window(self) -> None:
        """Warn at the second request: the first one has only started the probe that may find the window."""
        upstream, model = self._client.settings.name, self.model
        if self._services.warning_counts.count(f"window {upstream} {model}") == UNKNOWN_WINDOW_REQUESTS:
            self._services.emit(events.WindowUnknown(upstream, model, self.policy.rules.policy))

    async def compact(self, *, store: bool) -> Decision:
        decision = await self._drive_for_client(self.exchange.compact(store=store), is_heavy=True)
        self._announce(decision)
        return decision

    async def recover(self, outgoing: OutgoingRequest, refusal: Refusal) -> OutgoingRequest | None:
        before = self._body
        if refusal.kind == "usage-option":
            return await self._without_usage_option(outgoing)
        decision = await self._drive_for_client(self.exchange.recover(refusal), is_heavy=True)
        if decision is None:
            return None
        if outgoing.decision is not None and decision.plan is not outgoing.decision.plan:
            self._announce(decision)
        again = await self._render(outgoing, decision)
        if self._body != before:
            return again
        self.exchange.withdraw()
        return None

    async def recover_untouched(self, outgoing: OutgoingRequest) -> OutgoingRequest | None:
        """The client's own bytes in place of a shortened history that is called invalid; None: they do not fit."""
        if not self.is_identified:
            return None
        decision = await self.drive(self.exchange.recover_untouched())
        if decision is None:
            return None
        self._body = self._request.source
        call = replace(outgoing.call, body=self._request.source)
        self.own_tools = self._start_own_tools(call, decision, asks_usage=False)
        return replace(outgoing, call=call, decision=decision, usage_view=None)

    async def _without_usage_option(self, outgoing: OutgoingRequest) -> OutgoingRequest | None:
        """The same request without the option that this proxy added; None where the client sent it."""
        if outgoing.decision is None or outgoing.usage_view is None or not outgoing.usage_view.hides_usage:
            return None
        self._drops_usage_option = True
        return await self._render(outgoing, outgoing.decision)

    def withdraw(self) -> None:
        """The second try was refused, too."""
        # Not by the property: this is called outside of what fails open, and there may be nothing to withdraw.
        if self._exchange is not None:
            self._exchange.withdraw()

    async def reject(self, status: int) -> None:
        """The upstream calls the request invalid: a new summary may be the cause."""
        if self.is_identified and status in http.INVALID_STATUSES:
            await self.drive(self.exchange.reject())

    async def accept(self) -> None:
        """Remember what the upstream has accepted."""
        self._services.accepted.add(self._scope.caller)
        if self._drops_usage_option:
            self._services.usage_refusals.add(self._scope)
        if len(self._request.source) >= WORTHWHILE_BYTES:
            self._services.known_requests.add(self._scope.caller, self._request, self._prefix)
        if self.is_identified:
            plan = self.exchange.decision.plan
            await self.drive(self.exchange.accept(), is_heavy=plan is not None and plan.block is not None)

    async def complete(self, tail: delivery.Tail) -> None:
        """The answer is through: what it says is for the next request of the conversation."""
        usage = delivery.read_usage(tail.usage())
        answer = AnswerReport(usage, delivery.says_truncated(tail.end), self._find_forwarded_tokens())
        await self.drive(self.exchange.complete(answer, time.time()))

    async def abort(self, tail: delivery.Tail) -> None:
        """The answer did not come to its end."""
        await self.drive(self.exchange.abort(delivery.read_usage(tail.usage()), time.time()))

    def _find_forwarded_tokens(self) -> int | None:
        """The upstream's count of the history as it was forwarded last; None if its usage is that of one round."""
        rounds = self.own_tools
        if rounds is None or not rounds.number:
            return None
        reported = delivery.read_usage(rounds.rounds.find_usage(rounds.base_number)).prompt
        return max(0, reported - sum(map(self.exchange.count, rounds.added)))

    async def _render(self, outgoing: OutgoingRequest, decision: Decision) -> OutgoingRequest:
        """The request with what was decided in place of its history."""
        plan = decision.plan
        if plan is None:
            outgoing = await self.with_marks(replace(outgoing, decision=decision))  # the client's own bytes
            self.own_tools = self._start_own_tools(outgoing.call, decision, asks_usage=False)
            return outgoing
        body, asks_usage = await self._write(decision, asks_usage=self._asks_usage(decision))
        is_client_view = self.policy.settings.usage == "client_view"
        more = max(0, decision.tokens_before - decision.tokens_after) if is_client_view else 0
        call = replace(outgoing.call, body=body)
        self.own_tools = self._start_own_tools(call, decision, asks_usage=asks_usage)
        return replace(
            outgoing,
            call=call,
            decision=decision,
            usage_view=UsageView(asks_usage, more, self._find_first_usage) if asks_usage or more else None,
        )

    async def _write(self, decision: Decision, *, asks_usage: bool) -> tuple[bytes, bool]:
        """The body with what was decided in place of its history, and whether it asks for usage as the proxy's wish."""
        plan, body = decision.plan, self._request.source
        if plan is not None and decision.rewrites:
            render = partial(self._format.render, self._request, plan.view, plan.tools, plan.shared)
            body = await self._run_apart(self._new_work, render)
        asking = self._format.request_usage(body) if asks_usage else None
        body = asking or body
        if decision.max_answer_tokens is not None:
            body = self._format.answer_within(body, decision.max_answer_tokens)
        self._body = body
        return await self._add_marks(body), asking is not None

    async def with_marks(self, outgoing: OutgoingRequest) -> OutgoingRequest:
        """The same request with cache marks, where the policy sets them for clients that set none."""
        body = await self._add_marks(self._request.source)
        return outgoing if body is self._request.source else replace(outgoing, call=replace(outgoing.call, body=body))

    async def _add_marks(self, body: bytes) -> bytes:
        if self.policy.settings.cache_marks == "off":
            return body
        return await self._run_apart(estimate_work(body), partial(self._format.add_marks, body, self._request.model))

    def _find_first_usage(self) -> Mapping[str, Any] | None:
        """The usage of the first round, where there were several: the sum of them is no size of a request."""
        rounds = self.own_tools
        return rounds.rounds.find_usage(0) if rounds is not None and rounds.number else None

    def _start_own_tools(self, call: Call, decision: Decision, *, asks_usage: bool) -> OwnToolRounds | None:
        """The rounds that this request may bring; None if it offers none of the proxy's own tools."""
        recall_tool = self.exchange.rules.recall_tool
        if not (recall_tool or self._offers_compact):
            return None
        forwarded = decision.plan.tools if decision.plan is not None and decision.rewrites else None
        offered = self._request.tools
        tools = list_tools(self._answers, offered, forwarded, recall_tool, offers_compact=self._offers_compact)
        if not tools:
            return None
        compact = partial(self._compact_for_model, asks_usage=asks_usage)
        room = self._find_room(decision)
        return OwnToolRounds(self._request.body, call, self._answers, tools=tools, room_bytes=room, compact=compact)

    def _find_room(self, decision: Decision) -> int:
        """The bytes that recalls may return."""
        return find_room(self.exchange.window.usable_tokens(self._request.max_output), decision.tokens_after)

    async def _compact_for_model(self, focus: str, *, asks_usage: bool) -> tuple[str, CompactedHistory | None]:
        """Compact the history because the model has called `Compact` in its answer to this request.

        This decides about the same request once more, as if the client had asked by name. The session goes on with the
        new decision once the upstream has accepted it.
        """
        trial = Session(
            self._services,
            self._call,
            self._request,
            options=self._options.with_force(focus),
            policy=self.policy,
            client=self._client,
            prefix=self._prefix,
            answer_has_begun=True,
        )
        try:
            decision = await trial.drive(trial.exchange.prepare())
        except ProxyError as fault:  # of a request that began well, the client hears no error
            return f"Nothing was compacted: {fault.message}.", None
        trial._announce(decision)
        report = report_compaction(decision, focus)
        block = decision.plan.block if decision.plan is not None else None
        if block is None:
            return report, None
        decision = replace(decision, max_answer_tokens=self.exchange.decision.max_answer_tokens)
        body, _ = await trial._write(decision, asks_usage=asks_usage)
        return report, CompactedHistory(
            body=body,
            room_bytes=trial._find_room(decision),
            binds_reasoning=block.reasoning_until > len(self._request.body),
            decision=decision,
            accept=partial(self._adopt, trial, body),
            reject=trial.reject,
        )

    async def _adopt(self, trial: "Session", body: bytes) -> None:
        """Remember what the upstream has accepted, and go on with it."""
        await trial.drive(trial.exchange.accept(), is_heavy=True)
        self._exchange, self._body = trial.exchange, body
        self.kept = trial.kept or self.kept

    def _asks_usage(self, decision: Decision) -> bool:
        """True where a stream without usage is asked for it, because the next requests need it."""
        plan, exchange = decision.plan, self.exchange
        if plan is None or exchange.observes:
            return False
        if not self._request.stream or self._request.asks_usage:
            return False
        if self._drops_usage_option or self._scope in self._services.usage_refusals:
            return False
        return exchange.rules.new_blocks and (plan.action != "none" or exchange.is_near_limit(plan.tokens_after))

    def keep_unchanged(self) -> SubmittedHistory | None:
        """Keep the original of a request of which nothing was folded away. Its identity is known."""
        return self._services.keeper.keep(self._identity, self._request, self.policy.rules.label)

    # The actions of the core, performed

    async def _drive_for_client(self, actions: Actions[T], *, is_heavy: bool = False) -> T:
        """Perform the actions of a request that is not answered yet. If its client leaves, its thread stops."""
        try:
            return await self.drive(actions, is_heavy=is_heavy)
        except asyncio.CancelledError:
            self._has_left = True
            raise

    def _go_on(self) -> None:
        """Called by the core before each step, in the thread that works on the history."""
        if self._has_left:
            raise ClientLeftError

    async def _run_apart(self, work: int, act: Callable[[], T]) -> T:
        return await run_apart(work, act, is_known=self._is_known)

    @property
    def _is_known(self) -> bool:
        """True if an upstream has accepted a request of this caller, or the caller is a team."""
        return self._services.accepted.knows(self._call.caller, self._scope.caller)

    async def drive(self, actions: Actions[T], *, is_heavy: bool = False) -> T:
        """Perform these actions, one after the other.

        Of a large history, what the core does between two actions runs off the event loop where it goes over all of
        it: always where `is_heavy`, else after `Rewrite`; and so does what it does after `HEAVY_AFTER`, where much of
        the history is new. To send each of a dozen stretches to a thread and back would cost as much as what they do.
        """
        action, result = None, None
        while True:
            work = self._new_work if isinstance(action, HEAVY_AFTER) else 0
            if is_heavy or isinstance(action, Rewrite):
                work = estimate_work(self._request.source)
            following = await self._run_apart(work, partial(_advance, actions, result))
            if isinstance(following, _Finished):
                return following.value  # type: ignore[no-any-return]
            action, result = following, await self._perform(following)

    async def _perform(self, action: Action) -> Any:  # noqa: ANN401, C901, PLR0911, PLR0912 (one case per action)
        services = self._services
        match action:
            case CountTokens(pieces):
                return await self._tokenizer.count_all(pieces)
            case LookUp():
                return await self._look_up(action)
            case Identify():
                secret = await services.secret.get()
                return Owner(find_tenant(self._call, secret), secret)
            case ProbeWindow():
                services.window_probe.start(self._client, self._call, self._scope)
            case NoteLocalWindow(window):
                services.learned.note(self._scope, window)
            case ShareProbedWindow(key):
                if (window := services.learned.take_probed(self._scope)) is not None:
                    await self._store_fact(StoreFact(key, encode_window(window), LEARNED_SECONDS))
            case CanSummarize():
                return not services.summarizer.is_resting(self._summary_scope)
            case StartSummary(question):
                services.summarizer.start(self._order(question))
            case AwaitSummary(question, covers, seconds):
                return await self._await_summary(question, covers, seconds)
            case KeepOriginals(waits, must):
                self.kept, is_written = await services.keeper.keep_before_loss(
                    self._identity, self._request, self.policy.rules.label, waits=waits, must=must
                )
                if waits and is_written and self.kept is not None:
                    path = services.keeper.locate(self._identity)
                    services.emit(events.OriginalKept(self._identity.conversation, path, self._call.request_id))
                return is_written
            case CanKeepOriginals():
                return await services.keeper.check_writable()
            case BeginCompaction(reason, tokens, is_kept):
                path = services.keeper.locate(self._identity) if is_kept else ""
                services.emit(
                    events.CompactionStarted(
                        self._identity.conversation,
                        self.policy.rules.policy,
                        reason,
                        tokens,
                        path,
                        self._call.request_id,
                    )
                )
            case StoreBlock():
                return await self._store_block(action)
            case StoreFact():
                await self._store_fact(action)
            case RecountByProbe():
                return await self._recount()
            case Report(turn):
                self._report(turn)
        return None

    async def _look_up(self, keys: LookUp) -> FoundValues | None:
        try:
            return await self._services.store.find_first(keys.blocks, keys.facts, keys.windows, keys.summaries)
        except StoreUnavailable as fault:
            self._services.emit(events.StoreFailed(str(fault)))
            return None

    async def _store_block(self, action: StoreBlock) -> bytes | None:
        try:
            return await self._services.store.put_block(action.key, action.block, over=action.replaces)
        except StoreUnavailable as fault:
            self._services.emit(events.StoreFailed(str(fault)))
            return None

    async def _store_fact(self, action: StoreFact) -> None:
        try:
            await self._services.store.write_fact(action.key, action.value, action.seconds)
        except StoreUnavailable as fault:
            self._services.emit(events.StoreFailed(str(fault)))

    async def _await_summary(self, question: Question | None, covers: int, seconds: float) -> Summary | None:
        summarizer = self._services.summarizer
        if question is None:
            call_seconds = self.policy.settings.summary.seconds
            return await summarizer.await_pending(self._identity, covers, seconds, call_seconds)
        return await summarizer.await_new(self._order(question), seconds)

    def _order(self, question: Question) -> SummaryOrder:
        """The order for a summary: which upstream and model to ask, and how."""
        exchange, rules = self.exchange, self.policy.settings.summary
        window = resolve_window(rules.model) if rules.model else exchange.window
        client = self.policy.summary_client or self._client
        call = SummaryCall(
            question=question,
            request=self._request,
            call=_with_span(self._call),
            client=client,
            count=exchange.count,
            redaction=self._services.redaction,
            model=rules.model,
            is_other_upstream=client is not self._client,
            room=window.usable_tokens(question.rules.max_tokens),
            longest_answer=window.output,
            usage_refusals=self._services.usage_refusals,
        )
        candidate = exchange.memory.candidate
        failures = candidate.failures if candidate is not None else 0
        return SummaryOrder(call, self._identity, self.policy.rules.policy, rules.seconds, failures)

    async def _recount(self) -> int:
        """The upstream's token count of the shortened history, from a request for a minimal answer."""
        most = RECOUNT_ANSWER_TOKENS + self._request.least_thinking
        body = self._format.answer_within(self._format.disable_streaming(self._body), most)
        try:
            whole = await fetch_whole_answer(self._client, replace(self._call, body=body), self._request.model)
        except ProxyError:
            return 0  # what the client asked for was answered: nothing is lost but a figure
        return delivery.read_usage(whole.answer.usage).prompt

    def _announce(self, decision: Decision) -> None:
        plan, rules = decision.plan, self.policy.rules
        if plan is not None and plan.action == "created":
            steps = tuple((report.step, report.messages, report.saved) for report in plan.reports)
            threshold = ""
            if plan.threshold_tokens:
                threshold = rules.describe_clearing(plan.threshold_tokens, is_cold=plan.reason == "cold")
            self._services.emit(
                events.CompactionEnded(
                    decision.conversation,
                    rules.policy,
                    plan.reason,
                    plan.tokens_without_block,
                    plan.tokens_after,
                    steps,
                    is_observed=decision.outcome == "observed",
                    turns=plan.turns,
                    request_id=self._call.request_id,
                    threshold=threshold,
                )
            )

    def _report(self, turn: TurnReport) -> None:
        decision, caller, upstream = turn.decision, self._call.caller, self._client.settings.name
        emit = self._services.emit
        if turn.silently_cut is not None:
            sent, read = turn.silently_cut
            is_repeated = self._services.warning_counts.count(decision.conversation) > 1
            emit(events.PromptTruncated(decision.conversation, upstream, sent, read, is_repeated))
        if turn.breaker_opened:
            emit(events.BreakerOpened(decision.conversation, decision.policy))
        emit(
            events.TurnEnded(
                conversation=decision.conversation,
                tenant=turn.tenant,
                link=turn.link,
                team=caller.team,
                key=caller.key_id,
                tag=caller.tag[:TAG_MAX_CHARS],
                model=self.model,
                upstream=upstream,
                policy=decision.policy,
                policy_version=decision.version,
                action=decision.outcome,
                reason=decision.reason,
                messages=turn.messages,
                tokens_before=decision.tokens_before,
                tokens_after=decision.tokens_after,
                tokens_would_be=decision.tokens_would_be,
                prompt_tokens=turn.usage.prompt,
                cached_tokens=turn.usage.cached,
                output_tokens=turn.usage.written,
                paid_dollars=turn.dollars_paid,
                plain_dollars=turn.dollars_unchanged,
                would_be_dollars=turn.dollars_would_be,
                user=self._redact_name(self._request.user),
                session=self._redact_name(find_session(self._call.headers, self._options, self._request.session)),
                request_id=self._call.request_id,
            )
        )

    def _redact_name(self, name: str) -> str:
        """The name of a user or session for the activity log, without known kinds of keys: some clients put one in."""
        return name and self._services.redaction.of_text(name)[0][:NAME_MAX_CHARS]

    @property
    def _identity(self) -> Identity:
        return self.exchange.identified

    @property
    def _summary_scope(self) -> tuple[str, str]:
        """The tenant, and the upstream that makes its summaries."""
        client = self.policy.summary_client or self._client
        return self._identity.tenant, client.settings.name


def _with_span(call: Call) -> Call:
    """The call with a span of its own in the trace of the request."""
    return call if call.trace is None else replace(call, trace=call.trace.child(token_hex(8)))


@dataclass(frozen=True, slots=True)
class _Finished:
    value: Any


def _advance(actions: Actions[Any], result: object) -> Action | _Finished:
    """The next action. A value instead of StopIteration, which no future may carry out of a thread."""
    try:
        return actions.send(result)
    except StopIteration as stop:
        return _Finished(stop.value)
