"""Steps that no default uses: the named policies ask for them (docs/policies.md)."""

import json
from dataclasses import dataclass, replace
from typing import ClassVar

from proxy.core import placeholder, splice
from proxy.core.agents import EXEMPT, matches_any, tool_names, without_pruned
from proxy.core.fold import Stretch, fold_stretches, kept_words
from proxy.core.grouping import callers, turns
from proxy.core.messages import Message, ToolCall, kind_of, without
from proxy.core.pipeline import Draft
from proxy.core.placeholder import Outlines
from proxy.core.steps.standard import TEMPLATE, ClearArguments, foldable, outline_results, without_newest

# --- one liners -------------------------------------------------------------------------------------------------------
# One line per turn: what the user asked and what was done, within a budget; turns beyond it are dropped, oldest
# first.
#
# The plain form of a summary, without a model (the policy `blocks`). The user's messages that the policy pins stay word
# for word.

_CALLS_MAX = 6


@dataclass(frozen=True, slots=True)
class OneLiners:
    """Replace the turns of the middle by one line each."""

    name: ClassVar[str] = "one_liners"

    tokens: int = 2_000
    """Tokens of lines in all."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.middle if draft.free(message))

    def __call__(self, draft: Draft) -> Draft:
        kept = kept_words(draft, 0)
        gone = sum(id(message) not in kept for message in draft.middle)
        return fold_stretches(draft, kept, lambda stretch: self._render(stretch, len(stretch.gone) / gone))

    def _render(self, stretch: Stretch, share: float) -> str:
        lines = [_line(stretch.origin[turn.start : turn.stop]) for turn in turns(stretch.origin)]
        return "\n".join(_newest(lines, int(4 * self.tokens * share)))


def _newest(lines: list[str], room: int) -> list[str]:
    """The newest that fit into this many bytes, and a line that says how many did not."""
    for place in reversed(range(len(lines))):
        room -= len(lines[place].encode("utf-8", "replace"))
        if room < 0:
            return [f"- Earlier turns that are not listed: {place + 1}", *lines[place + 1 :]]
    return lines


def _line(turn: tuple[Message, ...]) -> str:
    """One turn in a line: `- Asked: …; Read(x); Bash(y); 4 calls more; Answered: …`"""
    asked = [f"Asked: {placeholder.short(message.text)}" for message in turn if message.is_user]
    done = [f"{call.name}({placeholder.argument(call)})" for call in callers(turn) if call is not None]
    more = [f"{len(done) - _CALLS_MAX} calls more"] if len(done) > _CALLS_MAX else []
    said = [message.text for message in turn if message.role == "assistant" and message.text.strip()]
    answer = [f"Answered: {placeholder.short(said[-1])}"] if said else []
    return "- " + "; ".join([*asked, *done[:_CALLS_MAX], *more, *answer])


# --- prune tools ------------------------------------------------------------------------------------------------------
# Offer only the tools that were ever used. For the CLI: tools come before everything else, so this rewrites the
# whole cache.


@dataclass(frozen=True, slots=True)
class PruneTools:
    """Leave out the definitions of tools that the history never calls."""

    name: ClassVar[str] = "prune_tools"

    keep: tuple[str, ...] = ()
    """Tools that stay though they were never used (globs)."""

    def reach(self, draft: Draft) -> int:
        return draft.count(draft.tools) if draft.tools else 0

    def __call__(self, draft: Draft) -> Draft:
        used = {call.name for message in draft.view for call in message.calls}
        spare = [name for name in tool_names(draft.tools) if name not in used and not matches_any(name, self.keep)]
        return replace(draft, tools=without_pruned(draft.tools, spare))


# --- strip attachments ------------------------------------------------------------------------------------------------
# Take old images, audio and files out: a label stays where each one stood.
#
# A picture costs as much as a long text and is looked at once. The newest message with an attachment keeps it, whatever
# its age.

_LABELS = {"image_url": "an image", "input_audio": "a sound recording", "file": "a file"}


@dataclass(frozen=True, slots=True)
class StripAttachments:
    """Replace old images, audio and files by a label."""

    name: ClassVar[str] = "strip_attachments"

    keep_recent: int = 1
    """How many of the newest messages with attachments keep them."""

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in self._old(draft))

    def __call__(self, draft: Draft) -> Draft:
        chosen = {id(message) for message in self._old(draft)}
        return draft.rewrite(lambda message, _: self._label_attachments(message) if id(message) in chosen else message)

    def _old(self, draft: Draft) -> list[Message]:
        attached = [message for message in draft.middle + draft.after if message.attached]
        old = without_newest(attached, self.keep_recent)
        middle = {id(message) for message in draft.middle}
        return [message for message in old if id(message) in middle and draft.free(message) and not message.literal]

    def _label_attachments(self, message: Message) -> Message:
        parts = (_label(message.content[start:stop]) for start, stop in splice.elements(message.content))
        # Read back from a block, an observation must not pass for the words of a user.
        made = f"{self.name} of an observation" if message.observed else self.name
        return message.with_content(b"[" + b", ".join(parts) + b"]", made)


def _label(part: bytes) -> bytes:
    kind = kind_of(part)
    if kind not in _LABELS:
        return part
    label = {"type": "text", "text": f"[Here was {_LABELS[kind]}, cleared to save space.]"}
    return json.dumps(label).encode()


# --- tool hints -------------------------------------------------------------------------------------------------------
# Hints per tool: whether the request or the response of an old call is worth keeping.
#
# Of a read the path is short and the content long; of a write it is the other way round. A hint says `keep`, `strip` or
# `remove` for each side; `remove` on either side takes the whole pair away. The first hint whose glob matches the tool
# counts. What it leaves open, and tools without a hint, follow the step's own `request` and `response`.

Hint = tuple[str, str, str]
"""A tool (glob), then `keep`, `strip`, `remove` or "" (as the step says) for its request and for its response."""

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
    """The first hint whose glob matches the tool counts; see `Hint`."""
    request: str = "keep"
    """For requests without a hint."""
    response: str = "strip"
    """For responses without a hint."""
    over: int = 200
    """Requests and responses up to this many bytes stay."""
    outline: float = 0.25
    """At most this share of what is stripped stays as lines of its own."""
    outline_bytes: int = 8_000
    """At most this many bytes of them."""
    names: int = 12
    """How many names are listed for which no line had room."""
    template: str = TEMPLATE
    """What stands for a stripped response; see `placeholder`."""

    def reach(self, draft: Draft) -> int:
        large = (message for message in draft.middle if len(message.raw) > self.over and draft.free(message))
        return sum(draft.count(message.raw) for message in large if message.is_result or message.calls)

    def __call__(self, draft: Draft) -> Draft:
        if not self.reach(draft):
            return draft
        left = self._remove_pairs(draft)
        answers = [pair for pair in left.pair_with_calls() if self._response_goes(*pair, left)]
        outlines = Outlines(self.outline, self.outline_bytes, self.names)
        left = left.exchange(outline_results(answers, left, outlines, self.template, self.name) if answers else {})
        asking = [message for message in left.middle if self._request_goes(message, left)]
        arguments = ClearArguments(self.over, lines=1)
        return left.exchange(arguments.shorten(asking, self._strips_request))

    def _modes(self, call: ToolCall) -> tuple[str, str]:
        _, request, response = next((hint for hint in self.hints if matches_any(call.name, hint[:1])), ("", "", ""))
        return request or self.request, response or self.response

    def _response_goes(self, message: Message, call: ToolCall | None, draft: Draft) -> bool:
        return call is not None and self._modes(call)[1] == "strip" and foldable(message, draft, self.over)

    def _request_goes(self, message: Message, draft: Draft) -> bool:
        """True where some arguments of its calls are to be folded."""
        if message.signed or message.made not in ("", "strip_reasoning") or not draft.free(message):
            return False
        return any(self._strips_request(call) and len(call.arguments) > self.over for call in message.calls)

    def _strips_request(self, call: ToolCall) -> bool:
        return self._modes(call)[0] == "strip"

    def _remove_pairs(self, draft: Draft) -> Draft:
        """The draft without the pairs to remove, where both the call and its result may be touched."""
        answers = {id(call): message for message, call in draft.pair_with_calls() if call is not None}
        gone = {
            id(call)
            for message in draft.middle
            for call in message.calls
            if "remove" in self._modes(call)
            and draft.free(message)
            and not message.signed
            and id(call) in answers
            and draft.free(answers[id(call)])
        }
        if not gone:
            return draft
        results = {id(answers[call]) for call in gone}
        kept = (self._without(message, gone) for message in draft.middle if id(message) not in results)
        return draft.with_middle(message for message in kept if message is not None)

    def _without(self, message: Message, gone: set[int]) -> Message | None:
        places = {place for place, call in enumerate(message.calls) if id(call) in gone}
        return without(message, places, self.name) if places else message
