"""Fold the large arguments of old calls: what was written into a file is in the file.

Only long texts inside the arguments go; they stay valid JSON with the same keys, and short values (paths, names,
numbers) stand as they stood. Arguments that are not a JSON object are left alone, and so is a message that carries a
signature.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from proxy.core.calls import with_arguments
from proxy.core.messages import Call, Message
from proxy.core.names import frequency, index
from proxy.core.pipeline import Draft
from proxy.core.tools import EXEMPT, listed


@dataclass(frozen=True, slots=True)
class ClearArguments:
    """Replace long texts in the arguments of old calls by a line of what they were."""

    name: ClassVar[str] = "clear_arguments"

    over: int = 1_000
    """Texts of at most so many characters stay."""
    exempt: tuple[str, ...] = EXEMPT
    """Tools whose arguments always stay (globs, case ignored)."""
    names: int = 24
    """So many of the rarest names in a folded text are kept."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if self._long(message, draft))

    def __call__(self, draft: Draft) -> Draft:
        if not self.reach(draft):
            return draft
        known = frequency(message.text for message in draft.view) if self.names else {}
        return draft.rewritten(
            lambda message, _: self.shortened(message, known, self._meant) if self._long(message, draft) else message
        )

    def _long(self, message: Message, draft: Draft) -> bool:
        if message.made not in ("", "strip_reasoning") or len(message.raw) <= self.over or not draft.free(message):
            return False
        return any(map(self._meant, message.calls)) and not message.signed

    def _meant(self, call: Call) -> bool:
        return len(call.arguments) > self.over and not listed(call.name, self.exempt)

    def shortened(self, message: Message, known: Mapping[str, int], meant: Callable[[Call], bool]) -> Message:
        """The message with the long texts folded in the arguments of the calls that are meant."""
        return with_arguments(
            message, lambda call: self._told(call, known) if meant(call) else call.arguments, self.name
        )

    def _told(self, call: Call, known: Mapping[str, int]) -> str:
        if call.kind == "custom":
            return self._text(call.arguments, known)
        try:
            value = json.loads(call.arguments)
        except (ValueError, RecursionError):
            return call.arguments
        return json.dumps(self._value(value, known), ensure_ascii=False) if isinstance(value, dict) else call.arguments

    def _value(self, value: Any, known: Mapping[str, int]) -> Any:  # noqa: ANN401 - JSON
        if isinstance(value, str):
            return self._text(value, known)
        if isinstance(value, list):
            return [self._value(each, known) for each in value]
        if isinstance(value, dict):
            return {key: self._value(each, known) for key, each in value.items()}
        return value

    def _text(self, text: str, known: Mapping[str, int]) -> str:
        if len(text) <= self.over:
            return text
        names = index(text, self.names, known)
        told = f" Names: {', '.join(names)}." if names else ""
        told = f"[cleared: {text.count(chr(10)) + 1:,} lines, {len(text):,} characters.{told}]"
        return min(text, told, key=len)
