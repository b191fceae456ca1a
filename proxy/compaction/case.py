"""One request as compaction sees it, from understood to sent: what it is about, what the heart said, how it leaves.

Values only. They are gathered and carried out in `compactor`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from proxy.compaction.facts import Identity, prices_of
from proxy.compaction.lessons import Which, which
from proxy.compaction.recall import Memory
from proxy.compaction.wish import Wish
from proxy.config import Policy
from proxy.core.messages import Request
from proxy.core.pipeline import Count
from proxy.core.plan import Ready
from proxy.core.rules import Facts, Rules
from proxy.store.originals import Kept
from proxy.tokenizer import Calibration, Tokenizer
from proxy.upstream import Call
from proxy.windows import Learned, Window
from proxy.wire.headers import Headers


@dataclass(frozen=True, slots=True)
class Case:
    """A request and everything that judging it takes."""

    call: Call
    wish: Wish
    request: Request
    policy: Policy
    rules: Rules
    window: Window
    tokenizer: Tokenizer
    upstream: str
    counts: Mapping[bytes, int] = field(default_factory=dict)
    """Tokens of each message and of the tools, once they are counted."""

    @property
    def observes(self) -> bool:
        return self.wish.mode == "observe" or (self.policy.mode == "observe" and self.wish.mode == "auto")

    @property
    def which(self) -> Which:
        """Whose window it is."""
        return which(self.upstream, self.request.model, self.call.headers)

    @property
    def raws(self) -> list[bytes]:
        """What weighs in it."""
        return [message.raw for message in self.request.messages] + [self.request.tools or b""]

    def knowing(self, lesson: Window | None) -> "Case":
        """What an overflow taught counts for more than what was told; what the operator says, for more than both."""
        if lesson is None or self.window.origin == "config":
            return self
        limits = replace(self.window, total=lesson.total, input=lesson.input, origin=lesson.origin)
        return replace(self, window=limits)

    def facts(self) -> Facts:
        usable = self.window.room(self.request.max_output)
        return Facts(usable=usable, prices=prices_of(self.window), force=self.wish.mode == "force")

    def count(self, calibration: Calibration) -> Count:
        """Tokens as this upstream counts them, as far as it has told."""
        known = {raw: calibration.tokens(tokens) for raw, tokens in self.counts.items()}

        def count(raw: bytes) -> int:
            tokens = known.get(raw)
            if tokens is None:
                tokens = known[raw] = calibration.tokens(self.tokenizer.count(raw))
            return tokens

        return count


@dataclass(frozen=True, slots=True)
class Decided:
    """What the heart said of a case, and on what grounds."""

    case: Case
    identity: Identity
    memory: Memory
    ready: Ready
    kept: Kept | None = None
    """Its history on its way to the originals."""

    @property
    def rehearsed(self) -> bool:
        """Only observed: what was decided is noted apart from what is in force."""
        return self.case.observes and (self.memory.rehearsed or self.memory.block is None)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call as it leaves, what the client is told, and what to note once the upstream has answered."""

    call: Call
    notes: Headers
    decided: Decided | None = None
    wish: Wish = field(default_factory=Wish)
    case: Case | None = None
    """What it is about, where it was understood."""
    lesson: Learned | None = None
    """What it teaches if the upstream takes it."""

    @property
    def ready(self) -> Ready | None:
        return self.decided.ready if self.decided is not None else None


@dataclass(frozen=True, slots=True)
class Ruled:
    """A policy and the rules it compiles to: once for a configuration, not once for a request."""

    policy: Policy
    rules: Rules

    @classmethod
    def by(cls, name: str, policy: Policy) -> "Ruled":
        return cls(policy, policy.rules(name))
