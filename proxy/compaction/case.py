"""A request as compaction sees it: by whom, what it asks for, by which rules, in front of which window."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from proxy.compaction.lessons import Which, which
from proxy.compaction.wish import Wish
from proxy.config import Policy
from proxy.core.calibration import Calibration
from proxy.core.messages import Request
from proxy.core.pipeline import Count
from proxy.core.rules import Facts, Rules
from proxy.core.window import Window, relative_prices, window_keys
from proxy.tokenizer import Tokenizer
from proxy.upstream import Call, Client
from proxy.wire.redaction import Redaction

NOTHING_REDACTED = Redaction()
NOBODY: Mapping[str, Client] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Case:
    """A request and everything needed to judge it, except what is remembered of its conversation."""

    call: Call
    wish: Wish
    request: Request
    policy: Policy
    rules: Rules
    window: Window
    tokenizer: Tokenizer
    client: Client
    teller: Client | None = None
    """The upstream that makes the summaries, where it is another."""
    redaction: Redaction = NOTHING_REDACTED
    counts: Mapping[bytes, int] = field(default_factory=dict)
    """Tokens of each message and of the tools, once they are counted."""

    @property
    def upstream(self) -> str:
        return self.client.settings.name

    @property
    def asked(self) -> Client:
        """The upstream that makes its summaries."""
        return self.teller or self.client

    @property
    def observes(self) -> bool:
        return self.wish.mode == "observe" or (self.policy.mode == "observe" and self.wish.mode == "auto")

    @property
    def which(self) -> Which:
        """Whose window it is."""
        return which(self.upstream, self.request.model, self.call)

    def window_keys(self, tenant: str) -> tuple[str, str]:
        """Where its window is remembered: for each tenant, because limits may depend on the credential."""
        return window_keys(tenant, self.upstream, self.request.model, tenant)

    @property
    def raws(self) -> list[bytes]:
        """What is counted: its messages and tools."""
        return [message.raw for message in self.request.messages] + [self.request.tools or b""]

    def knowing(self, lesson: Window | None) -> "Case":
        """The case with the window that an overflow taught: that overrules what was told, but not the operator."""
        if lesson is None or self.window.origin == "config":
            return self
        output = lesson.output or self.window.output
        limits = replace(self.window, total=lesson.total, input=lesson.input, output=output, origin=lesson.origin)
        return replace(self, window=limits)

    def facts(self) -> Facts:
        usable = self.window.usable_tokens(self.request.max_output)
        prices, force = relative_prices(self.window), self.wish.mode == "force"
        return Facts(usable=usable, prices=prices, force=force, focus=self.wish.focus)

    def count(self, calibration: Calibration) -> Count:
        """Tokens as this upstream counts them, as far as it has told."""
        known = {raw: calibration.calibrate(tokens) for raw, tokens in self.counts.items()}

        def count(raw: bytes) -> int:
            tokens = known.get(raw)
            if tokens is None:
                tokens = known[raw] = calibration.calibrate(self.tokenizer.count(raw))
            return tokens

        return count


@dataclass(frozen=True, slots=True)
class Ruled:
    """A policy and the rules it compiles to: once for a configuration, not once for a request."""

    policy: Policy
    rules: Rules
    teller: Client | None = None
    """The upstream that makes its summaries, where it is not the request's own."""

    @classmethod
    def by(cls, name: str, policy: Policy, clients: Mapping[str, Client] = NOBODY) -> "Ruled":
        rules = replace(policy.rules(name), version=policy.version)
        return cls(policy, rules, clients.get(policy.summary.upstream))
