"""What `decide()` is told: the rules of a policy, and the facts of the moment.

Both are plain values. A policy in `proxy.yaml` compiles to `Rules`; whoever knows the window, the usage and the clock
fills in `Facts`. Figures are in tokens unless they say otherwise. The defaults are those that did best in replays of
recorded conversations.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from proxy.core.asides import ASIDES
from proxy.core.economics import Prices
from proxy.core.observations import OBSERVATIONS
from proxy.core.pins import Pins
from proxy.core.pipeline import Step
from proxy.core.steps import (
    ClearArguments,
    ClearObservations,
    ClearResults,
    ClipOutput,
    DedupArrivals,
    DropMiddle,
    StripReasoning,
)
from proxy.core.summary import Summaries, Summary


@dataclass(frozen=True, slots=True)
class Keep:
    """How much of the newest is left alone: the groups that fit into `tokens`, but at least `groups` and `turns`."""

    tokens: int = 2_000
    groups: int = 2
    turns: int = 0
    first: int = 0
    """How many groups at the beginning are left alone as well."""


@dataclass(frozen=True, slots=True)
class Rules:
    """A policy, compiled."""

    policy: str = "default"
    version: str = ""
    """Changes with any value of the policy."""
    always: tuple[Step, ...] = (ClipOutput(), DedupArrivals())
    when_full: tuple[Step, ...] = (StripReasoning(), ClearResults(), ClearObservations(), ClearArguments())
    fold: tuple[Step, ...] = (DropMiddle(),)
    """What brings a view to its target when clearing is not enough."""
    keep: Keep = field(default_factory=Keep)
    clear_at_least: int = 13_000
    """Old results are cleared once this much can go; in a history shorter than this nothing happens at all."""
    clear_cold_at_least: int = 4_000
    """The same while the upstream has forgotten the conversation anyway."""
    horizon: float = 60.0
    """Within how many requests a rewrite must have paid for itself."""
    trigger: float = 0.8
    """Above this share of the usable window a block is made (0: never)."""
    trigger_tokens: int = 0
    """The same as a number of tokens, whichever comes first (0: none)."""
    target: float = 0.5
    """... that brings the view down to this share of the trigger."""
    min_progress: float = 0.1
    """A block that frees less than this share of the view is not worth making, unless it is what makes the view fit."""
    min_groups: int = 4
    """Shorter conversations are left alone unless they do not fit."""
    repair: bool = False
    """Results that are missing in what a block covers are filled in, and those that answer nothing left out."""
    summary: Summaries = field(default_factory=Summaries)
    """When a model is asked for a summary instead of folding without one."""
    new_blocks: bool = True
    """Off: what was promised stays, and nothing new is."""
    observations: tuple[str, ...] = OBSERVATIONS
    """User messages in which one of these is found are observations, in a history without tool calls."""
    asides: tuple[str, ...] = ASIDES
    """A last message in which one of these is found is about the conversation: nothing new is made for its sake."""
    pins: Pins = field(default_factory=Pins)
    clean: Callable[[bytes], bytes] = bytes
    """Takes secrets out of what is written into a block; by default it takes nothing."""

    @property
    def signed(self) -> str:
        """The policy and its version, as blocks and transcripts tell them."""
        return f"{self.policy}@{self.version}" if self.version else self.policy

    def limits(self, usable: int | None, prices: Prices) -> list[tuple[int, str]]:
        """The sizes over which a block is made, lowest first, each with the reason it gives."""
        found = [(edge, "cliff") for edge in prices.cliffs]
        if usable is not None and self.trigger > 0:
            found.append((int(usable * self.trigger), "window"))
        if self.trigger_tokens > 0:
            found.append((self.trigger_tokens, "window"))
        return sorted(found)

    def harder(self) -> "Rules":
        """For a request that the upstream found too long: keep little and clip hard, whatever the rewrite costs."""
        clip = ClipOutput(over=8_000, share=0.05)
        keep, alone = Keep(tokens=self.keep.tokens // 4, groups=1), replace(self.summary, enabled=False)
        return replace(self, always=(*self.always, clip), keep=keep, trigger=0.7, min_groups=0, summary=alone)


@dataclass(frozen=True, slots=True)
class Anchor:
    """What the upstream counted for an earlier request of this conversation: the only true number there is."""

    link: bytes
    """The chain link of the last message of that request."""
    tokens: int
    """The prompt tokens it reported."""
    basis: bytes
    """`Ready.basis` of that request: the number tells nothing about a view that was built otherwise."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known at this moment beside the history; None and the defaults where it is not."""

    usable: int | None = None
    """Window minus reserved output minus margin; None when the window is unknown."""
    anchor: Anchor | None = None
    idle: float | None = None
    """Seconds since the conversation was last forwarded, if known."""
    prices: Prices = field(default_factory=Prices)
    seen: bool = True
    """Whether a prefix of this history was forwarded before: only then may a model be asked for a summary."""
    force: bool = False
    """The client asked for it: compact now, whatever the figures say."""
    focus: str = ""
    """What the client wants remembered above all."""
    summary: Summary | None = None
    """A model's account of the longest prefix for which there is one."""
    making: int = 0
    """How many messages the summary covers that a model is writing just now."""
    may_ask: bool = True
    """Whether a model can be asked for another one now."""
    vain: int = 0
    """How many blocks in a row did not bring the history below its limit, by the upstream's own count."""
    failed: int = 0
    """How many messages a summary that failed would have covered: it is tried again only for many more."""


NOTHING_KNOWN = Facts()
