"""Hints per tool: whether the request or the response of an old call is worth keeping.

Of a read the path is short and the content long; of a write it is the other way round. A hint says `keep`, `strip` or
`remove` for each side; `remove` on either side takes the whole pair away. The first hint whose glob matches the tool
counts. What it leaves open, and tools without a hint, follow the step's own `request` and `response`.
"""

from dataclasses import dataclass
from typing import ClassVar

from proxy.core.agents.tools import EXEMPT, matches_any
from proxy.core.calls import without
from proxy.core.model.messages import Message, ToolCall
from proxy.core.outline import Outlines
from proxy.core.pipeline import Draft
from proxy.core.steps.clear_arguments import ClearArguments
from proxy.core.steps.clear_results import TEMPLATE, foldable, outline_results

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
        arguments = ClearArguments(self.over, (), self.outline, self.outline_bytes, self.names)
        return left.exchange(arguments.shorten(asking, left, self._strips_request) if asking else {})

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
