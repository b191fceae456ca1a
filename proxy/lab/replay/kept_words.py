"""Words that no policy may lose: messages of people, and pins."""

from collections.abc import Iterable, Sequence
from itertools import dropwhile

from proxy.history.messages import HEAD, Message
from proxy.history.pins import Pins
from proxy.lab.replay.replay_values import Recall


def measure_recall(messages: Sequence[Message], view: Sequence[Message], pins: Pins) -> dict[str, Recall]:
    """`messages`: of the last request, the head included."""
    body = tuple(dropwhile(lambda message: message.role in HEAD, messages))
    user_texts = [message.text for message in body if message.is_user]
    instructions = [message.text for message in body if message.role in HEAD]
    view_text = "\n".join(message.text for message in view)
    return {
        "user messages": _count_present(user_texts, view_text),
        "pins": _count_present([*instructions, *pins.choose(body, list(map(pins.find, body)))], view_text),
    }


def _count_present(things: Iterable[str], view_text: str) -> Recall:
    texts = [thing for thing in dict.fromkeys(things) if thing.strip()]
    return Recall(len(texts), sum(thing in view_text for thing in texts))
