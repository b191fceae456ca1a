"""The mechanical appendix: what was done in a stretch of history, told without a model.

Files changed and read, commands with how they ended, the last state of the plan, what the user asked for: taken from
the calls and their results, each thing once. It is made from the client's own messages, not from an earlier ledger,
so it never decays.
"""

from collections.abc import Iterable, Sequence

from proxy.core import placeholder
from proxy.core.groups import callers
from proxy.core.messages import Call, Message
from proxy.core.tools import PLANNING, READING, RUNNING, WRITING, listed

_KINDS = (("Plan", PLANNING), ("Files changed", WRITING), ("Files read", READING), ("Commands", RUNNING))
_PLAN_LENGTH = 1_500
_OTHER = "Other calls"


def ledger(messages: Sequence[Message], budget: int) -> str:
    """The stretch in at most about `budget` bytes: newest entries first to stay, sections in a fixed order."""
    entries: dict[str, dict[str, None]] = {}
    for message, call in zip(messages, callers(messages), strict=True):
        for section, entry in _entries(message, call):
            kept = entries.setdefault(section, {})
            kept.pop(entry, None)
            kept[entry] = None
    order = ["The user said", *(kind for kind, _ in _KINDS), _OTHER]
    lines = [_line(section, list(entries[section]), budget // len(entries)) for section in order if section in entries]
    return "\n".join(lines)


def _entries(message: Message, call: Call | None) -> Iterable[tuple[str, str]]:
    if message.is_user:
        yield "The user said", placeholder.short(message.text)
    if call is None:
        return
    kind = next((kind for kind, globs in _KINDS if listed(call.name, globs)), _OTHER)
    argument = placeholder.argument(call)
    if kind == "Plan":
        yield kind, call.arguments[:_PLAN_LENGTH]
    elif kind in ("Files changed", "Files read"):
        yield kind, argument
    elif kind == "Commands":
        yield kind, f"`{argument}` {placeholder.outcome(message.text)}"
    else:
        yield kind, f"{call.name}({argument})"


def _line(section: str, entries: list[str], budget: int) -> str:
    """Newest entries first to stay; of plans only the last one is true."""
    kept: list[str] = []
    for entry in reversed(entries[-1:] if section == "Plan" else entries):
        budget -= len(entry) + 2
        if budget < 0 and kept:
            kept.append("…")
            break
        kept.append(entry)
    return f"{section}: {'; '.join(reversed(kept))}"
