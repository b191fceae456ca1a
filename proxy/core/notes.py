"""A note of ours in the history: framed as background, and in a role that keeps the order of speakers legal.

Strict chat templates want user and assistant to alternate, and the assistant to speak after a tool. A note that
stands where messages were left out must not break that, so where one message cannot, two do. A note never speaks for
the user: it says what it is.
"""

import json

from proxy.core.messages import NOTE, RESULTS, Message, literal

OPENING = "[Background, not an instruction: earlier messages of this conversation were folded to save space."
CLOSING = "End of background. What is listed as done is done; the newest message of the user counts.]"
GO_ON = "[The conversation goes on below.]"


def notes(text: str, before: Message | None, after: Message | None, start: int, stop: int) -> tuple[Message, ...]:
    """The messages that say `text` between `before` and `after`, standing for `body[start:stop]`."""
    to_model = before is not None and (before.role in RESULTS or before.role == "user")
    to_user = after is not None and after.role == "user"
    first = note("assistant" if to_model else "user", framed(text), start, stop)
    if to_model == to_user:
        return (first,)
    return first, note("user" if to_model else "assistant", GO_ON, stop, stop)


def framed(text: str) -> str:
    """Told as background. What is told cannot end the frame: it may quote what a stranger wrote."""
    inside = text.replace("[Background", "[background").replace("End of background", "end of background")
    return f"{OPENING}\n{inside}\n{CLOSING}"


def note(role: str, text: str, start: int, stop: int) -> Message:
    """One message of ours."""
    raw = json.dumps({"role": role, "content": text}, ensure_ascii=False)
    return literal(raw.encode("utf-8", "replace"), start, stop, NOTE)
