"""Shorten the texts that old calls wrote into files: they are in the files.

Implements the hint `request: strip` of document 002 (RFD D17). No policy lists the step by itself: calls are the
assistant's memory, and it may take a shortened call for a pattern to follow.

Only long texts inside the arguments go; they stay valid JSON with the same keys, and short values (paths, names,
numbers) stay as they were. Arguments that are not a JSON object are left alone, and so is a message that carries a
signature.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from proxy.history.agents import Hint, find_modes, matches_any
from proxy.history.messages import Message, ToolCall, change_arguments
from proxy.shorten.outcome import cut_line
from proxy.shorten.pipeline import Draft
from proxy.shorten.placeholder import replace_texts

WRITERS = ("write*", "*__write*", "*write_file*", "*writefile*", "*create_file*", "*append_file*", "*save_file*")
"""Tools that write whole files, in the agents' own spellings."""
HEAD_CHARACTERS = 500
_WRITING_LINE = re.compile(r"<<-?\s{0,4}[\"']?\w|^\*\*\* (?:Update|Add|Delete) File: ")
"""A line of a command or a patch that names the file that it writes."""


@dataclass(frozen=True, slots=True)
class ClearArguments:
    """Shorten long texts in the arguments of old calls that write files."""

    name: ClassVar[str] = "clear_arguments"

    over: int = 2_000
    """Texts up to this many characters stay."""
    tools: tuple[str, ...] = WRITERS
    """Tools with arguments that are shortened (globs, case ignored)."""
    lines: int = 5
    """This many of the first lines stay, and the last one."""
    hints: tuple[Hint, ...] = ()
    """The policy on arguments by tool, before `tools`; see `Hint`."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in self._list_old(draft, self._is_selected))

    def __call__(self, draft: Draft) -> Draft:
        return self.shorten(draft, self._is_selected)

    def shorten(self, draft: Draft, is_selected: Callable[[ToolCall], bool]) -> Draft:
        """The draft with shorter texts in the selected calls."""

        def change(call: ToolCall) -> str:
            return self._shorten_arguments(call) if is_selected(call) else call.arguments

        old = self._list_old(draft, is_selected)
        return draft.exchange({id(message): change_arguments(message, change, self.name) for message in old})

    def _list_old(self, draft: Draft, is_selected: Callable[[ToolCall], bool]) -> list[Message]:
        messages = []
        for message in draft.middle:
            if message.made not in ("", "strip_reasoning") or message.signed or not draft.free(message):
                continue
            if any(len(call.arguments) > self.over and is_selected(call) for call in message.calls):
                messages.append(message)
        return messages

    def _is_selected(self, call: ToolCall) -> bool:
        mode = find_modes(call.name, self.hints)[0]
        return mode != "keep" if mode else matches_any(call.name, self.tools)

    def _shorten_arguments(self, call: ToolCall) -> str:
        if call.kind == "custom":
            return self._shorten_text(call.arguments)
        shorter = replace_texts(call.named, self._shorten_text)
        return call.arguments if shorter == call.named else json.dumps(shorter, ensure_ascii=False)

    def _shorten_text(self, text: str) -> str:
        if len(text) <= self.over:
            return text
        lines = text.split("\n")
        writing = [line for line in lines[self.lines : -1] if _WRITING_LINE.search(line)][: self.lines]
        head = "\n".join([*lines[: self.lines], *writing])[:HEAD_CHARACTERS]
        end = cut_line(lines[-1] or lines[-2]) if len(lines) > self.lines + 1 else ""
        omitted = len(text) - len(head) - len(end)
        shorter = f"{head}\n… [{omitted:,} characters omitted from this history by the context proxy;"
        shorter += " the tool received the full text] …"
        if end:
            shorter += f"\n{end}"
        return min(text, shorter, key=len)
