"""Take old images, audio and files out: a label stays where each one stood.

A picture costs as much as a long text and is looked at once. The newest message with an attachment keeps it, whatever
its age.
"""

import json
from dataclasses import dataclass
from typing import ClassVar

from proxy.core.model import splice
from proxy.core.model.messages import Message, kind_of
from proxy.core.pipeline import Draft

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
        old = attached[: len(attached) - self.keep_recent]
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
