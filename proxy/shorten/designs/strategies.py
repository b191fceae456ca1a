"""Document 003 (RFD 036): strategies that are composed.

A later call makes an earlier one obsolete if it is the same, or covers it: a read of lines 1-200 one of lines 20-40.
"""

import json
from collections import deque
from collections.abc import Collection, Mapping
from operator import attrgetter
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from proxy.history import splice
from proxy.history.calls import list_tool_names, remove_calls, remove_pruned_tools
from proxy.history.messages import REPEATED, Message, find_part_type
from proxy.recall.tool import RECALL
from proxy.shorten.clear_results import count_old
from proxy.shorten.pipeline import Count, Draft
from proxy.shorten.placeholder import render_call
from proxy.tools.tool_call import ToolCall
from proxy.tools.tool_kinds import EXEMPT, Hint, keeps_result, matches_any

Subsumption = tuple[str, str, str, str, str]
"""A tool (glob), and its arguments for path, first line (or `[1, 50]`), last line and number of lines; "" for none."""

READS: tuple[Subsumption, ...] = (
    ("read", "file_path", "offset", "", "limit"),
    ("read_file", "path", "start_line", "end_line", ""),
    ("read_file", "file_path", "offset", "", "limit"),
    ("read_file", "target_file", "start_line_one_indexed", "end_line_one_indexed_inclusive", ""),
    ("fs_read_file", "path", "start_line", "end_line", ""),
    ("view*", "path", "view_range", "", ""),
    ("*str_replace*edit*", "path", "view_range", "", ""),
    ("*text_editor*", "path", "view_range", "", ""),
    ("*file_editor*", "path", "view_range", "", ""),
)
CHANGES = ("*create*", "*write*", "*modify*", "*edit*", "*replace*", "*patch*", "*insert*", "git_commit", "*delete*")
"""Calls of these are never obsolete, unless they only look at a file: a repeated commit has another hash."""


class DedupOld(Struct, frozen=True):
    """Replace an old result that a later call has made obsolete by a line that says so."""

    name: ClassVar[str] = "dedup_old"

    over: int = 200
    """Results up to this many bytes stay."""
    exempt: tuple[str, ...] = EXEMPT
    """Tools whose results always stay (globs, case ignored)."""
    remove: bool = False
    """Take the older call out with its result, instead of leaving the call and a line."""
    subsumes: tuple[Subsumption, ...] = READS
    """The arguments that tell the range of a call."""
    hints: tuple[tuple[str, bool], ...] = ()
    """Tools (globs) whose repeated calls make older ones obsolete or do not, before `exempt` and `CHANGES`; the first
    that matches counts."""

    def worth(self, message: Message, call: ToolCall | None, count: Count) -> float:
        is_result = call is not None and message.made in ("", "clip_output") and self._is_selected(call)
        is_call = self.remove and any(map(self._is_selected, message.calls))
        if is_result or is_call:
            return count(message.raw)
        return 0.0

    def __call__(self, draft: Draft) -> Draft:
        later = _LaterCalls(self.subsumes)
        for message in draft.after:
            for newer in message.calls:
                later.cover(newer)
        obsolete_ids, shorter = set[int](), dict[int, Message]()
        for message, call in reversed(draft.pair_with_calls()):
            if call is None or message.made == REPEATED:  # a pointer back makes nothing obsolete
                continue
            is_shown = message.made in ("", "clip_output") and (self.remove or message.content_size > self.over)
            if later.cover(call) and is_shown and draft.free(message) and self._is_selected(call):
                obsolete_ids.add(id(call))
                if self.remove:
                    continue
                sentence = f"{render_call(call)} was called again; see its newer result below."
                shorter[id(message)] = message.with_text(f"[Removed by the context proxy: {sentence}]", self.name)
        if self.remove:
            return remove_pairs(draft, obsolete_ids, self.name)
        return draft.exchange(shorter)

    def _is_selected(self, call: ToolCall) -> bool:
        for glob, is_selected in self.hints:
            if matches_any(call.name, (glob,)):
                return is_selected
        is_change = matches_any(call.name, CHANGES) and call.named.get("command") not in ("view", "read", "Line")
        return not is_change and not matches_any(call.name, self.exempt)


def remove_pairs(draft: Draft, call_ids: Collection[int], made: str) -> Draft:
    results = dict[int, Message]()
    for message, caller in draft.pair_with_calls():
        if caller is not None and id(caller) in call_ids and draft.free(message):
            results[id(caller)] = message
    removed_ids = set[int]()
    middle = list[Message]()
    for message in draft.middle:  # a result comes after its call
        places = set[int]()
        if not message.signed and draft.free(message):
            for place, call in enumerate(message.calls):
                if id(call) in results:
                    places.add(place)
                    removed_ids.add(id(results[id(call)]))
        shorter: Message | None = remove_calls(message, places, made) if places else message
        if id(message) not in removed_ids and shorter is not None:
            middle.append(shorter)
    return draft.with_middle(middle)


class _LaterCalls:
    def __init__(self, subsumes: tuple[Subsumption, ...]) -> None:
        self._subsumes = subsumes
        self._same = set[str]()
        self._ranges = dict[str, deque[tuple[float, float]]]()

    def cover(self, call: ToolCall) -> bool:
        """Whether a later call covers this one."""
        arguments = call.named
        exact = json.dumps((call.name, arguments or call.arguments), sort_keys=True)
        is_covered = exact in self._same
        self._same.add(exact)
        for tool, path, *range_names in self._subsumes:
            if not matches_any(call.name, (tool,)) or not isinstance(arguments.get(path), str):
                continue
            start, stop = _find_range(arguments, *range_names)
            key = json.dumps((call.name, {**arguments, **dict.fromkeys(range_names)}), sort_keys=True)
            ranges = self._ranges.setdefault(key, deque(maxlen=64))
            is_covered = is_covered or any(first <= start and stop <= last for first, last in ranges)
            ranges.append((start, stop))
            break
        return is_covered


def _find_range(arguments: Mapping[str, Any], first: str, last: str, count: str) -> tuple[float, float]:
    start, end = arguments.get(first), arguments.get(last)
    if isinstance(start, list) and len(start) == 2:  # noqa: PLR2004 (both ends)
        start, end = start
    begin, limit = _read_number(start, 0.0), _read_number(end, float("inf"))
    if limit < 0:  # -1 is the last line
        limit = float("inf")
    return begin, min(limit, begin + _read_number(arguments.get(count), float("inf")))


def _read_number(value: Any, default: float) -> float:  # noqa: ANN401 - JSON
    if isinstance(value, bool) or not isinstance(value, int | float):
        return default
    return float(value)


LABELS = {
    **dict.fromkeys(("image_url", "image", "input_image"), "an image"),
    **dict.fromkeys(("file", "document", "input_file"), "a file"),
    "input_audio": "a sound recording",
}


class StripAttachments(Struct, frozen=True):
    """Replace old images, audio and files by a label."""

    name: ClassVar[str] = "strip_attachments"

    keep_recent: int = 1
    """How many of the newest messages with attachments keep them."""
    hints: tuple[Hint, ...] = ()
    """The policy on results by tool: those to keep stay whole."""

    def __call__(self, draft: Draft) -> Draft:
        messages_with_files = list(filter(attrgetter("attached"), draft.middle + draft.after))
        old_ids = set(map(id, messages_with_files[: count_old(len(messages_with_files), self.keep_recent)]))

        def label_attachments(message: Message, call: ToolCall | None) -> Message:
            if id(message) not in old_ids or message.literal or keeps_result(call, self.hints):
                return message
            # Read back from a block, an observation must not pass for the words of a user.
            step_name = f"{self.name} of an observation" if message.is_observation else self.name
            return message.with_content(splice.replace_elements(message.content, 0, _label), step_name)

        if not old_ids:
            return draft
        return draft.rewrite(label_attachments)


def _label(part: bytes) -> bytes:
    kind = find_part_type(part)
    if kind not in LABELS:
        return part
    label = {"type": "text", "text": f"[Here was {LABELS[kind]}, cleared to save space.]"}
    return json.dumps(label).encode()


class PruneTools(Struct, frozen=True):
    """Leave out the definitions of tools that the history never calls."""

    name: ClassVar[str] = "prune_tools"

    keep: tuple[str, ...] = (
        *("*finish*", "*submit*", "*complet*", "*done*", "*final*", "exit*", "end_*", "ask*", "compact"),
    )
    """Tools that stay though they were never used (globs), as those by which an agent ends its task."""

    def __call__(self, draft: Draft) -> Draft:
        needed_names = {draft.forced_tool, RECALL.name}
        for message in draft.view:
            needed_names.update(map(attrgetter("name"), message.calls))
        names = set(list_tool_names(draft.tools)) - needed_names
        spare_names = [name for name in names if not matches_any(name, self.keep)]
        return replace(draft, tools=remove_pruned_tools(draft.tools, spare_names))
