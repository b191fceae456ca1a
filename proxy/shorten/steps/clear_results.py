"""Clear old tool results: the call stays, and its result becomes a sentence and the lines that tell how it ended.

Results are two thirds of an agent's history, and most are never looked at again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from proxy.history.agents import EXEMPT, Hint, find_modes, matches_any
from proxy.history.chain import remove_wrapping
from proxy.history.grouping import list_callers
from proxy.history.messages import REPEATED, Message, ToolCall
from proxy.history.rereads import RESTORED
from proxy.recall.tool import render_handle
from proxy.shorten import placeholder
from proxy.shorten.call_labels import name_result
from proxy.shorten.outcome import find_outcome, holds_words_of_user
from proxy.shorten.pipeline import Count, Draft
from proxy.shorten.steps.clip_output import ClipOutput
from proxy.shorten.touched_files import is_file_text, list_file_uses, list_read_paths

PLACEHOLDER_BYTES = 300
"""Mean size of a placeholder."""
LONGEST_ESCAPE_BYTES = 6
"""Bytes in JSON of a character that is one byte of text: `\\u0001`."""
CLEARABLE = ("", ClipOutput.name, RESTORED)
"""`Message.made` of results that can still be cleared."""

Answer = tuple[Message, ToolCall | None]
"""A result with the call that it answers."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClearResults:
    """Replace old tool results by placeholders."""

    name: ClassVar[str] = "clear_results"

    over: int = 1_500
    """Results of up to this many bytes of text stay."""
    keep_recent: int = 0
    """How many of the newest results stay, counting those that the policy keeps anyway."""
    exempt: tuple[str, ...] = EXEMPT
    """Tools whose results always stay (globs, case ignored): they carry state and instructions."""
    template: str = placeholder.TEMPLATE
    """Text in place of the result; see `placeholder`."""
    hints: tuple[Hint, ...] = ()
    """The policy on results by tool, before `exempt`; see `Hint`."""

    def reach(self, draft: Draft) -> int:
        return int(sum(self._count_cleared(message, draft.count) for message, _ in self._list_old(draft)))

    def worth(self, message: Message, call: ToolCall | None, count: Count) -> float:
        if not self._is_selected(message) or message.made not in CLEARABLE or not has_text_over(message, self.over):
            return 0.0
        return 0.0 if self._is_exempt(call) else self._count_cleared(message, count)

    def _count_cleared(self, message: Message, count: Count) -> float:
        """The tokens that leave with this result."""
        return count(message.raw) * max(0.0, 1 - PLACEHOLDER_BYTES / max(1, len(message.content)))

    def __call__(self, draft: Draft) -> Draft:
        chosen = self._list_old(draft)
        return self.clear(chosen, draft, self.name) if chosen else draft

    def clear(self, chosen: Sequence[Answer], draft: Draft, made: str) -> Draft:
        """The draft with a placeholder for each chosen message, and without pointers to its full text."""
        outdated = find_outdated_reads(draft, chosen)
        shorter = {
            id(message): self._shorten(message, call, draft, made, is_outdated=id(message) in outdated)
            for message, call in chosen
        }
        first = {remove_wrapping(message.content): call for message, call in reversed(chosen)}
        return draft.rewrite(
            lambda message, _: shorter.get(id(message)) or clear_pointer(message, draft, first, made, "shortened")
        )

    def _shorten(
        self, message: Message, call: ToolCall | None, draft: Draft, made: str, *, is_outdated: bool
    ) -> Message:
        def render(text: str) -> str:
            return placeholder.render_placeholder(
                self.template,
                text,
                call,
                render_handle(message.start, message.stop) if draft.recalls else "",
                outcome=find_outcome(text, call, failed=message.reports_error),
                attachments=[] if message.role == "assistant" else message.list_attachments(),
                over=self.over,
                is_outdated=is_outdated,
            )

        return message.with_text(placeholder.replace_output(message, render), made)

    def _list_old(self, draft: Draft) -> list[Answer]:
        answers = [answer for answer in draft.pair_with_calls() if self._is_selected(answer[0])]
        newest = sum(map(self._is_selected, draft.after))
        return [
            (message, call)
            for message, call in without_newest(answers, self.keep_recent - newest)
            if is_clearable(message, draft, self.over) and not self._is_exempt(call)
        ]

    def _is_exempt(self, call: ToolCall | None) -> bool:
        if call is None:
            return False
        mode = find_modes(call.name, self.hints)[1]
        return mode == "keep" if mode else matches_any(call.name, self.exempt)

    def _is_selected(self, message: Message) -> bool:
        return message.is_result and not holds_words_of_user(message.content)


def clear_pointer(
    message: Message, draft: Draft, first: Mapping[bytes, ToolCall | None], made: str, verb: str
) -> Message:
    """Rewrite a pointer to a copy that is gone now, so that the agent does not look for it.

    `first`: the calls of such copies, by their content; `verb`: their fate, as `shortened`.
    """
    content = remove_wrapping(draft.origin[message.start].content) if message.made == REPEATED else b""
    if content not in first:
        return message
    note = f"[Left out by the context proxy: same as {name_result(first[content])}, {verb} above."
    if draft.recalls:
        note += f" Call {render_handle(message.start, message.stop)} for the full text."
    return message.with_text(f"{note}]", made)


def find_outdated_reads(draft: Draft, chosen: Sequence[Answer]) -> set[int]:
    """The ids of those of the chosen messages that hold the text of a file which a later call has changed."""
    read_paths = {id(message): list_read_paths(call) for message, call in chosen if call and is_file_text(call)}
    changed, outdated = set[str](), set[int]()
    if not read_paths:
        return outdated
    for message, call in reversed([*zip(draft.view, list_callers(draft.view), strict=True)]):
        if call is None:
            continue
        if not changed.isdisjoint(read_paths.get(id(message), ())):
            outdated.add(id(message))
        changes = [use.path for use in list_file_uses(call)[0] if use.change]
        if changes and not find_outcome(message.text, call, failed=message.reports_error).has_failed:
            changed.update(changes)
    return outdated


def is_clearable(message: Message, draft: Draft, over: int) -> bool:
    """Whether a message is large enough, and was not shortened before."""
    return message.made in CLEARABLE and has_text_over(message, over) and draft.free(message)


def without_newest(items: Sequence[T], newest: int) -> Sequence[T]:
    """The items without this many of the newest."""
    return items[: max(0, len(items) - max(0, newest))]


def has_text_over(message: Message, limit: int) -> bool:
    """Whether the text has more than this many bytes. Quotes and escapes of its JSON do not count; media do."""
    if len(message.content) <= limit or message.attached:
        return len(message.content) > limit
    if len(message.content) > LONGEST_ESCAPE_BYTES * limit + 2 and message.content[:1] == b'"':
        return True  # it need not be read: no character takes more than this in JSON
    return len(message.text.encode("utf-8", "surrogatepass")) > limit
