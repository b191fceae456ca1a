"""Recall: how much of a history is in the view that was forwarded last?

Asked once per conversation, of its last request, about all but the head:

- *user messages*: what people said (not what an environment says in their role), word for word;
- *pins*: instructions in the midst, and the passages that the policy pins, word for word;
- *paths* and *ids*: each term of that kind in what people said and in the arguments of calls, anywhere in the view;
- *errors*: of each tool result, the first line that begins by naming an error, up to 200 characters of it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from proxy.core.grouping import Pins
from proxy.core.messages import HEAD, Message, iterate_strings
from proxy.lab.replay.terms import find_terms, kind_of, parse_arguments, texts_of
from proxy.lab.replay.values import Recall

_ERROR = re.compile(
    r"^[ \t]{0,8}(?:E +)?(?:\[?(?:error|fatal|panic|failed)\b|[\w.]{1,80}(?:Error|Exception)\b|traceback \(most)[^\n]*",
    re.IGNORECASE | re.MULTILINE,
)
_NAME_CHARACTERS = 200


def measure_recall(messages: Sequence[Message], view: Sequence[Message], pins: Pins) -> dict[str, Recall]:
    """`messages`: those of the last request, the head included."""
    head = next((place for place, each in enumerate(messages) if each.role not in HEAD), len(messages))
    body = messages[head:]
    seen = "\n".join(texts_of(message.raw) for message in view)
    return {
        "user messages": _count_present((message.text for message in body if message.is_user), seen),
        "pins": _count_present([*(each.text for each in body if each.role in HEAD), *pins.passages(body)], seen),
        "paths": _count_present(_find_arguments(body, "path"), seen),
        "ids": _count_present(_find_arguments(body, "id"), seen),
        "errors": _count_present(_errors(body), seen),
    }


def _count_present(things: Iterable[str], seen: str) -> Recall:
    each = [thing for thing in dict.fromkeys(things) if thing.strip()]
    return Recall(len(each), sum(thing in seen for thing in each))


def _find_arguments(body: Sequence[Message], wanted: str) -> Iterator[str]:
    for message in body:
        texts = [message.text] if message.is_user else []
        texts += (each for call in message.calls for each in iterate_strings(parse_arguments(call.arguments)))
        yield from (term for each in texts for term in find_terms(each) if kind_of(term) == wanted)


def _errors(body: Sequence[Message]) -> Iterator[str]:
    for message in body:
        found = _ERROR.search(message.text) if message.is_bulk else None
        if found:
            yield found[0][:_NAME_CHARACTERS]
