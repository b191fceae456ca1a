"""Clear old tool results: the call stays, and its result becomes one line about it and a few of its own lines.

Results are two thirds of an agent's history, and most are never looked at again. What an agent looks for later is
mostly in the lines that stay (see `outline`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from proxy.core import placeholder
from proxy.core.agents.tools import EXEMPT, matches_any, meaning
from proxy.core.model.messages import Message, ToolCall
from proxy.core.outline import Outlines, texts_of
from proxy.core.pipeline import Draft

TEMPLATE = "[Cleared: {tool}({argument}), {rows}, {bytes} bytes, {outcome}, {handle}.{names}{lines}]"
REPEATED = "dedup_arrivals"
A_LOOK = {"path": ".", "command": "view"}

Answer = tuple[Message, ToolCall | None]


@dataclass(frozen=True, slots=True)
class ClearResults:
    """Replace old tool results by an outline."""

    name: ClassVar[str] = "clear_results"

    over: int = 200
    """Results up to this many bytes stay."""
    keep_recent: int = 0
    """How many of the newest results stay, besides what the policy keeps anyway."""
    keep_failed: int = 0
    """How many of the newest failures stay whole. When one goes later, what was cached behind it is written anew."""
    exempt: tuple[str, ...] = EXEMPT
    """Tools whose results always stay (globs, case ignored): they carry state and instructions."""
    outline: float = 0.24
    """At most this share of a file that was read, or of a failure, stays as lines; a quarter of that of the rest."""
    outline_bytes: int = 8_000
    """At most this many bytes of them."""
    names: int = 12
    """How many names are listed for which no line had room."""
    template: str = TEMPLATE
    """What stands for the result; see `placeholder`."""

    def reach(self, draft: Draft) -> int:
        old = self._old(draft)
        return int(sum(draft.count(message.raw) * (1 - self.outline * part(call)) for message, call in old))

    def __call__(self, draft: Draft) -> Draft:
        old = self._old(draft)
        failed = [message for message, _ in old if self.keep_failed and placeholder.has_failed(message.text)]
        spared = {id(message) for message in failed[-self.keep_failed :]} if self.keep_failed else set()
        chosen = [pair for pair in old if id(pair[0]) not in spared]
        if not chosen:
            return draft
        outlines = Outlines(self.outline, self.outline_bytes, self.names)
        shorter = outline_results(chosen, draft, outlines, self.template, self.name)
        first = {message.content: message.start for message, _ in reversed(chosen)}
        return draft.rewrite(lambda message, _: shorter.get(id(message)) or self._clear_pointer(message, draft, first))

    def _old(self, draft: Draft) -> list[Answer]:
        results = [pair for pair in draft.pair_with_calls() if pair[0].is_result]
        return [
            (message, call)
            for message, call in results[: len(results) - self.keep_recent]
            if foldable(message, draft, self.over) and not (call and matches_any(call.name, self.exempt))
        ]

    def _clear_pointer(self, message: Message, draft: Draft, first: Mapping[bytes, int]) -> Message:
        """Rewrite a pointer whose copy is cleared now, so that the agent does not look for it."""
        copy = first.get(draft.origin[message.start].content) if message.made == REPEATED else None
        return message if copy is None else message.with_text(f"[Cleared too: the same as #{copy} was.]", self.name)


def part(call: ToolCall | None) -> float:
    """The share of an outline for a result: an edit quotes what was read, seldom what a command has printed."""
    return 1.0 if call is None or _reads(call.name) else 0.25


def _reads(tool: str) -> bool:
    """True where a call of this tool reads a file."""
    return meaning(tool, A_LOOK) == "read"


def foldable(message: Message, draft: Draft, over: int) -> bool:
    """True where a message is large enough, and was not folded before."""
    return message.made in ("", "clip_output") and len(message.content) > over and draft.free(message)


def outline_results(
    chosen: Iterable[Answer], draft: Draft, outlines: Outlines, template: str, made: str
) -> dict[int, Message]:
    """Each chosen message with its outline instead, the newest first to keep a line; by the identity of the old one."""
    chosen = list(chosen)
    gone = {id(message) for message, _ in chosen}
    outlines.keep(text for message in draft.view if id(message) not in gone for text in texts_of(message))
    shorter = {}
    for message, call in reversed(chosen):
        text = message.text
        lines, names = outlines.of(text, 1.0 if placeholder.has_failed(text) else part(call))
        words = placeholder.words(template, text, call, message.start, names=names, lines=lines)
        shorter[id(message)] = message.with_text(words, made)
    return shorter
