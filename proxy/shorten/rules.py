"""Rules and facts: the input of `planning.decide()` beside the history itself.

A policy in `proxy.yaml` compiles to `Rules`. The orchestration, which knows the window, the usage and the clock, fills
in `Facts`. Figures are in tokens unless they say otherwise. The defaults did best in replays of recorded conversations.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from proxy.history.agents import ASIDES, OBSERVATIONS
from proxy.history.grouping import Pins
from proxy.shorten.pipeline import GoOn, Step, always_go_on
from proxy.shorten.steps.clear_observations import ClearObservations
from proxy.shorten.steps.clear_results import ClearResults
from proxy.shorten.steps.clip_output import ClipOutput
from proxy.shorten.steps.dedup_arrivals import DedupArrivals
from proxy.shorten.steps.drop_middle import DropMiddle
from proxy.shorten.steps.strip_reasoning import StripReasoning
from proxy.shorten.summary import Summary, SummaryRules
from proxy.shorten.window import Prices, find_share_worth_clearing

LARGE_TRIGGER, SMALL_TRIGGER, SPARED_TOKENS = 0.5, 0.8, 48_000
"""The trigger `auto`: it saves cost before large windows, but of small ones a history may use more: the tokens spared,
as far as they fit."""
CLEAR_TOKENS, CLEAR_COLD_TOKENS = 40_000, 12_000
"""`clear_at_least` and `clear_cold_at_least` if they are `auto`, where cached tokens cost a tenth of others or less."""
LEAST_LIMIT_TOKENS = 2_000
"""A headroom never brings the trigger below this: instructions and tools alone would be over it, at every request."""
KEPT_SHARE, USER_WORDS_SHARE, SUMMARY_SHARE = 1 / 2, 1 / 2, 1 / 3
"""The most that the newest messages, the user's older words and a summary may take of what a block brings a view down
to. Ledger and answers have such shares too, see `Draft.bytes_within`."""
WORKING_MEMORY_SHARE = 0.9
"""The most that a working memory may take of it."""


@dataclass(frozen=True, slots=True)
class Keep:
    """How much of the newest part is left alone: the groups that fit into `tokens`, at least `groups` and `turns`.

    No tokens, groups or turns at all: only what the model has not answered yet.
    """

    tokens: int = 2_000
    groups: int = 2
    turns: int = 0
    first: int = 0
    """The number of groups at the beginning that are left alone as well."""


@dataclass(frozen=True, slots=True)
class Rules:
    """A policy, compiled."""

    policy: str = "default"
    version: str = ""
    """Changes with any value of the policy."""
    always: tuple[Step, ...] = (ClipOutput(), DedupArrivals())
    when_full: tuple[Step, ...] = (StripReasoning(), ClearResults(), ClearObservations())
    fold: tuple[Step, ...] = (DropMiddle(),)
    """Steps that bring a view to its target when clearing is not enough."""
    keep: Keep = field(default_factory=Keep)
    clear_at_least: int | Literal["auto"] = "auto"
    """Old results are cleared once this many tokens can go; a history shorter than this is left alone. `auto`: fewer
    where cached tokens are dear. A number is in force as it is."""
    clear_cold_at_least: int | Literal["auto"] = "auto"
    """The same while the prompt cache of the conversation is cold. `auto`: as many, if `clear_at_least` is a number."""
    always_at_least: int = 0
    """Tokens of a history from which the always-steps act (0: from `clear_at_least`)."""
    horizon: float = 60.0
    """The number of requests within which a rewrite must have paid for itself."""
    trigger: float | Literal["auto"] = "auto"
    """Above this share of the usable window a block is made (0: only of what does not fit; `auto`: by its size)."""
    trigger_of: Literal["usable", "window"] = "usable"
    """What the trigger is a share of: the window less the answer and a margin, or all of it."""
    headroom: float = 0.0
    """The share of it that must stay free below the trigger."""
    trigger_tokens: int = 0
    """The same as a number of tokens, whichever comes first (0: none)."""
    target: float = 0.8
    """... that brings the view down to this share of the trigger, or further..."""
    room: int = 14_000
    """... so that this many tokens are free below the trigger, but no more than half of it: without this, each turn
    before a small window would make a block."""
    min_progress: float = 0.1
    """A block that frees less than this share of the view is not made, unless the view would not fit without it."""
    min_groups: int = 4
    """Shorter conversations are left alone unless they do not fit."""
    min_turns: int = 0
    """Conversations of no more turns are left alone unless they do not fit."""
    trusts_usage: bool = True
    """Sizes are what the upstream has reported, as far as it has; off: the estimate alone."""
    repair: bool = False
    """Where a block is applied, fill in missing results and leave out results without a call."""
    keep_documents: bool = True
    """Instruction documents and the task stay whole until a fold must take them; see `documents.py`."""
    working_memory: float = 0.0
    """The newest tokens that are left alone while a request fits: a number, or up to 1 a share of the window."""
    fold_all: bool = False
    """Fold everything older than what is kept, and not only as much as the target takes."""
    summary: SummaryRules = field(default_factory=SummaryRules)
    """When a model is asked for a summary instead of folding without one."""
    new_blocks: bool = True
    """Off: existing blocks are applied, and no new one is made."""
    observations: tuple[str, ...] = OBSERVATIONS
    """User messages in which one of these is found are observations, in a history without tool calls; with none of
    these, no message is."""
    asides: tuple[str, ...] = ASIDES
    """A last message in which one of these is found is about the conversation: no block is made for it."""
    pins: Pins = field(default_factory=Pins)
    recall_tool: bytes = b""
    """The definition of the tool that reads earlier messages again, as the API of the request has it; empty: none."""
    redact: Callable[[bytes], bytes] = bytes
    """Removes secrets from what is written into a block; by default it removes nothing."""
    go_on: GoOn = always_go_on

    @property
    def label(self) -> str:
        """The policy and its version, as written into blocks and transcripts."""
        return f"{self.policy}@{self.version}" if self.version else self.policy

    @property
    def clear_tokens(self) -> int:
        """`clear_at_least` as a number, whatever the prices."""
        return CLEAR_TOKENS if self.clear_at_least == "auto" else self.clear_at_least

    @property
    def clear_cold_tokens(self) -> int:
        """`clear_cold_at_least` as a number."""
        if self.clear_cold_at_least != "auto":
            return self.clear_cold_at_least
        return CLEAR_COLD_TOKENS if self.clear_at_least == "auto" else self.clear_at_least

    def find_clearing(self, prices: Prices) -> int:
        """The tokens that must go while the cache is warm: fewer by default where waiting for more costs much."""
        if self.clear_at_least != "auto":
            return self.clear_at_least
        share = find_share_worth_clearing(prices)
        return max(min(CLEAR_TOKENS, self.clear_cold_tokens), round(CLEAR_TOKENS * share))

    def describe_clearing(self, tokens: int, *, is_cold: bool) -> str:
        """The setting that says how many tokens must go, its value, and the number in force if that is another."""
        name = "clear_cold_at_least" if is_cold else "clear_at_least"
        value = getattr(self, name)
        return f"{name}: {value}" if value == tokens else f"{name}: {value} ({tokens} here)"

    def limits(self, facts: "Facts") -> list[tuple[int, str]]:
        """The sizes over which a block is made, lowest first, each with the reason it gives."""
        found = [(edge, "cliff") for edge in facts.prices.cliffs]
        usable, whole = facts.usable_tokens, facts.trigger_base_tokens or facts.usable_tokens
        if usable is not None and whole is not None and self.trigger != 0:
            # A share of the whole window may leave no room for an answer: what does not fit is over the limit.
            found.append((min(usable, self._find_limit(whole)), "window"))
        elif usable is not None:
            found.append((usable, "window"))  # what does not fit is refused, whatever the policy says
        if self.trigger_tokens > 0:
            found.append((self.trigger_tokens, "window"))
        return sorted(found)

    def _find_limit(self, whole: int) -> int:
        """The trigger in tokens, less the headroom."""
        share = self._find_trigger(whole)
        return max(int(whole * (share - self.headroom)), min(int(whole * share), LEAST_LIMIT_TOKENS))

    def _find_trigger(self, whole: int) -> float:
        """The trigger as a share of so many tokens."""
        if self.trigger != "auto":
            return self.trigger
        return max(LARGE_TRIGGER, min(SMALL_TRIGGER, SPARED_TOKENS / max(1, whole)))

    def find_goal(self, limit: int, reason: str = "") -> int:
        """The size that a block brings a view over this limit down to. A client that asks for one wants half gone."""
        room = limit // 2 if reason == "forced" else min(limit // 2, self.room)
        return min(int(limit * self.target), limit - room)

    def fit(self, facts: "Facts") -> "Rules":
        """The rules with each amount bounded by its share of what fits: 20,000 tokens of words fill a window of 8,000.

        It depends on the policy and the room in the window alone. What was stored before keeps its bytes.
        """
        limits = self.limits(facts)
        if not limits:
            return self
        goal = self.find_goal(limits[0][0])
        words = max(1, int(goal * USER_WORDS_SHARE))
        summary = replace(
            self.summary,
            user_tokens=min(self.summary.user_tokens, words),
            max_tokens=min(self.summary.max_tokens, max(1, int(goal * SUMMARY_SHARE))),
        )
        kept_tokens = min(self.keep.tokens, int(goal * KEPT_SHARE))
        memory = min(self._find_working_memory(facts), int(goal * WORKING_MEMORY_SHARE))
        keep = replace(self.keep, tokens=max(kept_tokens, memory))
        fold = tuple(_bound_words(step, words) for step in self.fold)
        return replace(self, summary=summary, keep=keep, fold=fold)

    def _find_working_memory(self, facts: "Facts") -> int:
        """The working memory in tokens: a share needs a window that is known."""
        if self.working_memory > 1:
            return int(self.working_memory)
        return int(self.working_memory * (facts.nominal_tokens or facts.usable_tokens or 0))

    def for_overflow(self) -> "Rules":
        """The rules for a request that the upstream refused as too long: keep little and clip hard, at any price."""
        clip = ClipOutput(over=8_000, share=0.05)
        keep, alone = Keep(tokens=self.keep.tokens // 4, groups=1), replace(self.summary, enabled=False)
        steps, target = (*self.always, clip), min(self.target, 0.5)
        return replace(
            self,
            always=steps,
            keep=keep,
            trigger=0.7,
            target=target,
            min_groups=0,
            keep_documents=False,
            working_memory=0.0,
            summary=alone,
        )


def _bound_words(step: Step, tokens: int) -> Step:
    """The step, keeping no more than so many tokens of the user's words."""
    if isinstance(step, DropMiddle) and step.user_tokens > tokens:
        return replace(step, user_tokens=tokens)
    return step


@dataclass(frozen=True, slots=True)
class Anchor:
    """The upstream's own token count of an earlier request of this conversation: the only exact one."""

    link: bytes
    """The chain link of the last message of that request."""
    tokens: int
    """The prompt tokens it reported."""
    view_id: bytes
    """`Plan.view_id` of that request: the count says nothing about a view built on another block."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts known beside the history when a request is decided; None or the default where unknown."""

    usable_tokens: int | None = None
    """Window minus reserved output minus margin; None when the window is unknown."""
    nominal_tokens: int | None = None
    """The same for a client that does not say how long an answer may be: equal for all requests to one model."""
    trigger_base_tokens: int | None = None
    """What `Rules.trigger` is a share of, where that is not `usable_tokens`."""
    anchor: Anchor | None = None
    idle_seconds: float | None = None
    """Seconds since the conversation was last forwarded, if known."""
    prices: Prices = field(default_factory=Prices)
    was_forwarded: bool = True
    """A prefix of this history was forwarded before: only then may a model be asked for a summary."""
    force: bool = False
    """The client asked to compact now, whatever the figures say."""
    focus: str = ""
    """What the client wants a summary to keep above all."""
    insists: bool = False
    """The client asked by name or with a focus: a model is asked, however short the history is."""
    answer_has_begun: bool = False
    """The model asked for it in the midst of its answer."""
    summary: Summary | None = None
    """The summary of the longest prefix for which there is one."""
    summary_in_progress_covers: int = 0
    """The number of messages covered by the summary in progress (0: none)."""
    can_summarize: bool = True
    """A model can be asked for a summary now."""
    summary_failed: bool = False
    """A call for a summary has failed lately: what fits is left unchanged until the next one."""
    useless_blocks: int = 0
    """The number of blocks in a row after which the upstream's own count was still over the limit."""
    failed_summary_covers: int = 0
    """The number of messages a failed summary would have covered: it is tried again only for many more."""


NOTHING_KNOWN = Facts()
