"""Rules and facts: the input of `planning.make_plan()` besides the history itself, in tokens unless they say otherwise.

The fields of `Rules` are the settings of a policy that decide about a history, with their bounds and descriptions;
`config/policies.py` makes `Policy` of them, and adds the others. Their defaults did best in replays of recorded
conversations.

`find_due_fold` says when a history is folded and down to which size, from sizes and the state of the upstream's cache:

    trigger   |                     ______/   over it: always
              |               _____/           from 0.6 of it on: when a user writes, if caches last an hour
    target    | __..________ /                 so far over it that `fold_cold_at_least` are freed: cache expired
              |/
              +------------------------------ requests

A rewrite costs the tokens that the upstream would have had in its cache: none if the cache has expired. A cache of an
hour hardly ever expires while a person works, so there the moment is a user's message. Of the rewrites that would have
been best in hindsight, 61 % fall on expired caches, which 3 % of requests find.
"""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from proxy.foundation.declaration import INTERNAL, check_texts
from proxy.history.observations import ASIDES, OBSERVATIONS, find_pattern_fault
from proxy.history.pins import Pins, find_pin_fault
from proxy.shorten.block import BlockReason
from proxy.shorten.clear_results import ClearObservations, ClearResults, ClipOutput, DedupArrivals, StripReasoning
from proxy.shorten.drop_middle import DropMiddle
from proxy.shorten.economics import LAST_RESORT_SECONDS, Prices
from proxy.shorten.pipeline import Step
from proxy.shorten.summary import Summary, SummaryRules

AUTO_TRIGGER, AUTO_TRIGGER_TOKENS = 0.83, 95_000
"""`trigger: auto`: the lower of this share of the usable window and these tokens.

A window bounds the size, not the cost: in a window of a million tokens a history of 95,000 costs as much as elsewhere.
"""
DEAR_READ_SHARE, DEAR_TRIGGER_TOKENS = 0.5, 75_000
"""The same if cached tokens cost half of others, as with gpt-4o: there a long history is dear at each request.

On 19 recorded conversations it costs 8 points less than 95,000, with re-reads charged twice (decision 0008).
"""
ENOUGH_SHARE = 0.9
"""If no block reaches the goal, one that brings the view down to this share of the limit is enough."""


class Keep(Struct, frozen=True):
    """The newest messages, which stay whole when older ones are shortened, as long as that is enough.

    If tokens, groups and turns are all 0, only what the model has not answered yet is kept.
    """

    tokens: int = 15_000
    """Keep the newest messages that fit in this many tokens, but at most two thirds of what `target` comes to; more of
    them if what was shortened is fetched again. Raise both for agents that refer back to what they read."""
    groups: int = 2
    """Keep at least this many of the newest groups, whatever their size. A group is a tool call with its results, or
    one message."""
    turns: int = 0
    """Keep at least this many of the newest turns. A turn is a user's message and everything up to the next one."""
    first: int = 0
    """Also keep this many groups at the beginning. Set it if conversations open with instructions or examples."""


class Limit(NamedTuple):
    """The size above which a block is made, and the reason that it gives."""

    tokens: int
    reason: BlockReason


class Rules(Struct, frozen=True):
    policy: Annotated[str, INTERNAL] = "default"
    version: Annotated[str, INTERNAL] = ""
    """Changes with any value of the policy."""
    estimator: Literal["tokens", "chars"] = "tokens"
    """Size of a history: `tokens` by the model's tokenizer and reported usage, `chars` as the characters of its JSON /
    4."""
    recount: Literal["answer", "probe"] = "answer"
    """How the size of a shortened history is learned: by the usage of the next `answer`, or, if that has none, by a
    `probe` for 16 tokens."""
    trigger: float | Literal["auto"] = "auto"
    """Share of the context window (see `trigger_of`) above which a history is shortened whatever it costs. `auto`:
    0.83, and at most 95,000 tokens, because long requests cost more in any window (75,000 if cached tokens cost half of
    others). 0: the whole window, above which it would not fit."""
    trigger_tokens: int = 0
    """A limit in tokens: the lowest of all limits counts, and 0 is none. Set it if long requests have a higher
    price."""
    trigger_of: Literal["usable", "window"] = "usable"
    """What `trigger` is a share of: the `usable` window, without the room for the answer and a margin, or the whole
    `window`."""
    target: Annotated[float, Meta(gt=0, lt=1)] = 0.25
    """Share of the trigger that a summary or a fold brings the history down to, at least 8,000 tokens (in small windows
    half of the trigger); neither is made if clearing old results alone halves it. Raise it to keep more each time and
    rewrite more often."""
    fold_cold_at_least: int = 30_000
    """While the provider's cache has expired, when a rewrite costs nothing extra, shorten as soon as this many tokens
    can be saved; if caches last an hour or longer, also when a user writes. 0: only over the trigger."""
    clear_at_least: int = 0
    """Also shorten old tool results, below the trigger and whatever it costs, each time this many tokens can be saved.
    0: never, so that the provider's cache stays valid."""
    min_progress: Annotated[float, Meta(lt=1)] = 0.1
    """Smallest share of the history that a summary or a fold must save, unless the request would not fit without it."""
    min_groups: int = 4
    """Conversations with fewer groups are not rewritten if they fit. A group is a tool call with its results, or one
    message."""
    min_turns: int = 0
    """Conversations of up to this many turns are not rewritten if they fit; 0 is no limit. A turn is a user's message
    and everything up to the next one."""
    keep_documents: bool = True
    """Keep instruction files (AGENTS.md, SKILL.md, rules, memory) and the text of the task that the user named whole; a
    fold keeps as many of them as fit in 0.8 of `target`."""
    repair: bool = False
    """When a history is shortened, also add missing results of tool calls and remove results without a call. Set it for
    agents that send such histories."""
    keep: Keep = Keep()
    """The newest messages, which stay whole when older ones are shortened."""
    always: tuple[Step, ...] = (ClipOutput(), DedupArrivals())
    """Steps for each new message as it arrives. They never change a message that was forwarded before."""
    when_full: tuple[Step, ...] = (StripReasoning(), ClearResults(), ClearObservations())
    """Steps for older messages when the history is shortened."""
    fold: tuple[Step, ...] = (DropMiddle(),)
    """Steps for a history that is still too long after that, if there is no summary."""
    fold_all: bool = False
    """Let a summary or the steps of `fold` replace everything older than `keep`, and not only as much as `target`
    needs."""
    observations: Annotated[tuple[str, ...], check_texts(find_pattern_fault)] = OBSERVATIONS
    """Regular expressions for agents without tool calls: a user message that matches one is treated as tool output."""
    asides: Annotated[tuple[str, ...], check_texts(find_pin_fault)] = ASIDES
    """Regular expressions for requests about the conversation itself, such as for a title: a last message that matches
    one does not cause a rewrite."""
    summary: SummaryRules = SummaryRules()
    """Summaries by a model, for histories that remain too long."""
    pins: Pins = Pins()
    """Passages of users and system messages that are kept word for word: the newest 250, of 16,000 bytes in all."""
    new_blocks: Annotated[bool, INTERNAL] = True
    """If False, as with `mode: off`, existing blocks are applied and no new one is made."""
    recall_tool: Annotated[bytes, INTERNAL] = b""
    """With `recall: on`, the definition of the tool in the API of the request; else empty."""
    redact: Annotated[Callable[[bytes], bytes], INTERNAL] = bytes
    """With `transcripts.redact`, removes secrets from the text that is written into a block."""

    @property
    def label(self) -> str:
        return f"{self.policy}@{self.version}" if self.version else self.policy

    def find_limit(self, facts: "Facts") -> Limit | None:
        """Return the lowest of the sizes above which a block is made, or None if there is none."""
        limits: list[tuple[int, BlockReason]] = []
        if facts.prices.cliffs:
            limits.append((min(facts.prices.cliffs), "cliff"))
        usable, base = facts.usable_tokens, facts.trigger_base_tokens or facts.usable_tokens
        trigger = self.trigger
        if trigger == "auto":
            trigger = AUTO_TRIGGER
            is_dear = facts.prices.read >= DEAR_READ_SHARE
            limits.append((DEAR_TRIGGER_TOKENS if is_dear else AUTO_TRIGGER_TOKENS, "window"))
        if usable is not None and base is not None:
            limit = usable  # a larger request would be refused, whatever the policy says
            if trigger:
                limit = min(limit, int(base * trigger))
            limits.append((limit, "window"))
        if self.trigger_tokens:
            limits.append((self.trigger_tokens, "window"))
        return Limit(*min(limits)) if limits else None

    def may_ask(self, facts: "Facts") -> bool:
        """Return whether a model may be asked for a summary.

        It is asked only about messages that were sent before, or if the client wants it: a prompt that is sent only
        once would not earn the price of a summary.
        """
        is_due = facts.was_forwarded or facts.force or not self.summary.ahead
        return self.summary.enabled and facts.can_summarize and is_due

    def find_goal(self, limit: int, reason: str = "") -> int:
        goal = max(int(limit * self.target), min(8_000, limit // 2))
        if reason == "forced":
            return min(goal, limit // 2)
        return goal

    def find_shared(self, limit: int) -> int:
        """Return the tokens of which a summary and the newest messages take shares."""
        # In a small window the goal is more than `target`. With shares of that, a summary, the newest messages and the
        # user's words once filled four fifths of the limit, and the next block was due two turns later.
        return min(self.find_goal(limit), int(limit * max(self.target, 0.32)))

    def fit(self, facts: "Facts") -> "Rules":
        """Return the rules with amounts that fit the window: 20,000 tokens of the user's words overfill a small one."""
        lowest_limit = self.find_limit(facts)
        if lowest_limit is None:
            return self
        limit = lowest_limit.tokens
        # A share of the limit and not of `target`, because rules and the task may stand among these words.
        words = max(1, limit // 4)
        shared_tokens = self.find_shared(limit)
        summary = replace(
            self.summary,
            user_tokens=min(self.summary.user_tokens, words),
            max_tokens=min(self.summary.max_tokens, max(1, shared_tokens // 3)),
        )
        # The rest is for the task, the user's words and a ledger.
        newest_tokens = min(self.keep.tokens, int(shared_tokens * (2 / 3)))
        if facts.force:
            # A client that asks for a block, however short its history is, wants all gone but the very newest.
            newest_tokens //= 8
        keep = replace(self.keep, tokens=newest_tokens)
        fold: list[Step] = []
        for step in self.fold:
            if isinstance(step, DropMiddle) and step.user_tokens > words:
                fold.append(replace(step, user_tokens=words))
            else:
                fold.append(step)
        return replace(self, summary=summary, keep=keep, fold=tuple(fold))

    def for_overflow(self) -> "Rules":
        """Return the rules for a request that was refused as too long: keep little and clip hard."""
        return replace(
            self,
            # A single new result may be too long for the window, and only the always-steps may touch it.
            always=(*self.always, ClipOutput(over=8_000, share=0.05)),
            keep=Keep(tokens=self.keep.tokens // 4, groups=1),
            trigger=0.7,  # the upstream counts more than we do, or its window is smaller than we know
            target=min(self.target, 0.5),
            min_groups=0,
            keep_documents=False,
            summary=replace(self.summary, enabled=False),
        )


class Anchor(Struct, frozen=True, array_like=True):
    """The upstream's own count of the prompt of an earlier request."""

    link: bytes
    """The chain link of its last message."""
    tokens: int
    view_id: bytes
    """`Plan.view_id` of that request. The count does not hold for a view on another block."""


class Facts(Struct, frozen=True):
    """Facts about a request besides its history. A fact that is unknown is None or has its default."""

    usable_tokens: int | None = None
    """Window minus reserved output minus margin."""
    nominal_tokens: int | None = None
    """`usable_tokens` without the request's own bound of its answer: equal for all requests to a model."""
    trigger_base_tokens: int | None = None
    """`Rules.trigger` is a share of these; None: of `usable_tokens`."""
    anchor: Anchor | None = None
    idle_seconds: float | None = None
    """Seconds since the conversation was last forwarded."""
    cache_seconds: float = LAST_RESORT_SECONDS
    """The upstream's cache forgets a prefix so long after its last use."""
    prices: Prices = field(default_factory=Prices)
    was_forwarded: bool = True
    """A model may be asked for a summary only if a prefix of this history was forwarded before."""
    refetches_much: bool = False
    """The caller's agents fetch many shortened results again: there is no rewrite as long as the request fits."""
    force: bool = False
    """The client asks for a block now: a model is asked for a summary, however short the history is."""
    focus: str = ""
    """The subject that a summary should keep above all, as the client names it."""
    summary: Summary | None = None
    summary_in_progress_covers: int = 0
    """The number of messages that a summary in progress will cover; 0 if there is none."""
    can_summarize: bool = True
    summary_failed: bool = False
    """A history that fits stays unchanged until the next call for a summary."""
    read_since_question: int | None = None
    """Tokens that requests have read since a model was last asked for a summary; None if none was asked."""
    unused_summaries: int = 0
    """Calls in a row that failed, or whose summary was not used."""

    def fits(self, tokens: float) -> bool:
        """Return whether this many tokens fit in the window, or the window is not known."""
        return self.usable_tokens is None or tokens <= self.usable_tokens

    @property
    def is_cold(self) -> bool:
        return self.idle_seconds is not None and self.idle_seconds > self.cache_seconds


NOTHING_KNOWN = Facts()


class DueFold(Struct, frozen=True):
    """A fold for which the moment has come."""

    limit: int
    reason: BlockReason
    goal: int
    """Tokens that a fold brings the history down to."""
    freed_at_least: int = 0
    """Tokens that must be freed, or the moment passes unused; 0 if the history is over its limit."""

    @property
    def may_pass(self) -> bool:
        return self.freed_at_least > 0

    def is_enough_cleared(self, size: int, freed_tokens: int) -> bool:
        # If clearing halves the view, a fold is not worth the loss of the agent's own words and code, which it often
        # needs again (decision 0008).
        target = max(self.goal, min(size, self.limit) // 2)
        return size - freed_tokens <= target and freed_tokens >= self.freed_at_least

    def is_enough_folded(self, size: int, freed_tokens: int) -> bool:
        return size - freed_tokens <= self.limit * ENOUGH_SHARE and freed_tokens >= self.freed_at_least


def find_due_fold(
    rules: Rules, facts: Facts, size: int, *, user_writes: bool, needed_tokens: int = 0
) -> DueFold | None:
    """Return the fold that is due for a history of this size, or None.

    *needed_tokens*: the size of the results that a fold must leave whole, because the agent fetched such results again.
    If these are more than half of the view, each fold would free little and the next one would follow at once. So the
    limit is raised to twice their size.
    """
    lowest_limit = rules.find_limit(facts)
    if lowest_limit is None:
        return None
    limit, reason = lowest_limit
    goal = rules.find_goal(limit)
    if needed_tokens:
        limit = max(limit, min(2 * needed_tokens, facts.usable_tokens or 2 * needed_tokens))
        goal = max(goal, min(needed_tokens, int(limit * ENOUGH_SHARE)))
    if size > limit:
        return DueFold(limit, reason, goal)
    least = rules.fold_cold_at_least
    if not least or size < goal + least:
        return None
    if facts.is_cold:
        return DueFold(limit, "cold", goal, least)
    long_lived_seconds = 3_600
    if user_writes and facts.cache_seconds >= long_lived_seconds and size > limit * 0.6:
        return DueFold(limit, "user", goal, least)
    return None


def find_smallest_due(rules: Rules, limit: int) -> int:
    """Return the size below which no history is folded."""
    if not rules.fold_cold_at_least:
        return limit
    return min(limit, rules.find_goal(limit) + rules.fold_cold_at_least)
