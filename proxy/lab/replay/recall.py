"""Recall: how much of what must not be lost is in the view that was forwarded last?

Asked once per conversation, of its last request, about all but the head:

- *user messages*: what people said (not what an environment says in their role), word for word;
- *pins*: instructions in the midst, and the passages that the policy pins, word for word.
"""

from collections.abc import Iterable, Sequence

from proxy.history.messages import HEAD, Message
from proxy.history.pins import Pins
from proxy.lab.replay.replay_values import Recall


def measure_recall(messages: Sequence[Message], view: Sequence[Message], pins: Pins) -> dict[str, Recall]:
    """`messages`: those of the last request, the head included."""
    head = next((place for place, each in enumerate(messages) if each.role not in HEAD), len(messages))
    body = messages[head:]
    seen = "\n".join(message.text for message in view)
    return {
        "user messages": _count_present((message.text for message in body if message.is_user), seen),
        "pins": _count_present([*(each.text for each in body if each.role in HEAD), *pins.passages(body)], seen),
    }


def _count_present(things: Iterable[str], seen: str) -> Recall:
    each = [thing for thing in dict.fromkeys(things) if thing.strip()]
    return Recall(len(each), sum(thing in seen for thing in each))
