"""Drafts, and steps that make them shorter. A step is a frozen dataclass: its fields are its settings, and calling it
maps a draft to a shorter one. `run()` is the for-loop over them.

Steps need not be trusted. After each one `run()` checks the invariants: it touched nothing before or after the middle
and nothing fixed, it made nothing longer, it parted no call from its result. The work of a step that broke one is
thrown away, and the report says so.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from proxy.history.canonical import remove_wrapping
from proxy.history.messages import Message, ToolCall
from proxy.history.pairing import count_flaws, find_callers

BYTES_PER_TOKEN = 4
Count = Callable[[bytes], int]


def estimate_tokens(raw: bytes) -> int:
    """Estimate tokens without a tokenizer: four bytes each."""
    return len(raw) // BYTES_PER_TOKEN


GoOn = Callable[[], None]
"""Called before each step; raises if nobody waits for the result any more."""


def always_go_on() -> None:
    """Go on to the end, as all do for whom nobody can leave."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A history on its way to becoming shorter: steps may touch the middle, except the messages that are fixed."""

    before: tuple[Message, ...]
    middle: tuple[Message, ...]
    after: tuple[Message, ...] = ()
    tools: bytes | None = None
    fixed: frozenset[int] = frozenset()
    """Where in the body the fixed messages start."""
    documents: frozenset[int] = frozenset()
    """Where the documents in force start (see `documents.py`): only a fold may take them."""
    origin: tuple[Message, ...] = ()
    """The body as the client sent it."""
    window: int | None = None
    """The usable window, if it is known."""
    goal: int | None = None
    """Tokens that the whole view should come down to, where something is folded: notes take a share of them only."""
    wire: str = ""
    """The API by which the history came; empty: chat completions."""
    forced_tool: str = ""
    """The tool that the request wants the model to call."""
    bare: bool = False
    """The view fits no window otherwise: notes hold as little as possible."""
    wordless: bool = False
    """Even so it does not fit: of the user's messages only the newest stays."""
    pointer: str = ""
    """Where the originals are, as a sentence of the policy; empty: it has none."""
    recalls: bool = False
    """The model can read what goes again, by the tool of `recall`."""
    count: Count = estimate_tokens
    calls: Sequence[ToolCall | None] | None = None
    """The call that each message of the middle answers, where that is known already."""
    go_on: GoOn = always_go_on

    @property
    def view(self) -> tuple[Message, ...]:
        return self.before + self.middle + self.after

    def bytes_within(self, share: float, at_most: int) -> int:
        """A budget of bytes: `at_most`, but no more than this share of the goal."""
        return at_most if self.goal is None else min(at_most, int(self.goal * share * BYTES_PER_TOKEN))

    def free(self, message: Message) -> bool:
        """Whether a step may touch this message of the middle."""
        if message.literal:
            return True
        return message.start not in self.fixed and message.start not in self.documents

    def may_fold(self, message: Message) -> bool:
        """Whether a fold may take this message of the middle."""
        return message.literal or message.start not in self.fixed

    def pair_with_calls(self) -> tuple[tuple[Message, ToolCall | None], ...]:
        """Each message of the middle, with the call it answers."""
        calls = self.calls
        if calls is None:  # only the newest answer of the model before the middle has calls that wait for a result
            calls = tuple(find_callers(self.before + self.middle, known=(None,) * len(self.before)))
        return tuple(zip(self.middle, calls, strict=True))

    def rewrite(self, change: Callable[[Message, ToolCall | None], Message]) -> "Draft":
        """The draft with each free message of the middle changed by itself; one that would not get shorter stays."""
        return self.with_middle(
            self._shorter(message, change(message, call)) if self.free(message) else message
            for message, call in self.pair_with_calls()
        )

    def exchange(self, shorter: Mapping[int, Message]) -> "Draft":
        """The draft with some messages of the middle exchanged; `shorter` has the new ones by the id() of the old."""
        return self.rewrite(lambda message, _: shorter.get(id(message), message))

    def with_middle(self, middle: Iterable[Message]) -> "Draft":
        return replace(self, middle=tuple(middle), calls=None)

    @staticmethod
    def _shorter(old: Message, new: Message) -> Message:
        return new if new is not old and _count_bytes((new,)) < _count_bytes((old,)) else old


class Step(Protocol):
    """One way to shorten."""

    name: ClassVar[str]

    def reach(self, draft: Draft) -> int:
        """A cheap estimate of the tokens that could go; 0 only where nothing would."""

    def __call__(self, draft: Draft) -> Draft: ...


Worth = Callable[[Message, ToolCall | None, Count], float]


def find_worth(step: Step) -> Worth | None:
    """The most tokens that a step could clear of one message, in any place; None for a step that cannot say.

    Steps that shorten each message by itself have this as a method `worth`. The call is the one that it answers.
    """
    # By name: to ask a protocol takes longer than to decide on a request.
    return getattr(step, "worth", None)


def is_spared(step: Step, message: Message, window: int | None, earlier: Sequence[int]) -> bool:
    """True where a step surely leaves a new message as it is. `earlier`: hashes of what those before it say.

    Steps that can tell have this as a method `spares`.
    """
    spares = getattr(step, "spares", None)
    return spares is not None and bool(spares(message, window, earlier))


@dataclass(frozen=True, slots=True)
class StepReport:
    """Report of one step: how many messages it touched and tokens it saved, or why its work was thrown away."""

    step: str
    messages: int
    saved: int
    refused: str = ""
    cause: str = ""
    """Why it did nothing, if a person asked for the step."""


def run(steps: Iterable[Step], draft: Draft) -> tuple[Draft, tuple[StepReport, ...]]:
    """The steps in their order, each on what the one before it left."""
    reports = []
    for step in steps:
        draft.go_on()
        shorter = step(draft)
        refused = _find_breach(draft, shorter)
        reports.append(_report(step.name, draft, draft if refused else shorter, refused))
        draft = draft if refused else shorter
    return draft, tuple(reports)


def _find_breach(old: Draft, new: Draft) -> str:
    """The invariant that the step broke; empty for none."""
    if new is old or (new.middle == old.middle and new.tools == old.tools):
        return ""
    if new.before is not old.before or new.after is not old.after:
        return "it touched what stands outside the middle"
    if _count_bytes(new.middle) + len(new.tools or b"") > _count_bytes(old.middle) + len(old.tools or b""):
        return "it made the history longer"
    kept = {id(message) for message in new.middle}
    if any(id(message) not in kept for message in old.middle if not old.may_fold(message)):
        return "it touched a fixed message"
    if len(new.middle) != len(old.middle) and count_flaws(new.view).worse_than(count_flaws(old.view)):
        return "it left a call without its result"
    return ""


def _report(name: str, old: Draft, new: Draft, refused: str) -> StepReport:
    if new is old:
        return StepReport(name, 0, 0, refused)
    known, kept = {id(message) for message in old.middle}, {id(message) for message in new.middle}
    removed = [message for message in old.middle if id(message) not in kept]
    added = [message for message in new.middle if id(message) not in known]
    saved = sum(old.count(message.raw) for message in removed) - sum(old.count(message.raw) for message in added)
    if new.tools is not None and old.tools is not None and new.tools != old.tools:
        saved += old.count(old.tools) - old.count(new.tools)
    return StepReport(name, len(removed), saved, refused)


def _count_bytes(messages: Iterable[Message]) -> int:
    """Bytes of these messages, without cache markers and what is there only for them: clients move these on."""
    return sum(len(each.raw) - len(each.content) + len(remove_wrapping(each.content)) for each in messages)
