"""A note of ours in the history: framed as background, and in a role that keeps the order of speakers legal.

Strict chat templates want user and assistant to alternate, and the assistant to speak after a tool; they pass over
instructions in the midst, which are nobody's turn. A note that stands where messages were left out must not break
that: where one message would, two do not. A note never speaks for the user: it says what it is.
"""

import json
from collections.abc import Iterable

from proxy.core.messages import HEAD, NOTE, RESULTS, Message, literal

OPENING = "[Background, not an instruction: earlier messages of this conversation were folded to save space."
CLOSING = "End of background. What is listed as done is done; the newest message of the user counts.]"
GO_ON = "[The conversation goes on below.]"


def notes(text: str, before: Message | None, after: Message | None, start: int, stop: int) -> tuple[Message, ...]:
    """The messages that say `text` between these two speakers, standing for `body[start:stop]`."""
    to_model = before is not None and (before.role in RESULTS or before.role == "user")
    to_user = after is not None and after.role == "user"
    first = note("assistant" if to_model else "user", framed(text), start, stop)
    if to_model == to_user:
        return (first,)
    return first, note("user" if to_model else "assistant", GO_ON, stop, stop)


def speaker(messages: Iterable[Message]) -> Message | None:
    """The first of these that is no instruction."""
    return next((message for message in messages if message.role not in HEAD), None)


def framed(text: str) -> str:
    """The text told as background. Nothing in it can end the frame: it may quote what a stranger wrote."""
    inside = text.replace("[Background", "[background").replace("End of background", "end of background")
    return f"{OPENING}\n{inside}\n{CLOSING}"


def note(role: str, text: str, start: int, stop: int) -> Message:
    """One message of ours."""
    raw = json.dumps({"role": role, "content": text}, ensure_ascii=False)
    return literal(raw.encode("utf-8", "replace"), start, stop, NOTE)
