"""Notes that the proxy adds to a history: framed as background, in a role that keeps the order of speakers legal.

    [Background from the context proxy, not from the user: this record replaces older messages to save space.
    ... text ...
    End of background. Everything the user said still applies; ...]

A note is never in the assistant's voice: it may quote a tool's output, and a model takes text in its own voice
for its own thought. It does not speak for the user either: its first line names its author.

Strict chat templates want user and assistant to alternate, and the assistant to speak after a tool. If one message in
place of others would break that, a separator of the other role is put before or after it. Messages takes several
messages of the user in a row as one, and is sent them so.
"""

import json
import re
from collections.abc import Iterable

from proxy.history.messages import HEAD, NOTE, RESULTS, Message, make_literal

OPENING = "[Background from the context proxy, not from the user: this record replaces older messages to save space."
CLOSING = (
    "End of background. Everything the user said still applies; where two messages of the user conflict, the later one"
    " counts. The record was made automatically: verify it before relying on it.]"
)
GO_ON = "[Separator from the context proxy: the conversation continues below.]"
HEADING = "Summary of the conversation so far, written by a model:"
LOST_WORDS = "Older messages of the user that are left out here, for there is no room for them: {}."
NO_OPENER = "(back-ground"
NO_CLOSER = "end-of-back-ground"
"""Written in place of text that would open a frame or close it."""

_LOOK_ALIKES = (
    "a\u0430\u0251\u03b1@ b\u0432 c\u0441\u03f2 d\u0501 e\u0435 f\u017f g\u0261 h\u04bb"
    " k\u043a\u03ba n\u0578 o\u043e\u03bf0 r\u0433 t\u0442 u\u03c5\u057d"
)
"""Letters, each with those of other alphabets that a model reads as the same."""
_SPELLINGS = {letters[0]: letters for letters in _LOOK_ALIKES.split()}
_FULL_WIDTH_OFFSET = ord("\uff21") - ord("A")
_UNSEEN = r"[\u00ad\u200b-\u200f\u2060\ufeff*_`~]{0,4}"


def _match_spellings(word: str) -> str:
    """A pattern for a word in any spelling: with letters that look the same, and with unseen marks between them."""
    letters = []
    for letter in word:
        full_width = chr(ord(letter) + _FULL_WIDTH_OFFSET) + chr(ord(letter.upper()) + _FULL_WIDTH_OFFSET)
        letters.append(f"[{_SPELLINGS[letter]}{full_width}]")
    return _UNSEEN.join(letters)


_END, _OF, _THE, _BACKGROUND = map(_match_spellings, ("end", "of", "the", "background"))
_GAP = r"[\W_]{1,8}"
_CLOSERS = re.compile(
    rf"(?<![^\W_]){_END}s?{_GAP}{_OF}{_GAP}(?:{_THE}{_GAP})?{_BACKGROUND}"
    rf"|{_BACKGROUND}{_GAP}(?:[^\n]{{0,40}}\W)?{_END}(?:s|ed)?\b",
    re.IGNORECASE,
)
_OPENERS = re.compile(rf"[\[<({{\u3010\uff3b][\W_]{{0,4}}{_BACKGROUND}", re.IGNORECASE)


def make_notes(
    text: str, before: Message | None, after: Message | None, start: int, stop: int, *, answer: str = ""
) -> tuple[Message, ...]:
    """The messages that say `text` between these two speakers, in place of `body[start:stop]`.

    With an `answer`, the assistant replies.
    """
    notes = [make_note("user", frame_background(text), start, stop)]
    if is_models_turn(before):
        notes.insert(0, make_note("assistant", GO_ON, start, start))
    if answer:
        notes.append(make_note("assistant", answer, stop, stop))
    if after is not None and after.role == notes[-1].role:
        notes.append(make_note("user" if answer else "assistant", GO_ON, stop, stop))
    return tuple(notes)


def make_separators(before: Message | None, after: Message | None, start: int, stop: int) -> tuple[Message, ...]:
    """A separator in place of `body[start:stop]`, if the order of speakers needs one."""
    if after is not None and after.role in RESULTS:
        return ()  # its call stays, and only that makes sense of it
    is_users_turn_next = after is not None and after.role == "user"
    if is_models_turn(before) != is_users_turn_next:
        return ()
    return (make_note("assistant" if is_users_turn_next else "user", GO_ON, start, stop),)


def is_models_turn(before: Message | None) -> bool:
    """Whether the assistant speaks after this message."""
    return before is not None and before.role in (*RESULTS, "user")


def find_speaker(messages: Iterable[Message]) -> Message | None:
    """The first message that is no instruction."""
    return next((message for message in messages if message.role not in HEAD), None)


def frame_background(text: str) -> str:
    """The text framed as background. Nothing in it can end the frame or open one: it may quote untrusted text."""
    inside = _CLOSERS.sub(NO_CLOSER, _OPENERS.sub(NO_OPENER, text))
    return f"{OPENING}\n{inside}\n{CLOSING}"


def make_note(role: str, text: str, start: int, stop: int) -> Message:
    """One message that the proxy writes."""
    raw = json.dumps({"role": role, "content": text}, ensure_ascii=False)
    return make_literal(raw.encode("utf-8", "replace"), start, stop, NOTE)


def is_of_summary(message: Message) -> bool:
    """Whether a message is a note that holds a summary."""
    # The first line is the opening, of this version or an earlier one.
    return message.made == NOTE and message.text.partition("\n")[2].startswith(HEADING)
