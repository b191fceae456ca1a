"""Clear the large arguments of old calls: what was written into a file is in the file.

Only long texts inside the arguments go, down to an outline; they stay valid JSON with the same keys, and short values
(paths, names, numbers) stand as they stood. Arguments that are not a JSON object are left alone, and so is a message
that carries a signature.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from proxy.core.agents.tools import EXEMPT, matches_any
from proxy.core.calls import with_arguments
from proxy.core.model.messages import Message, ToolCall
from proxy.core.outline import Outlines, texts_of
from proxy.core.pipeline import Draft
from proxy.core.placeholder import rows


@dataclass(frozen=True, slots=True)
class ClearArguments:
    """Replace long texts in the arguments of old calls by an outline."""

    name: ClassVar[str] = "clear_arguments"

    over: int = 200
    """Texts up to this many characters stay."""
    exempt: tuple[str, ...] = EXEMPT
    """Tools whose arguments always stay (globs, case ignored)."""
    outline: float = 0.2
    """At most this share of a text stays as lines of its own."""
    outline_bytes: int = 8_000
    """At most this many bytes of them."""
    names: int = 12
    """How many names are listed for which no line had room."""

    def reach(self, draft: Draft) -> int:
        return int(sum(draft.count(message.raw) for message in self._old(draft)) * (1 - self.outline))

    def __call__(self, draft: Draft) -> Draft:
        old = self._old(draft)
        shorter = self.shorten(old, draft, self._may_clear) if old else {}
        return draft.exchange(shorter)

    def shorten(self, old: list[Message], draft: Draft, meant: Callable[[ToolCall], bool]) -> Mapping[int, Message]:
        """These messages with long texts folded in the calls that `meant` selects; by the id() of the old ones."""
        gone = {id(message) for message in old}
        outlines = Outlines(self.outline, self.outline_bytes, self.names)
        outlines.keep(text for message in draft.view if id(message) not in gone for text in texts_of(message))
        outlines.keep(message.text for message in old)
        return {
            id(message): with_arguments(
                message,
                lambda call: self._outline_arguments(call, outlines) if meant(call) else call.arguments,
                self.name,
            )
            for message in reversed(old)
        }

    def _old(self, draft: Draft) -> list[Message]:
        return [
            message
            for message in draft.middle
            if any(map(self._may_clear, message.calls))
            and message.made in ("", "strip_reasoning")
            and draft.free(message)
            and not message.signed
        ]

    def _may_clear(self, call: ToolCall) -> bool:
        return len(call.arguments) > self.over and not matches_any(call.name, self.exempt)

    def _outline_arguments(self, call: ToolCall, outlines: Outlines) -> str:
        if call.kind == "custom":
            return self._text(call.arguments, outlines)
        if not call.named:
            return call.arguments
        return json.dumps(self._value(call.named, outlines), ensure_ascii=False)

    def _value(self, value: Any, outlines: Outlines) -> Any:  # noqa: ANN401 - JSON
        if isinstance(value, str):
            return self._text(value, outlines)
        if isinstance(value, list):
            return [self._value(each, outlines) for each in value]
        if isinstance(value, dict):
            return {key: self._value(each, outlines) for key, each in value.items()}
        return value

    def _text(self, text: str, outlines: Outlines) -> str:
        if len(text) <= self.over:
            outlines.keep((text,))
            return text
        lines, names = outlines.of(text)
        told = f" Names: {', '.join(names)}." if names else ""
        rest = "".join(f"\n{line}" for line in lines)
        folded = f"[Sent whole, cleared here: {rows(text)}, {len(text):,} characters.{told}]{rest}"
        return min(text, folded, key=len)
