"""The state of an agent's plan, from the tools with which it keeps one.

Most agents write the whole list each time, so the last one counts. Some make each task once and then only set
its state.
"""

import re
from collections.abc import Iterator
from typing import Any

from proxy.core.agents.ledger.deeds import PLAN, Deed, excerpt, render_value
from proxy.core.agents.tools import PLANS

_TEXTS = ("content", "step", "title", "subject", "description", "text", "task", "name")
_STATES = ("status", "state", "completed", "done")
_WORDS = {
    **dict.fromkeys(("completed", "complete", "done", "finished", "x", "true"), "done"),
    **dict.fromkeys(("in_progress", "in-progress", "active", "doing", "started", "-", "~"), "doing"),
    **dict.fromkeys(("pending", "todo", "open", "not-started", "not_started", "false", ""), "to do"),
    **dict.fromkeys(("cancelled", "canceled", "deleted", "skipped"), "dropped"),
}
_BOX = re.compile(r"^[ \t]*(?:[-*]|\d{1,4}\.)?[ \t]*\[([ xX~-])\][ \t]*(\S.*)$", re.MULTILINE)
_ITEMS_MAX = 200
_NUMBER = re.compile(r"#(\d+)")


def find_plan(values: dict[str, Any]) -> Iterator[Deed]:
    """The items of a plan that was written as one list."""
    items: Any = next((values[key] for key in PLANS if values.get(key)), [])
    if isinstance(items, str):
        items = [{"text": text, "status": mark} for mark, text in _BOX.findall(items)] or [items]
    told = map(_read_text, items[:_ITEMS_MAX] if isinstance(items, list) else [items])
    for place, (text, state) in enumerate(told):
        yield Deed(PLAN, f"{place}", text, state, clears_section=place == 0)


def find_new_task(values: dict[str, Any], result: str) -> Iterator[Deed]:
    """The task that a call made; its number is in the result."""
    number, subject = _NUMBER.search(result), excerpt(render_value(values["subject"]))
    key = f"#{number[1]}" if number else subject
    yield Deed(PLAN, key, f"{key} {subject}" if number else subject, "to do")


def find_task_update(values: dict[str, Any]) -> Iterator[Deed]:
    """The new state of a task, if the call sets one."""
    if values.get("status"):
        yield Deed(PLAN, f"#{render_value(values['taskId'])}", how=_state(values["status"]))


def _read_text(item: Any) -> tuple[str, str]:  # noqa: ANN401 - JSON
    if not isinstance(item, dict):
        return excerpt(render_value(item)), ""
    text = next((item[key] for key in _TEXTS if isinstance(item.get(key), str)), "")
    state = next((item[key] for key in _STATES if key in item), None)
    return excerpt(text), "" if state is None else _state(state)


def _state(value: Any) -> str:  # noqa: ANN401 - JSON
    word = render_value(value).strip().lower()
    return _WORDS.get(word, excerpt(word, 20))
