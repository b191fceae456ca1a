"""Point a result that is further up already, word for word, back to its first copy when it arrives.

Agents read the same file again and again. Nothing that was forwarded changes, so the upstream's cache holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from proxy.history.chain import remove_wrapping
from proxy.history.grouping import list_callers
from proxy.history.messages import REPEATED, Message, ToolCall
from proxy.shorten.call_labels import name_result
from proxy.shorten.outcome import find_outcome
from proxy.shorten.pipeline import Draft
from proxy.shorten.steps.clip_output import is_content_over


@dataclass(frozen=True, slots=True)
class DedupArrivals:
    """Point a result that repeats an earlier one, word for word, back to it."""

    name: ClassVar[str] = REPEATED

    over: int = 500
    """Results up to this many bytes are left as they are."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if self._is_long(message))

    def __call__(self, draft: Draft) -> Draft:
        contents = [remove_wrapping(message.content) for message in draft.middle if self._is_long(message)]
        before = draft.before if contents else ()
        earlier = {remove_wrapping(message.content) for message in before if self._is_long(message)}
        if len(set(contents)) == len(contents) and earlier.isdisjoint(contents):
            return draft
        first = dict[bytes, tuple[Message, ToolCall | None]]()
        for message, call in zip(draft.before, list_callers(draft.before), strict=True):
            if self._is_long(message):
                first.setdefault(remove_wrapping(message.content), (message, call))

        def point(message: Message, call: ToolCall | None) -> Message:
            if not self._is_long(message):
                return message
            copy, copy_call = first.setdefault(remove_wrapping(message.content), (message, call))
            return message if copy is message else message.with_text(_point_to(copy_call, message), self.name)

        return draft.rewrite(point)

    def spares(self, message: Message, _window: int | None, earlier: Sequence[int]) -> bool:
        return not self._is_long(message) or hash(remove_wrapping(message.content)) not in earlier

    def _is_long(self, message: Message) -> bool:
        return message.is_result and not message.literal and is_content_over(message, self.over)


def restore_repeated(messages: Sequence[Message], origin: Sequence[Message]) -> tuple[Message, ...]:
    """The messages with the first pointer to each result that is gone as the client sent it.

    A fold may have taken the copy that it points to. The other pointers to that result point to this one. `origin`: the
    client's body.
    """
    if all(message.made != REPEATED for message in messages):
        return tuple(messages)
    present, restored = set[bytes](), dict[bytes, ToolCall | None]()

    def restore(message: Message, call: ToolCall | None) -> Message:
        if not message.is_result or message.start == message.stop:  # a result that the proxy added stands for none
            return message
        original = origin[message.start]
        content = remove_wrapping(original.content)
        if message.made != REPEATED or content in present:
            present.add(content)
            return message
        if content in restored:
            pointer = original.with_text(_point_to(restored[content], original), REPEATED)
            return min(pointer, original, key=lambda candidate: len(candidate.raw))
        restored[content] = call
        return original

    return tuple(map(restore, messages, list_callers(messages)))


def _point_to(call: ToolCall | None, repeated: Message) -> str:
    outcome = find_outcome(repeated.text, call, failed=repeated.reports_error)
    verdict = f" ({' '.join(outcome.render().split()).rstrip('.')})" if outcome.has_failed else ""
    return f"[Left out by the context proxy: word for word the same as {name_result(call)} above{verdict}.]"
