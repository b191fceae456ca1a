"""Document 002 (RFD D17): whether the request or the response of an old call is worth keeping, tool by tool.

A hint says `keep`, `strip` or `remove` for each side: `("read*", "keep", "strip")`. `remove` takes the whole pair away.
"""

import json
from collections.abc import Callable, Iterable
from itertools import repeat
from operator import attrgetter
from typing import ClassVar

from msgspec import Struct

from proxy.history.calls import change_arguments
from proxy.history.chain import remove_wrapping
from proxy.history.messages import Message
from proxy.shorten.clear_results import ClearResults, can_be_cleared, clear_pointer, count_old, is_clearable
from proxy.shorten.designs.strategies import remove_pairs
from proxy.shorten.outcome import cut_line
from proxy.shorten.pipeline import Count, Draft
from proxy.shorten.placeholder import TEMPLATE, replace_texts
from proxy.tools.command_line import HEREDOC
from proxy.tools.tool_call import ToolCall
from proxy.tools.tool_kinds import EXEMPT, Hint, find_modes, matches_any


class ClearArguments(Struct, frozen=True):
    """Shorten long texts in the arguments of old calls that write files."""

    name: ClassVar[str] = "clear_arguments"

    over: int = 2_000
    """Texts up to this many characters stay."""
    tools: tuple[str, ...] = (
        *("write*", "*__write*", "*write_file*", "*writefile*", "*create_file*", "*append_file*", "*save_file*"),
    )
    """Tools with arguments that are shortened (globs, case ignored)."""
    lines: int = 5
    """This many of the first lines stay, and the last one."""
    hints: tuple[Hint, ...] = ()
    """The policy on arguments by tool, before `tools`; see `Hint`."""

    def __call__(self, draft: Draft) -> Draft:
        return self.shorten(draft, self._is_selected)

    def shorten(self, draft: Draft, is_selected: Callable[[ToolCall], bool]) -> Draft:

        def change(call: ToolCall) -> str:
            if is_selected(call):
                return self._shorten_arguments(call)
            return call.arguments

        shorter = {}
        for message in draft.middle:
            if message.made not in ("", "strip_reasoning") or message.signed or not draft.free(message):
                continue
            if any(len(call.arguments) > self.over and is_selected(call) for call in message.calls):
                shorter[id(message)] = change_arguments(message, change, self.name)
        return draft.exchange(shorter)

    def _is_selected(self, call: ToolCall) -> bool:
        mode = find_modes(call.name, self.hints)[0]
        return mode != "keep" and (bool(mode) or matches_any(call.name, self.tools))

    def _shorten_arguments(self, call: ToolCall) -> str:
        if call.kind == "custom":
            return self._shorten_text(call.arguments)
        shorter = replace_texts(call.named, self._shorten_text)
        if shorter == call.named:
            return call.arguments
        return json.dumps(shorter, ensure_ascii=False)

    def _shorten_text(self, text: str) -> str:
        if len(text) <= self.over:
            return text
        lines = text.split("\n")
        writing_lines = list[str]()
        for line in lines[self.lines : -1]:
            if HEREDOC.search(line) or line.startswith(("*** Update File: ", "*** Add File: ", "*** Delete File: ")):
                writing_lines.append(line)
        head = "\n".join([*lines[: self.lines], *writing_lines[: self.lines]])[:500]
        end = cut_line(lines[-1] or lines[-2]) if len(lines) > self.lines + 1 else ""
        omitted_characters = len(text) - len(head) - len(end)
        shorter = f"{head}\n… [{omitted_characters:,} characters omitted from this history by the context proxy;"
        shorter += " the tool received the full text] …"
        if end:
            shorter += f"\n{end}"
        return min(text, shorter, key=len)


def _make_hints(request: str, response: str, tools: str) -> Iterable[Hint]:
    return zip(tools.split(), repeat(request), repeat(response), strict=False)


class ToolHints(Struct, frozen=True):
    """Keep, strip or remove the requests and responses of old calls, tool by tool."""

    name: ClassVar[str] = "tool_hints"

    hints: tuple[Hint, ...] = (
        *_make_hints("keep", "keep", " ".join(EXEMPT)),
        *_make_hints("strip", "keep", "write* *create_file* *write_file* git_commit"),
        *_make_hints("strip", "strip", "*edit* *patch* *modify* *replace* notebookedit"),
        *_make_hints("keep", "strip", "read* *read_file* view* *grep* *glob* *search* ls list*"),
        *_make_hints("keep", "strip", "*bash* *shell* *exec* *terminal* *command* *fetch* cargo_*"),
    )
    """For each side, the first hint counts whose glob matches the tool and that names it; see `Hint`."""
    request: str = "keep"
    """For requests without a hint."""
    response: str = "strip"
    """For responses without a hint."""
    over: int = 200
    """Requests and responses up to this many bytes stay."""
    template: str = TEMPLATE
    """Text in place of a stripped response; see `placeholder`."""
    keep_recent: int = 0
    """How many of the newest results stay with their calls, counting those that the policy keeps anyway."""

    def worth(self, message: Message, call: ToolCall | None, count: Count) -> float:
        modes = ("keep", "keep")
        if call is not None:
            modes = self._find_modes(call)
        is_stripped = modes[1] == "strip" and can_be_cleared(message, self.over)
        is_shortened = not message.signed and any(map(self._may_shorten, message.calls))
        return count(message.raw) if is_stripped or is_shortened or "remove" in modes else 0.0

    def _may_shorten(self, call: ToolCall) -> bool:
        modes = self._find_modes(call)
        return "remove" in modes or (modes[0] == "strip" and len(call.arguments) > self.over)

    def __call__(self, draft: Draft) -> Draft:
        shorter = self._remove(draft)
        newest_ids = self._find_newest(shorter)
        answers = []
        for message, call in shorter.pair_with_calls():
            if call is None or id(call) in newest_ids or self._find_modes(call)[1] != "strip":
                continue
            if is_clearable(message, shorter, self.over):
                answers.append((message, call))
        shorter = ClearResults(over=self.over, template=self.template).clear(answers, shorter, self.name)

        def is_selected(call: ToolCall) -> bool:
            return self._find_modes(call)[0] == "strip" and id(call) not in newest_ids

        return ClearArguments(self.over, lines=1).shorten(shorter, is_selected)

    def _remove(self, draft: Draft) -> Draft:
        old_ids = set[int]()
        for message in draft.middle:
            for call in message.calls:
                if "remove" in self._find_modes(call):
                    old_ids.add(id(call))
        shorter = remove_pairs(draft, old_ids - self._find_newest(draft), self.name)
        remaining_ids = set(map(id, shorter.middle))
        callers = {}
        for message, caller in draft.pair_with_calls():
            if caller is not None and id(message) not in remaining_ids:
                callers[remove_wrapping(message.content)] = caller
        if not callers:
            return shorter
        return shorter.rewrite(lambda message, _: clear_pointer(message, shorter, callers, self.name, "removed"))

    def _find_newest(self, draft: Draft) -> set[int]:
        if not self.keep_recent:
            return set()
        calls = [call for message, call in draft.pair_with_calls() if message.is_result]
        newest = sum(map(attrgetter("is_result"), draft.after))
        return set(map(id, filter(None, calls[count_old(len(calls), self.keep_recent - newest) :])))

    def _find_modes(self, call: ToolCall) -> tuple[str, str]:
        request, response = find_modes(call.name, self.hints)
        return request or self.request, response or self.response
