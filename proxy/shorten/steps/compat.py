"""Steps that no default uses: the named policies ask for them (docs/policies.md)."""

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import ClassVar

from proxy.history import splice
from proxy.history.agents import EXEMPT, Hint, find_modes, matches_any
from proxy.history.canonical import remove_wrapping
from proxy.history.grouping import find_groups, find_turns
from proxy.history.messages import Message, ToolCall, find_part_type
from proxy.history.offered_tools import list_tool_names, remove_pruned_tools
from proxy.history.pairing import list_callers
from proxy.recall import own_tools
from proxy.shorten.fold import Stretch, find_kept_words, fold_stretches, keep_shorter
from proxy.shorten.outcome import cut_first_line
from proxy.shorten.pipeline import BYTES_PER_TOKEN, Count, Draft
from proxy.shorten.placeholder import TEMPLATE, render_call
from proxy.shorten.steps.standard import (
    FOLDABLE,
    ClearArguments,
    ClearResults,
    clear_pointer,
    has_text_over,
    is_foldable,
    remove_pairs,
    without_newest,
)

# --- one liners -------------------------------------------------------------------------------------------------------
# One line per turn: what the user asked and what was done, within a budget; turns beyond it are dropped, oldest
# first.
#
# The plain form of a summary, without a model (the policy `blocks`). The user's messages that the policy pins stay word
# for word.

_CALLS_MAX = 6
_EXCERPT_CHARACTERS = 120
EARLIER = "- Earlier turns that are not listed: {}"


@dataclass(frozen=True, slots=True)
class OneLiners:
    """Replace each message of the middle by a line: what a user asked, or a call of the model with its answer."""

    name: ClassVar[str] = "one_liners"

    tokens: int = 2_000
    """Tokens of lines in all; with `loops` or `loop_tokens`, of each turn of the user."""
    loops: int = 0
    """How many earlier turns of the user have lines, besides the one under way (0: all)."""
    loop_tokens: int = 0
    """Earlier turns have lines as long as their messages, the newest turn first, have no more tokens in all (0: any
    number)."""
    hints: tuple[Hint, ...] = ()
    """The policy on results by tool: the newest of those to keep stay with their calls, up to half of the target."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if draft.may_fold(message))

    def __call__(self, draft: Draft) -> Draft:
        kept = find_kept_words(draft, 0, hints=self.hints)
        removed = sum(id(message) not in kept for message in draft.middle)
        loops = [turn.start for turn in find_turns(draft.origin)]
        oldest = self._find_oldest(draft)

        def make(stretch: Stretch) -> tuple[Message, ...]:
            share = len(stretch.removed) / removed
            return keep_shorter(stretch, stretch.notes(self._render(stretch, share, loops, oldest)))

        return fold_stretches(draft, kept, make)

    def _find_oldest(self, draft: Draft) -> int:
        """The place from which turns of the user have lines."""
        oldest, room = 0, self.loop_tokens
        for earlier, turn in enumerate(reversed(find_turns(draft.origin))):
            if earlier and self.loops and earlier > self.loops:
                break
            if earlier and self.loop_tokens:
                room -= sum(draft.count(message.raw) for message in draft.origin[turn.start : turn.stop])
                if room < 0:
                    break
            oldest = turn.start
        return oldest

    def _render(self, stretch: Stretch, share: float, loops: Sequence[int], oldest: int) -> str:
        """One line for each group: an agent that works alone has one turn of the user and hundreds of its own."""
        origin = stretch.origin
        lines = [
            (stretch.start + group.start, _line(origin[group.start : group.stop])) for group in find_groups(origin)
        ]
        room = BYTES_PER_TOKEN * self.tokens
        if not (self.loops or self.loop_tokens):
            return "\n".join(_newest([line for _, line in lines], int(room * share)))
        recent = [(start, line) for start, line in lines if start >= oldest]
        rendered = [EARLIER.format(len(lines) - len(recent))] if len(recent) < len(lines) else []
        for _, of_loop in groupby(recent, key=lambda line: bisect_right(loops, line[0])):
            rendered += _newest([line for _, line in of_loop], room)
        return "\n".join(rendered)


def _newest(lines: list[str], room: int) -> list[str]:
    """The newest that fit into this many bytes, and a line that says how many did not."""
    for place in reversed(range(len(lines))):
        room -= len(lines[place].encode("utf-8", "replace"))
        if room < 0:
            return [EARLIER.format(place + 1), *lines[place + 1 :]]
    return lines


def _line(turn: tuple[Message, ...]) -> str:
    """One turn in a line: `- Asked: …; Read(x); Bash(y); 4 calls more; Answered: …`"""
    asked = [f"Asked: {cut_first_line(message.text, _EXCERPT_CHARACTERS)}" for message in turn if message.is_user]
    done = [render_call(call) for call in list_callers(turn) if call is not None]
    more = [f"{len(done) - _CALLS_MAX} calls more"] if len(done) > _CALLS_MAX else []
    texts = [message.text for message in turn if message.role == "assistant" and message.text.strip()]
    answer = [f"Answered: {cut_first_line(texts[-1], _EXCERPT_CHARACTERS)}"] if texts else []
    return "- " + "; ".join([*asked, *done[:_CALLS_MAX], *more, *answer])


# --- prune tools ------------------------------------------------------------------------------------------------------
# Offer only the tools that were ever used. For the CLI: tools come before everything else, so this rewrites the
# whole cache.


ENDINGS = ("*finish*", "*submit*", "*complet*", "*done*", "*final*", "exit*", "end_*", "ask*", "compact")


@dataclass(frozen=True, slots=True)
class PruneTools:
    """Leave out the definitions of tools that the history never calls."""

    name: ClassVar[str] = "prune_tools"

    keep: tuple[str, ...] = ENDINGS
    """Tools that stay though they were never used (globs), as those by which an agent ends its task."""

    def reach(self, draft: Draft) -> int:
        return draft.count(draft.tools) if draft.tools else 0

    def __call__(self, draft: Draft) -> Draft:
        used = {call.name for message in draft.view for call in message.calls}
        used |= {draft.forced_tool, own_tools.RECALL.name, own_tools.COMPACT.name}
        spare = [name for name in list_tool_names(draft.tools) if name not in used and not matches_any(name, self.keep)]
        return replace(draft, tools=remove_pruned_tools(draft.tools, spare))


# --- strip attachments ------------------------------------------------------------------------------------------------
# Take old images, audio and files out: a label stays where each one was.
#
# A picture costs as much as a long text and is looked at once. The newest message with an attachment keeps it, whatever
# its age.

_LABELS = {
    "image_url": "an image",
    "input_audio": "a sound recording",
    "file": "a file",
    "image": "an image",
    "document": "a file",
    "input_image": "an image",
    "input_file": "a file",
}


@dataclass(frozen=True, slots=True)
class StripAttachments:
    """Replace old images, audio and files by a label."""

    name: ClassVar[str] = "strip_attachments"

    keep_recent: int = 1
    """How many of the newest messages with attachments keep them."""
    hints: tuple[Hint, ...] = ()
    """The policy on results by tool: those to keep stay whole."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in self._old(draft))

    def __call__(self, draft: Draft) -> Draft:
        chosen = {id(message) for message in self._old(draft)}
        return draft.rewrite(lambda message, _: self._label_attachments(message) if id(message) in chosen else message)

    def _old(self, draft: Draft) -> list[Message]:
        attached = [message for message in draft.middle + draft.after if message.attached]
        old = without_newest(attached, self.keep_recent)
        calls = {id(message): call for message, call in draft.pair_with_calls()} if old else {}
        return [
            message
            for message in old
            if id(message) in calls and draft.free(message) and not message.literal
            if not self._is_kept(calls[id(message)])
        ]

    def _is_kept(self, call: ToolCall | None) -> bool:
        return call is not None and find_modes(call.name, self.hints)[1] == "keep"

    def _label_attachments(self, message: Message) -> Message:
        # Read back from a block, an observation must not pass for the words of a user.
        made = f"{self.name} of an observation" if message.is_observation else self.name
        return message.with_content(splice.replace_elements(message.content, 0, _label), made)


def _label(part: bytes) -> bytes:
    kind = find_part_type(part)
    if kind not in _LABELS:
        return part
    label = {"type": "text", "text": f"[Here was {_LABELS[kind]}, cleared to save space.]"}
    return json.dumps(label).encode()


# --- tool hints -------------------------------------------------------------------------------------------------------
# Hints per tool: whether the request or the response of an old call is worth keeping.
#
# Of a read the path is short and the content long; of a write it is the other way round. A hint says `keep`, `strip` or
# `remove` for each side; `remove` on either side takes the whole pair away. For each side, the first hint counts that
# matches the tool and names the side. What no hint names follows the step's own `request` and `response`.

HINTS: tuple[Hint, ...] = (
    *((tool, "keep", "keep") for tool in EXEMPT),
    *((tool, "strip", "keep") for tool in ("write*", "*create_file*", "*write_file*", "git_commit")),
    *((tool, "strip", "strip") for tool in ("*edit*", "*patch*", "*modify*", "*replace*", "notebookedit")),
    *(
        (tool, "keep", "strip")
        for tool in ("read*", "*read_file*", "view*", "*grep*", "*glob*", "*search*", "ls", "list*")
    ),
    *(
        (tool, "keep", "strip")
        for tool in ("*bash*", "*shell*", "*exec*", "*terminal*", "*command*", "*fetch*", "cargo_*")
    ),
)


@dataclass(frozen=True, slots=True)
class ToolHints:
    """Keep, strip or remove the requests and responses of old calls, tool by tool."""

    name: ClassVar[str] = "tool_hints"

    hints: tuple[Hint, ...] = HINTS
    """For each side, the first hint counts whose glob matches the tool and that names it; see `Hint`."""
    request: str = "keep"
    """For requests without a hint."""
    response: str = "strip"
    """For responses without a hint."""
    over: int = 200
    """Requests and responses up to this many bytes stay."""
    template: str = TEMPLATE
    """What stands for a stripped response; see `placeholder`."""
    keep_recent: int = 0
    """How many of the newest results stay with their calls, counting those that the policy keeps anyway."""

    def reach(self, draft: Draft) -> int:
        return int(sum(self.worth(*pair, draft.count) for pair in draft.pair_with_calls() if draft.free(pair[0])))

    def worth(self, message: Message, call: ToolCall | None, count: Count) -> float:
        mode = self._modes(call)[1] if call is not None else "keep"
        is_stripped = mode == "strip" and message.made in FOLDABLE and has_text_over(message, self.over)
        is_cleared = is_stripped or (call is not None and "remove" in self._modes(call))
        is_cleared = is_cleared or (not message.signed and any(map(self._may_shorten, message.calls)))
        return count(message.raw) if is_cleared else 0.0

    def _may_shorten(self, call: ToolCall) -> bool:
        modes = self._modes(call)
        return "remove" in modes or (modes[0] == "strip" and len(call.arguments) > self.over)

    def __call__(self, draft: Draft) -> Draft:
        left = self._remove(draft)
        spared = self._find_newest(left)
        answers = [
            (message, call)
            for message, call in left.pair_with_calls()
            if call is not None and self._modes(call)[1] == "strip" and is_foldable(message, left, self.over)
            if id(call) not in spared
        ]
        results = ClearResults(over=self.over, template=self.template)
        left = results.clear(answers, left, self.name) if answers else left

        def is_selected(call: ToolCall) -> bool:
            return self._modes(call)[0] == "strip" and id(call) not in spared

        return ClearArguments(self.over, lines=1).shorten(left, is_selected)

    def _remove(self, draft: Draft) -> Draft:
        spared = self._find_newest(draft)
        calls = (call for message in draft.middle for call in message.calls if "remove" in self._modes(call))
        left = remove_pairs(draft, {id(call) for call in calls if id(call) not in spared}, self.name)
        stay = {id(message) for message in left.middle}
        results = ((message, call) for message, call in draft.pair_with_calls() if call is not None)
        removed = {remove_wrapping(message.content): call for message, call in results if id(message) not in stay}
        if not removed:
            return left
        return left.rewrite(lambda message, _: clear_pointer(message, left, removed, self.name, "removed"))

    def _find_newest(self, draft: Draft) -> set[int]:
        """The ids of the calls whose results are among the newest that stay."""
        if not self.keep_recent:
            return set()
        results = [(message, call) for message, call in draft.pair_with_calls() if message.is_result]
        newest = sum(message.is_result for message in draft.after)
        old = len(without_newest(results, self.keep_recent - newest))
        return {id(call) for _, call in results[old:] if call is not None}

    def _modes(self, call: ToolCall) -> tuple[str, str]:
        request, response = find_modes(call.name, self.hints)
        return request or self.request, response or self.response
