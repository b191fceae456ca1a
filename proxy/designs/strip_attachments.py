"""Take old images, audio and files out: a label stays in place of each.

Implements a strategy of document 003 (RFD 036). A picture costs as much as a long text and is looked at once. The
newest message with an attachment keeps it, whatever its age.
"""

import json
from dataclasses import dataclass
from typing import ClassVar

from proxy.history import splice
from proxy.history.agents import Hint, find_modes
from proxy.history.messages import Message, ToolCall, find_part_type
from proxy.shorten.pipeline import Draft
from proxy.shorten.steps.clear_results import without_newest

LABELS = {
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
        return sum(draft.count(message.raw) for message in self._list_old(draft))

    def __call__(self, draft: Draft) -> Draft:
        return draft.exchange({id(message): self._label_attachments(message) for message in self._list_old(draft)})

    def _list_old(self, draft: Draft) -> list[Message]:
        attached = [message for message in draft.middle + draft.after if message.attached]
        old_ids = {id(message) for message in without_newest(attached, self.keep_recent)}
        if not old_ids:
            return []
        return [
            message
            for message, call in draft.pair_with_calls()
            if id(message) in old_ids and draft.free(message) and not message.literal and not self._is_kept(call)
        ]

    def _is_kept(self, call: ToolCall | None) -> bool:
        return call is not None and find_modes(call.name, self.hints)[1] == "keep"

    def _label_attachments(self, message: Message) -> Message:
        # Read back from a block, an observation must not pass for the words of a user.
        made = f"{self.name} of an observation" if message.is_observation else self.name
        return message.with_content(splice.replace_elements(message.content, 0, _label), made)


def _label(part: bytes) -> bytes:
    kind = find_part_type(part)
    if kind not in LABELS:
        return part
    label = {"type": "text", "text": f"[Here was {LABELS[kind]}, cleared to save space.]"}
    return json.dumps(label).encode()
