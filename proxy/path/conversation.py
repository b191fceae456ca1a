"""The orchestration, without I/O: what to look up, count, ask, keep, forward and remember for one request.

An `Exchange` is one request of a conversation, from its arrival to the end of the work after its answer. Its methods
are generators: they yield actions and are sent the result of each. A *driver* performs the actions: the running proxy
with real counts, stores and models (`proxy/compaction`), the lab in simulated time (`proxy/lab/replay`), the tests on a
store in memory. All of them run these decisions, so figures and proofs are about the code that serves.

    exchange = Exchange(context)
    decision = perform(exchange.prepare())             # before the upstream is asked
    again    = perform(exchange.recover(refusal))      # it refused: what to try once more, if anything
    perform(exchange.accept())                         # it accepted: blocks and windows are remembered
    perform(exchange.complete(answer, now))            # the answer is through: usage is remembered, summaries asked for

Read next: `actions.py`, what can be asked of a driver; `planning.py`, which decides what a history becomes;
`memory.py`, what is remembered between requests.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, takewhile
from typing import Literal

from proxy.history import agents
from proxy.history.grouping import find_last_assistant
from proxy.history.identity import CanonicalForm, Identity, canonicalize_as_0_1
from proxy.history.messages import Request
from proxy.path import planning, recovery
from proxy.path.actions import (
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
    Outcome,
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
from proxy.path.planning import COUNT_ERROR_RATIO, USELESS_BLOCKS_MAX, NeedSummary, Plan
from proxy.shorten import window
from proxy.shorten.block import Block
from proxy.shorten.memory import (
    DAY_SECONDS,
    FACT_SECONDS,
    MAX_FAILURES,
    NO_CANDIDATE,
    VERSION_0_1_SECRET_BYTES,
    FoundValues,
    LastRequest,
    LookUp,
    Memory,
    ReadBlock,
    SummaryCandidate,
    read_candidate,
)
from proxy.shorten.pipeline import Count
from proxy.shorten.rules import Anchor, Facts, Rules
from proxy.shorten.state import WINDOW_REASONS, ConversationState, count_all, count_calibrated
from proxy.shorten.summary import Summary
from proxy.shorten.window import (
    LEARNED_SECONDS,
    NOT_REPORTED,
    UNCALIBRATED,
    UNKNOWN,
    Calibration,
    LearnedLimit,
    Prices,
    Usage,
    Window,
    is_plausible,
    make_window_keys,
    price_prompt,
)
from proxy.summary.question import NOTES

MAX_LOOK_UPS = 8
"""Blocks of other heads that are passed over in one history; each costs a look-up."""
BYTES_PER_TOKEN = 3
"""A low guess: a history below a threshold by this is below it by any tokenizer."""
SMALLEST_WINDOW_TOKENS = 2_048
LOOK_UP_MIN_TOKENS = 1_024
"""Above, a history is looked up even below every threshold: there may be a block from before a reload."""
LASTING_REQUESTS = 5
"""A block that needs the next one within fewer requests than this was of no use."""
SILENT_CUT_MIN_TOKENS = 2_000
"""Below, markup drowns the difference between our count and the upstream's."""
SILENT_CUT_SHARE = 0.5
AHEAD_STRIDE_SHARE = 1 / 16
"""Of the limit: each time a history near its limit has grown by this, the next summary is thought of."""
SWITCHED_OFF = "switched-off"
WINDOW_UNKNOWN = "window-unknown"
FOCUS_UNUSED = "focus-unused"
ORIGINALS_UNWRITABLE = "originals-unwritable"

Mode = Literal["auto", "off", "force", "observe"]
WithoutOriginals = Literal["never", "to_fit", "always"]


# --- what a request is judged by --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Context:
    """One request, and everything it is judged by except what is remembered of its conversation."""

    request: Request
    rules: Rules
    count: Count
    """Tokens of one piece, by our tokenizer."""
    now: float
    """Seconds since the epoch (in the lab: since the conversation began)."""
    mode: Mode = "auto"
    focus: str = ""
    """What the client wants a summary to keep above all."""
    insists: bool = False
    """It asked to compact by name: a model is asked, however short the history is."""
    answer_has_begun: bool = False
    """The model asks to compact in the midst of its answer to this request."""
    locate_originals: Callable[[Identity], str] = lambda _: ""
    """Where the originals of a conversation are kept; empty: nowhere."""
    name: str = ""
    """The client's own name for the conversation."""
    upstream: str = ""
    counter: str = ""
    """Whose token counts these are: upstream and family of models."""
    prior: Calibration = UNCALIBRATED
    window: Window = UNKNOWN
    """As configured, probed, or in the bundled table."""
    prices: Prices = field(default_factory=Prices)
    """The model's own, relative to its plain input price."""
    local_window: Window | None = None
    """What an overflow taught this worker, for the one decision that is made before the store is asked."""
    is_halted: bool = False
    """An operator has switched compaction off for this caller."""
    is_known: bool = True
    """An upstream has accepted a request of this caller before. Nothing is stored of unknown callers."""
    keeps_originals: bool = False
    must_keep_originals: bool = False
    """A request is refused rather than shortened where its original cannot be kept."""
    without_originals: WithoutOriginals = "to_fit"
    """What may be folded away while its original cannot be written."""
    recounts: bool = False
    """Ask the upstream for the size of a shortened history where no answer tells it."""
    wait_seconds: float = 8.0
    """How long a request that may not fit waits for its summary."""
    summary_seconds: float = 180.0
    read_block: ReadBlock = Block.from_bytes

    @property
    def pieces(self) -> list[bytes]:
        """The pieces of the request that are counted: its messages and tools."""
        return [message.raw for message in self.request.messages] + [self.request.tools or b""]


@dataclass(frozen=True, slots=True)
class AnswerReport:
    """Facts about the prompt that an answer reports."""

    usage: Usage = NOT_REPORTED
    """The sum of all rounds: what was paid for."""
    says_truncated: bool = False
    """It ended in a way that some servers end when they had to cut the prompt."""
    forwarded_tokens: int | None = None
    """Tokens of the request as it was forwarded, where that is not the prompt in `usage`."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the request as it was forwarded; 0: not reported."""
        return self.usage.prompt if self.forwarded_tokens is None else self.forwarded_tokens


# --- exchange ---------------------------------------------------------------------------------------------------------


class Exchange:
    """One request, from its arrival to the end of the work after its answer."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.rules = context.rules
        self.window = context.window
        self.identity: Identity | None = None
        self.memory = Memory(calibration=context.prior)
        self.decision = Decision("none")
        self._state_before: ConversationState | None = None
        """The history with the block that it had when this request was decided on."""
        self._has_originals = False
        self._has_begun = False
        self._keeps_originals = True
        """False where the client asked for a shorter history and nothing of it is stored."""
        self._must_keep_originals = False
        self._refused: Decision | None = None
        self._is_view_refused = False
        """The upstream has called the shortened history invalid."""
        self._learned: LearnedLimit | None = None
        if context.mode == "off" or context.is_halted:
            self.rules = replace(context.rules, new_blocks=False)

    @property
    def observes(self) -> bool:
        """True where the client's own bytes are forwarded and a block is only tried out."""
        return self.context.mode == "observe"

    @property
    def count(self) -> Count:
        """Tokens as the policy counts them: as this upstream does, as far as it has told, or by the estimate alone."""
        return self._count(self._choose_calibration(self.memory.calibration))

    def is_near_limit(self, size: int) -> bool:
        """True where a history of this size is so near its limit that a summary may be needed soon."""
        return planning.is_near_limit(size, self.rules, self._gather_request_facts(self.window))

    # Before the upstream is asked

    def prepare(self) -> Actions[Decision]:
        """Decide what to forward. A history below every threshold is left alone, unless a block stands for it."""
        guess = len(self.context.request.source) // BYTES_PER_TOKEN
        if guess > SMALLEST_WINDOW_TOKENS and not self.window.is_known:
            yield ProbeWindow()  # a small window may matter long before any threshold is reached
        size = yield from self._measure(guess)
        if size is not None:
            yield from self._load_memory(size)
        elif guess >= LOOK_UP_MIN_TOKENS:
            yield from self._load_memory(guess)
        if size is None and self.memory.block is None:
            self.identity = None  # nothing is remembered of a history that is left alone
            self.decision = self._describe(None, is_large=guess > SMALLEST_WINDOW_TOKENS)
            return self.decision
        if self._count_refused_views() >= recovery.REFUSED_VIEWS_MAX and (yield from self._leave_alone()):
            return self.decision
        is_waited_for = self._gather_request_facts(self.window).insists
        yield from self._decide(self.context.summary_seconds if is_waited_for else self.context.wait_seconds)
        if not (yield from self._begin()):
            self._decide_without_new_block()
        return self.decision

    def _leave_alone(self) -> Actions[bool]:
        """Forward a history as it came that this upstream refuses shortened. False: it does not fit, or is forced."""
        if self.observes or self.context.mode == "force":
            return False
        yield CountTokens(self.context.pieces)
        size = sum(map(self.count, self.context.pieces))
        if not self._fits(size):
            return False
        self._use_untouched(size)
        return True

    def compact(self, *, store: bool) -> Actions[Decision]:
        """Compact because the client asked for nothing else: it waits as long as a summary may take.

        `store`: keep the block at once, for the client's next request.
        """
        self._keeps_originals = store
        # Asked for by name, it is refused rather than left undone: the client would take the history for compacted.
        self._must_keep_originals = store and self.context.without_originals != "always"
        sizes = yield CountTokens(self.context.pieces)
        yield from self._load_memory(sum(sizes))
        yield from self._decide(self.context.summary_seconds)
        yield from self._begin()
        if store and self._plan.block is not None and self._may_be_stored:
            yield from self._store_block()
        return self.decision

    def _measure(self, guess: int) -> Actions[int | None]:
        """Tokens of the request by our count; None where it is below every threshold by any count."""
        context = self.context
        facts = self._gather_request_facts(self._narrow(context.local_window))
        if agents.was_asked(context.request):
            facts = replace(facts, force=True)
        if planning.is_below_threshold(guess, self.rules, facts, count_error=COUNT_ERROR_RATIO):
            return None
        size = yield from self._count_request()
        if planning.is_below_threshold(size, self.rules, facts, count_error=COUNT_ERROR_RATIO):
            return None
        if not planning.is_below_threshold(size, self.rules, facts):
            yield ProbeWindow()
        return size

    def _count_request(self) -> Actions[int]:
        """Tokens of the request by our count. Messages that were counted for an earlier request are not asked for."""
        request, count = self.context.request, self.context.count
        counted = len(request.columns.extend(count, 0, tuple))
        outside = [*(message.raw for message in request.head), request.tools or b""]
        counts: list[int] = yield CountTokens([*outside, *(message.raw for message in request.body[counted:])])
        return sum(counts[: len(outside)]) + count_all(request.columns, request.body, count)

    def _count_forwarded(self, plan: Plan) -> Actions[int]:
        """Tokens of what was forwarded by our count."""
        state, count = self._state_before, self.context.count
        if plan.action == "created" or state is None:
            return sum((yield CountTokens(list_forwarded_pieces(plan))))
        outside = [*(message.raw for message in self.context.request.head), plan.tools or b""]
        return sum(map(count, outside)) + count_all(state.columns, state.view, count)

    def _load_memory(self, size: int) -> Actions[None]:
        """Identify the conversation and look up what is remembered of it, in one round trip."""
        context = self.context
        owner: Owner = yield Identify()
        names = owner.tenant, owner.secret, context.name, context.counter
        yield from self._look_up(Identity.of(context.request, *names), size)
        if self.memory.is_new and len(owner.secret) <= VERSION_0_1_SECRET_BYTES:
            # Version 0.1 knew a history by its very bytes, so another way of writing JSON made another conversation.
            # A store with a longer secret began with a later version: it holds nothing under such keys.
            form = canonicalize_as_0_1
            old = Identity.of(context.request, *names, form=form)
            if old.links != self.identified.links:
                new, memory = self.identified, self.memory
                yield from self._look_up(old, size, form)
                if self.memory.is_new:
                    self.identity, self.memory = new, memory
        if self.memory.answered:
            yield NoteLocalWindow(self.memory.window)
        self.window = self._narrow(self.memory.window)

    def _look_up(self, identity: Identity, size: int, form: CanonicalForm | None = None) -> Actions[None]:
        """Look up what is remembered of a conversation under one identity. `form`: of the messages that it hashes."""
        context = self.context
        list_keys = partial(self._list_keys, identity, form)
        spaces = (False, True) if self.observes else (False,)
        look_up = LookUp(
            blocks=[*chain.from_iterable(list_keys(partial(identity.block_key, space)) for space in spaces)],
            facts=[*list_keys(identity.anchor_key), identity.scale_key],
            # A window that the operator has configured overrules whatever was learned.
            windows=() if context.window.origin == "config" else self._window_keys(identity.tenant),
            summaries=list_keys(identity.summary_key_of) if self._may_need_summary(size) else (),
        )
        found: FoundValues | None = yield look_up
        self.identity = identity
        self._fill_pointer(identity)
        self.memory = Memory.read(found, look_up, identity, context.prior, context.read_block)
        if not self._serves(self.memory.block):
            places = [(link, observed) for observed in spaces for link in reversed(identity.links)]
            yield from self._find_other_block(places[look_up.blocks.index(self.memory.block_key) :])

    def _list_keys(
        self, identity: Identity, form: CanonicalForm | None, key_of: Callable[[bytes], str]
    ) -> Sequence[str]:
        """Keys of all links, the newest first. Only those of links that are new in this request are written."""
        first, *links = identity.links
        # The key of the first link tells whose they are, and what for.
        name = key_of(first), form
        keys = self.context.request.columns.extend(name, len(links), lambda known: map(key_of, links[len(known) :]))
        return [*reversed(keys), key_of(first)]

    def _fill_pointer(self, identity: Identity) -> None:
        """Say in the summary's pointer where the originals are. Where none are kept there is nothing to point to."""
        summary = self.rules.summary
        if "{" not in summary.pointer:
            return
        path = self.context.locate_originals(identity)
        pointer = summary.pointer.replace("{path}", path).replace("{conversation}", identity.conversation)
        self.rules = replace(self.rules, summary=replace(summary, pointer=pointer if path else ""))

    def _serves(self, block: Block | None) -> bool:
        """True where a block may be used under this head: a summary may repeat what its own head says."""
        return block is None or block.serves(self.identified.head)

    def _find_other_block(self, places: Sequence[tuple[bytes, bool]]) -> Actions[None]:
        """The longest block of this head, where the longest of all holds a summary of another one."""
        keys = [
            key for link, observed in places for key in reversed(self.identified.block_keys(link, observed=observed))
        ]
        keys.remove(self.memory.block_key)
        for _ in range(MAX_LOOK_UPS):
            look_up = LookUp(blocks=keys)
            found: FoundValues | None = yield look_up
            other = Memory.read(found, look_up, self.identified, self.context.prior, self.context.read_block)
            if self._serves(other.block):
                break
            keys = keys[keys.index(other.block_key) + 1 :]
        else:
            other = Memory()
        self.memory = replace(
            self.memory,
            block=other.block,
            block_key=other.block_key,
            block_bytes=other.block_bytes,
            observed=other.observed,
        )

    def _decide(self, wait_seconds: float) -> Actions[None]:
        facts = self._gather_facts(can_summarize=True)
        state = self._state(facts)
        self._state_before = state
        self.context.request.columns.view = state.known_view
        plan: Plan | NeedSummary | None = planning.plan_without_rewrite(state)
        if plan is None:
            if not (yield CanSummarize()):
                facts = self._gather_facts(can_summarize=False)
                state = replace(state, facts=facts)
            yield Rewrite()
            plan = planning.plan_rewrite(state)
        if isinstance(plan, NeedSummary) and plan.is_about_notes:
            plan = yield from self._take_notes(plan, state)
        elif isinstance(plan, NeedSummary):
            plan = yield from self._summarize(plan, facts, wait_seconds)
        self.decision = self._describe(plan)

    def _summarize(self, need: NeedSummary, facts: Facts, wait_seconds: float) -> Actions[Plan]:
        """Get a summary: in the background if not urgent; else wait, but no longer than `wait_seconds`."""
        if not need.urgent:
            if need.question is not None:
                yield StartSummary(need.question)
            return replace(need.current, reason=planning.SUMMARY_PENDING)
        # Kept and announced before the model is asked: a hook may want to read what is about to go.
        self.decision = self._describe(replace(need.without_model, action="created"))
        if not (yield from self._begin()):
            return replace(need.current, reason=ORIGINALS_UNWRITABLE)
        covers = facts.summary_in_progress_covers if need.question is None else need.question.covers
        summary: Summary | None = yield AwaitSummary(need.question, covers, wait_seconds)
        if summary is None:
            return need.if_call_fails
        facts = replace(
            facts,
            summary=summary,
            can_summarize=False,
            summary_in_progress_covers=0,
            summary_failed=facts.force,  # what the client asked for and cannot be used must not cost the history
        )
        return planning.choose_without_model(planning.decide(self._state(facts)))

    def _take_notes(self, need: NeedSummary, state: ConversationState) -> Actions[Plan]:
        """Clear old results with the notes on them, if these are there; else ask for them, and leave the view alone.

        Without an answer in time the results are cleared without notes.
        """
        places = range(len(self.context.request.body), state.block.covers if state.has_block else 0, -1)
        keys = [self.identified.summary_key(place, NOTES) for place in places]
        found: FoundValues | None = yield LookUp(facts=keys)
        stored = None if found is None else found[1]
        candidate = (
            None if stored is None else SummaryCandidate.from_bytes(stored.value, places[keys.index(stored.key)])
        )
        if candidate is not None and candidate.state == "ready":
            return planning.plan_stride_with_notes(state, candidate.covers, candidate.text) or need.without_model
        if need.question is None or found is None or (candidate is not None and candidate.state == "failed"):
            return need.without_model
        if candidate is None:
            yield StartSummary(need.question)
        return need.current

    def _begin(self) -> Actions[bool]:
        """Keep the original, and say that a compaction begins. False: without the original nothing may be folded."""
        if self._keeps_originals and self.decision.rewrites:
            is_kept = yield from self._keep_before_loss()
            if not is_kept and not self._may_fold_unkept():
                return False
        yield from self._announce_beginning()
        return True

    def _announce_beginning(self) -> Actions[None]:
        plan = self._plan
        if plan.action == "created" and not self._has_begun:
            self._has_begun = True
            yield BeginCompaction(plan.reason, plan.tokens_without_block, self._has_originals)

    def _keep_before_loss(self) -> Actions[bool]:
        """Keep the original. That of an unknown caller is kept once the upstream accepts it: find out if it can be."""
        if self.context.must_keep_originals or self._may_be_stored:
            return (yield from self._keep_originals())
        is_loss = self._plan.action == "created" and self.context.without_originals != "always"
        if is_loss and self.context.keeps_originals:
            can_keep: bool = yield CanKeepOriginals()
            return can_keep
        return True

    def _keep_originals(self) -> Actions[bool]:
        """Keep the original before anything of it is folded away; True where it is written, or need not be."""
        if self.context.keeps_originals and not self._has_originals:
            # A stored block was made when its originals were written. No request waits for what came after them.
            is_first_loss = self._plan.action == "created"
            self._has_originals = yield KeepOriginals(
                waits=is_first_loss, must=self._must_keep_originals or self.context.must_keep_originals
            )
            return self._has_originals
        return True

    def _may_fold_unkept(self) -> bool:
        """True where the policy allows folding without originals; the upstream refuses a history that does not fit."""
        if self._plan.action != "created":
            return True
        fits = self._refused is None and self._fits(self._plan.tokens_before)
        allowed = self.context.without_originals
        return allowed == "always" or (allowed == "to_fit" and not fits)

    def _decide_without_new_block(self) -> None:
        """Decide again: the current block is applied, and nothing more is folded away."""
        rules = replace(self.rules, new_blocks=False)
        state = self._state(self._gather_facts(can_summarize=True), rules=rules)
        self._state_before = state
        self.context.request.columns.view = state.known_view
        plan = planning.plan_without_rewrite(state)
        self.decision = replace(self._describe(plan), reason=ORIGINALS_UNWRITABLE)

    # After a refusal

    def recover(self, refusal: recovery.Refusal) -> Actions[Decision | None]:
        """Decide what to try once more after this refusal; None where nothing would help."""
        if self.observes or not self.rules.new_blocks:
            return None
        if self.identity is None:
            yield from self._look_closer()
        request, identity, refused = self.context.request, self.identified, self._plan
        self._refused = self.decision
        limit = recovery.limit_of(refusal, request.max_output)
        if limit is not None:
            yield from self._learn_window(identity.tenant, limit)
        counted = sum((yield CountTokens(list_forwarded_pieces(refused))))
        ratio = self.memory.calibration.ratio
        cures = recovery.find_cures(refusal, counted, ratio, request.max_output, request.least_thinking)
        window = self.window if limit is None else self._narrow(limit.window())
        cure, plan = next(filter(None, (self._try_cure(cure, window) for cure in cures)), (None, None))
        if cure is None:
            return None
        if plan is not None:
            self.decision = self._describe(plan)
            is_kept = yield from self._keep_before_loss()
            if not is_kept and self.context.without_originals == "never":
                self.decision = self._refused
                return None
            yield from self._announce_beginning()
            summary = yield from self._ask_before_retry(cure, window)
            summarized = None if summary is None else self._try_cure(cure, window, summary)
            if summarized is not None:
                self.decision = self._describe(summarized[1])
        if cure.most_answer_tokens is not None:
            bounded = cure.most_answer_tokens
            self.decision = replace(self.decision, max_answer_tokens=bounded, reason=recovery.REASON)
        self._learned = cure.learned
        return self.decision

    def _ask_before_retry(self, cure: recovery.Cure, window: Window) -> Actions[Summary | None]:
        """Ask for the summary of a refused history, where the policy has a request over its trigger wait for one."""
        if self.rules.summary.ahead or cure.strip_signed or not (yield CanSummarize()):
            return None
        facts = replace(
            self._gather_facts(can_summarize=True),
            usable_tokens=cure.window_tokens,
            nominal_tokens=window.usable_tokens(),
            trigger_base_tokens=None,
            anchor=None,
        )
        need = planning.decide(self._state(facts, Calibration(cure.ratio), self.rules))
        if not isinstance(need, NeedSummary) or need.question is None or need.is_about_notes:
            return None
        summary: Summary | None = yield AwaitSummary(need.question, need.question.covers, self.context.wait_seconds)
        return summary

    def _try_cure(
        self, cure: recovery.Cure, window: Window, summary: Summary | None = None
    ) -> tuple[recovery.Cure, Plan | None] | None:
        """The cure and what it makes of the history, None where that stays; nothing where it does not help.

        `window`: as it is known from this refusal on.
        """
        if not cure.changes_history:
            return cure, None
        window = window if cure.learned is None else self._narrow(cure.learned.window())
        facts = Facts(
            usable_tokens=cure.window_tokens,
            nominal_tokens=window.usable_tokens(),
            prices=self.context.prices,
            summary=summary,
        )
        state = self._state(facts, Calibration(cure.ratio), cure.harden(self.rules))
        refused = self._plan
        if not cure.strip_signed or refused.block is None:
            plan = cure(state)
            return None if plan is None else (cure, plan)
        # Only its reasoning was refused: what else the new block did stays, or the next request would do it again.
        plan = cure(state.with_block(refused.block, has_block=True))
        if plan is None:
            return None
        return cure, replace(
            plan,
            tokens_before=refused.tokens_before,
            tokens_without_block=refused.tokens_without_block,
            reports=refused.reports + plan.reports,
        )

    def recover_untouched(self) -> Actions[Decision | None]:
        """Decide to try the history as it came, where the upstream calls the shortened one invalid and it fits."""
        yield from self.reject()
        if not self.decision.rewrites or not self._fits(self._plan.tokens_before):
            return None
        self._refused = self.decision
        self._is_view_refused = True
        self._use_untouched(self._plan.tokens_before)
        return self.decision

    def _use_untouched(self, size: int) -> None:
        plan = recovery.plan_untouched(self.context.request, size, recovery.SHORTENED_REFUSED)
        self._state_before = None
        self.decision = self._describe(plan)

    def _count_refused_views(self) -> int:
        """How many shortened histories of this conversation the upstream has called invalid, and took as they came."""
        last = self.memory.last
        return last.refused_views if last is not None and last.counter == self.identified.counter else 0

    def withdraw(self) -> None:
        """Return to the first decision: the second try was not accepted either."""
        if self._refused is not None:
            self.decision, self._learned, self._is_view_refused = self._refused, None, False

    def _look_closer(self) -> Actions[None]:
        """Look up a conversation that was below every threshold, now that it turned out not to fit."""
        yield CountTokens(self.context.pieces)
        yield from self._load_memory(0)
        size = sum(map(self._count(self.memory.calibration), self.context.pieces))
        self.decision = self._describe(recovery.plan_untouched(self.context.request, size))

    def _learn_window(self, tenant: str, limit: LearnedLimit) -> Actions[None]:
        yield NoteLocalWindow(limit.window())
        yield StoreFact(self._window_keys(tenant)[0], limit.to_bytes(), LEARNED_SECONDS)

    # After the upstream has accepted the request

    def accept(self) -> Actions[None]:
        """Remember what the upstream has accepted. A block is stored only now: a refused one must not stay."""
        if self.identity is None:
            return
        if self.decision.rewrites:
            # A caller unknown until now, whose history is shortened for the first time: kept before the block is.
            is_kept = yield from self._keep_originals()
            if not is_kept and not self._may_fold_unkept():
                return
        elif self._is_observed and self._plan.action != "none" and self.context.keeps_originals:
            # Nothing is lost. The admin pages show what would have become of each message.
            yield KeepOriginals(waits=False)
        yield from self._store_block()
        if self._learned is not None:
            yield from self._learn_window(self.identity.tenant, self._learned)
        yield ShareProbedWindow(self._window_keys(self.identity.tenant)[1])

    def reject(self) -> Actions[None]:
        """Mark a new summary as failed: the upstream calls the request invalid, and it may be the cause."""
        plan = self.decision.plan
        if self.identity is None or plan is None or plan.block is None:
            return
        summary, before = plan.block.summary, self.memory.block
        if summary is not None and (before is None or summary != before.summary):
            given_up = SummaryCandidate("failed", failures=MAX_FAILURES).to_bytes()
            key = self.identity.summary_key(summary.covers, plan.block.focus)
            yield StoreFact(key, given_up, DAY_SECONDS)

    def _store_block(self) -> Actions[None]:
        """Store the new block under its link; where that holds a summary of another head, under link and head."""
        plan = self._plan
        if plan.block is None:
            return
        block = plan.block.bound_to(self.identified.head).to_bytes()
        for key in self.identified.block_keys(plan.link, observed=self._is_observed):
            replaces = self.memory.block_bytes if self.memory.block_key == key else None
            stored: bytes | None = yield StoreBlock(key, block, replaces)
            if stored is None or self._serves(self.context.read_block(stored)):
                return

    # After the answer

    def complete(self, answer: AnswerReport, now: float) -> Actions[None]:
        """Finish an answered request: remember what the upstream counted, and ask ahead for the next summary."""
        if self.identity is None:
            return
        identity, memory, plan = self.identity, self.memory, self._plan
        counted = yield from self._count_forwarded(plan)
        reported = answer.prompt_tokens
        if not reported and self.context.recounts and plan.action == "created":
            reported = yield RecountByProbe()
        cut = is_silently_cut(counted, answer)
        read = reported if is_plausible(counted, reported) and not self._is_observed else 0
        size = read if self.rules.trusts_usage else 0
        useless, since = self._rate_block(size or plan.tokens_after)
        calibration = memory.calibration.learn(counted, read)
        anchor = Anchor(identity.links[-1], read, plan.view_id)
        refused = self._count_refused_views() + self._is_view_refused
        last = LastRequest(anchor, now, identity.counter, calibration, useless, since, refused)
        yield StoreFact(identity.anchor_key(identity.links[-1]), last.to_bytes(), FACT_SECONDS)
        if memory.last is None and calibration.observations:
            # What the first request of a conversation teaches, the next conversation begins with.
            yield StoreFact(identity.scale_key, calibration.to_bytes(), FACT_SECONDS)
        breaker = useless == USELESS_BLOCKS_MAX and plan.action == "created" and not self._is_observed
        turn = self._account(answer.usage, now)
        yield Report(replace(turn, silently_cut=(counted, reported) if cut else None, breaker_opened=breaker))
        if not self.observes:
            yield from self._ask_ahead(last, size)

    def abort(self, usage: Usage, now: float) -> Actions[None]:
        """Report a turn whose answer did not come to its end."""
        if self.identity is not None:
            yield Report(self._account(usage, now))

    def _ask_ahead(self, last: LastRequest, size: int) -> Actions[None]:
        """Ask now for the summary that the next requests will need."""
        facts = self._gather_facts(can_summarize=True)
        if not planning.is_near_limit(size or self._plan.tokens_after, self.rules, facts):
            return
        if self._was_looked_at(last.anchor, facts) or not (yield CanSummarize()):
            return
        keys = self.identified.summary_keys()
        found: FoundValues | None = yield LookUp(facts=keys)
        candidate = None if found is None else read_candidate(found[1], keys)
        self.memory = replace(self.memory, block=self._plan.block or self.memory.block, candidate=candidate)
        facts = replace(
            self._gather_facts(can_summarize=True),
            anchor=last.anchor if self.rules.trusts_usage else None,
            useless_blocks=last.useless_blocks,
        )
        yield Rewrite()
        question = planning.plan_next_summary(
            self._state(facts, self._choose_calibration(last.calibration), self.rules)
        )
        if question is not None:
            yield StartSummary(question)

    def _was_looked_at(self, anchor: Anchor, facts: Facts) -> bool:
        """True where an earlier answer, at about the same size, was the occasion to plan the next summary.

        That goes over the whole history, so it is not done again for every few tokens more.
        """
        before = None if self.memory.last is None else self.memory.last.anchor
        if before is None or before.view_id != anchor.view_id or not (before.tokens and anchor.tokens):
            return False
        stride = max(1, int(self.rules.limits(facts)[0][0] * AHEAD_STRIDE_SHARE))
        is_same = before.tokens // stride == anchor.tokens // stride
        return is_same and planning.is_near_limit(before.tokens, self.rules, facts)

    def _rate_block(self, size: int) -> tuple[int, int]:
        """The number of blocks in a row that did not help, and how many requests ago the last one was made.

        One helps that brings the history half the way down to its target, by the upstream's own count, and that lasts.
        """
        rules, last, plan = self.rules, self.memory.last, self._plan
        useless, since = (0, LASTING_REQUESTS)
        if last is not None:
            useless, since = last.useless_blocks, last.requests_since_block + 1
        facts = self._gather_request_facts(self.window)
        limits = rules.limits(facts)
        limit = limits[0][0] if limits else size
        goal = rules.find_goal(limit)
        if not limits or size <= goal:
            useless = 0
        is_for_window = plan.block is not None and plan.block.reason in WINDOW_REASONS
        if not (is_for_window and limits) or plan.reason == recovery.REASON:
            return useless, since
        helps = size <= (limit + goal) / 2 and since >= LASTING_REQUESTS
        return 0 if helps else useless + 1, 0

    def _account(self, usage: Usage, now: float) -> TurnReport:
        plan, window, decision = self._plan, self.window, self.decision
        paid = None if usage.cached is None or not usage.prompt else price_prompt(window, usage.prompt, usage.cached)
        is_changed = paid is not None and decision.tokens_after != decision.tokens_before
        is_only_observed = paid is not None and decision.tokens_after != decision.tokens_would_be
        # An upstream that found nothing of what it had read before would have found nothing of the longer history.
        cached = self._cached_unchanged(now) if usage.cached or plan.action == "created" else 0
        return TurnReport(
            decision=self.decision,
            tenant=self.identified.tenant,
            link=self.identified.links[-1].hex(),
            messages=len(self.context.request.body),
            usage=usage,
            dollars_paid=paid,
            dollars_unchanged=price_prompt(window, plan.tokens_before, cached) if is_changed else paid,
            dollars_would_be=self._price_observed(usage, now) if is_only_observed else paid,
        )

    def _price_observed(self, usage: Usage, now: float) -> float | None:
        """Dollars for the view that was only tried out, scaled by what the upstream counted for the real one."""
        ratio = usage.prompt / max(1, self._plan.tokens_before)
        # An upstream that had nothing in its cache would have had nothing of the shorter history either.
        cached = self._cached_observed(now) if usage.cached else 0
        return price_prompt(self.window, round(self._plan.tokens_after * ratio), round(cached * ratio))

    def _cached_observed(self, now: float) -> int:
        """Tokens of the view that was only tried out that would have been in the upstream's cache."""
        plan = self._plan
        unchanged = self._cached_unchanged(now)
        known = max(0, plan.tokens_after - (plan.tokens_before - unchanged)) if unchanged else 0
        if plan.action != "created" or not known:
            return known
        state = self._state(self._gather_facts(can_summarize=False))
        before = self.context.request.head + state.view
        pairs = zip(before, plan.view, strict=False)
        shared = takewhile(lambda pair: pair[0].raw == pair[1].raw, pairs)
        return min(known, self.count(plan.tools or b"") + sum(self.count(message.raw) for message, _ in shared))

    def _cached_unchanged(self, now: float) -> int:
        """Tokens that the upstream would have had in its cache, had the history been forwarded as it came."""
        last, body, links = self.memory.last, self.context.request.body, self.identified.links
        if last is not None and window.is_cold(now - last.forwarded_at, self.context.prices):
            return 0
        is_here = last is not None and last.anchor.link in links
        known = links.index(last.anchor.link) if last is not None and is_here else find_last_assistant(body) or 0
        count = self.count
        return self._plan.tokens_before - sum(count(message.raw) for message in body[known:])

    # What the decisions are made from

    @property
    def _plan(self) -> Plan:
        if self.decision.plan is None:
            raise ValueError("nothing was decided yet")
        return self.decision.plan

    @property
    def identified(self) -> Identity:
        """The identity, which is there from the look-up on."""
        if self.identity is None:
            raise ValueError("the conversation was not identified yet")
        return self.identity

    @property
    def _is_observed(self) -> bool:
        """True where the block is only tried out, and stored apart from those in force."""
        return self.observes and (self.memory.observed or self.memory.block is None)

    @property
    def _may_be_stored(self) -> bool:
        """True where an upstream has ever accepted a request of this caller or this conversation."""
        block, memory = self._plan.block, self.memory
        is_summarized = block is not None and block.summary is not None
        return self.context.is_known or memory.last is not None or memory.block_bytes is not None or is_summarized

    def _describe(self, plan: Plan | None, *, is_large: bool = True) -> Decision:
        """The decision as it is reported to the client."""
        rules = self.rules
        outcome: Outcome = "none"
        if plan is not None:
            outcome = "observed" if self._is_observed else plan.action
        if outcome == "none" and not rules.new_blocks:
            outcome = "off"
        if plan is None:
            is_blind = rules.new_blocks and rules.trigger != 0 and not self.window.is_known
            reason = SWITCHED_OFF if self.context.is_halted else WINDOW_UNKNOWN if is_blind and is_large else ""
            return Decision(outcome, reason)
        reason = plan.reason
        if outcome == "off" and self.context.is_halted:
            reason = SWITCHED_OFF
        elif self._ignores_focus(plan):
            reason = FOCUS_UNUSED
        elif not reason and not self.window.is_known:
            reason = WINDOW_UNKNOWN
        return Decision(outcome, reason, rules.policy, rules.version, self.identified.conversation, plan)

    def _fits(self, size: int) -> bool:
        """True where a history of so many tokens fits the window, as far as that is known."""
        usable = self._gather_request_facts(self.window).usable_tokens
        return usable is None or size <= usable

    def _ignores_focus(self, plan: Plan) -> bool:
        """True where the client named a focus, and what is forwarded holds no summary that was asked for with it."""
        block = plan.block or self.memory.block
        focus = self.context.focus if self.context.mode == "force" else ""
        return focus != "" and (block is None or block.focus != focus)

    def _narrow(self, learned: Window | None) -> Window:
        """The window as an overflow taught it: that overrules table and probe, but not the operator."""
        window = self.context.window
        if learned is None or window.origin == "config":
            return window
        output = learned.output or window.output
        return replace(window, total=learned.total, input=learned.input, output=output, origin=learned.origin)

    def _window_keys(self, tenant: str) -> tuple[str, str]:
        """The keys of the window in the store: per tenant, because limits may depend on the credential."""
        return make_window_keys(tenant, self.context.upstream, self.context.request.model, tenant)

    def _may_need_summary(self, size: int) -> bool:
        """True where a summary may be due by any count; if not, summaries are not looked up."""
        if self.observes:
            return False
        facts = self._gather_request_facts(self._narrow(self.context.local_window))
        return facts.force or planning.is_near_limit(COUNT_ERROR_RATIO * size, self.rules, facts)

    def _gather_request_facts(self, window: Window) -> Facts:
        """The facts that follow from the request alone."""
        usable, rules = window.usable_tokens(self.context.request.max_output), self.rules
        base = window.tokens if rules.trigger_of == "window" else usable
        if usable is not None and not rules.trusts_usage:
            # What fits is known in the upstream's tokens; the estimate is in others.
            usable = int(usable / self.memory.calibration.ratio)
        return Facts(
            usable_tokens=usable,
            nominal_tokens=window.usable_tokens(),
            trigger_base_tokens=base,
            prices=self.context.prices,
            force=self.context.mode == "force",
            focus=self.context.focus,
            insists=self.context.mode == "force" and (self.context.insists or self.context.focus != ""),
            answer_has_begun=self.context.answer_has_begun,
        )

    def _gather_facts(self, *, can_summarize: bool) -> Facts:
        """The facts that `planning.decide` needs beside the history itself."""
        memory, candidate = self.memory, self.memory.candidate or NO_CANDIDATE
        last = memory.last
        useless = last.useless_blocks if last is not None else 0
        may_ask = (
            can_summarize and not self.observes and candidate.failures < MAX_FAILURES and useless < USELESS_BLOCKS_MAX
        )
        asked = self._gather_request_facts(self.window)
        is_failing = candidate.state == "failed" and candidate.failures > 0
        if asked.insists:
            # Who asks by name, or for something of their own, is not answered with what was asked or failed before.
            candidate, may_ask = NO_CANDIDATE, not self.observes
        is_known = last is not None and self.rules.trusts_usage and last.counter == self.identified.counter
        return replace(
            asked,
            was_forwarded=last is not None,
            can_summarize=may_ask,
            summary_failed=self.rules.summary.enabled and not self.observes and (is_failing or not can_summarize),
            useless_blocks=useless,
            summary_in_progress_covers=candidate.covers if candidate.state == "making" and not self.observes else 0,
            summary=Summary(candidate.covers, candidate.text) if candidate.state == "ready" else None,
            failed_summary_covers=candidate.covers if candidate.state == "failed" else 0,
            anchor=last.anchor if is_known and last is not None else None,
            idle_seconds=None if last is None else max(0.0, self.context.now - last.forwarded_at),
        )

    def _state(
        self, facts: Facts, calibration: Calibration | None = None, rules: Rules | None = None
    ) -> ConversationState:
        memory = self.memory
        if rules is None:
            # While observing, a block that is in force stays, and no other follows it.
            is_in_force = memory.block is not None and not memory.observed
            rules = replace(self.rules, new_blocks=False) if self.observes and is_in_force else self.rules
        return ConversationState.of(
            self.context.request,
            self.identified.links,
            memory.block,
            rules,
            count=self.context.count,
            calibration=calibration or self._choose_calibration(memory.calibration),
            facts=facts,
        )

    def _choose_calibration(self, learned: Calibration) -> Calibration:
        """The calibration that the policy counts by: what was learned, or none."""
        return learned if self.rules.trusts_usage else UNCALIBRATED

    def _count(self, calibration: Calibration) -> Count:
        """Tokens as this upstream counts them, as far as it has told."""
        return partial(count_calibrated, self.context.count, calibration)


def find_smallest_bytes(rules: Rules) -> int:
    """The size of the smallest request body about which anything is to be decided, in a window with some room."""
    least = [LOOK_UP_MIN_TOKENS, rules.clear_tokens]
    if rules.trigger_tokens:
        least.append(rules.trigger_tokens)
    return BYTES_PER_TOKEN * min(least)


def list_forwarded_pieces(plan: Plan) -> list[bytes]:
    """The pieces of a forwarded history that are counted: its messages and its tools."""
    return [message.raw for message in plan.view] + [plan.tools or b""]


def is_silently_cut(counted: int, answer: AnswerReport) -> bool:
    """True where the upstream answered without reading all of its prompt (some servers cut and do not say so)."""
    if answer.says_truncated:
        return True
    # Some servers report only the uncached part as prompt tokens: that is no cut.
    read = max(answer.prompt_tokens, answer.usage.cached or 0)
    return bool(answer.usage.prompt) and counted >= SILENT_CUT_MIN_TOKENS and read < counted * SILENT_CUT_SHARE
