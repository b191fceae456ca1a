"""An independent judge of histories, written without any code that serves.

`changes(before, after)` lists what a proxy must not have done between the messages that came and those that left, both
as bytes.
"""

import json
import re
from collections import Counter

from proxy.lab.replay.validity import find_breaches

INSTRUCTING = ("system", "developer")
PINS = re.compile(r"<pin>.*?</pin>", re.DOTALL)
MARKER = "MUST-KEEP"
REASONING = ("reasoning_content", "signature")
LOOK_ALIKE = re.compile(r"\s*(?:Command output|Observation|<output>|Tool result)")


def text_of(message):
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return content if isinstance(content, str) else ""


def changes(before, after, *, keeps_words=True, pins=False, repairs=False):
    """What must not have happened, each as a sentence; `keeps_words`: the policy keeps up to 40,000 bytes of users.

    `repairs`: it puts results right behind their calls, which needs another order where something was between them.
    """
    found = []
    came, left = [json.loads(raw) for raw in before], [json.loads(raw) for raw in after]
    standing = Counter(after)
    # Of messages that occur once: one that lost its reasoning may have come to equal another one.
    alike = Counter(map(_without_reasoning, came))
    once = {
        raw for raw, value in zip(before, came, strict=True) if alike[_without_reasoning(value)] == 1 == standing[raw]
    }
    if not (repairs and find_breaches(came)) and not _is_subsequence([raw for raw in after if raw in once], before):
        found.append("kept messages stand in another order")
    known = {_canonical(value): raw for raw, value in zip(before, came, strict=True)}
    found += [
        "an untouched message has other bytes"
        for raw, value in zip(after, left, strict=True)
        if raw not in set(before) and _canonical(value) in known
    ]
    head = next((place for place, message in enumerate(came) if message.get("role") not in INSTRUCTING), len(came))
    if after[:head] != before[:head]:
        found.append("the head changed")
    instructions = [raw for raw, message in zip(before, came, strict=True) if message.get("role") in INSTRUCTING]
    found += ["an instruction is gone" for raw in instructions if raw not in standing]
    persons = mark_persons(came)
    words = [text_of(message) for message in left if message.get("role") == "user"]

    def is_joined(message):
        """Words without anything else may be one message with others."""
        return set(message) == {"role", "content"} and any(text_of(message) in text for text in words)

    users = [(raw, message) for raw, message, is_person in zip(before, came, persons, strict=True) if is_person]
    newest = [place for place, message in enumerate(came) if message.get("role") == "user"][-1:]
    # Where output may look like a user's words the newest of these may be either.
    if users and newest and persons[newest[0]] and users[-1][0] not in standing:
        found.append("the last user message is gone")
    if keeps_words and sum(len(raw) for raw, _ in users) < 40_000:
        found += ["a user message is gone" for raw, message in users if raw not in standing and not is_joined(message)]
    if pins:
        text = "\n".join(text_of(message) for message in left if message.get("role") not in ("tool", "function"))
        speakers = [message for message in came if message.get("role") in INSTRUCTING]
        speakers += [message for _, message in users]
        found += ["a pin is gone" for message in speakers for pin in _pins_in(text_of(message)) if pin not in text]
    worse = find_breaches(left) - find_breaches(came)
    if worse:
        found.append(f"made invalid: {dict(worse)}")
    if sum(map(len, after)) > sum(map(len, before)):
        found.append("longer than it came")
    return found


def mark_persons(messages):
    """Whether each message is a person's, for sure: before the first call, output may come in the role of a user."""
    marks, has_calls = [], False
    for message in messages:
        role = message.get("role")
        has_calls = has_calls or bool(message.get("tool_calls") or message.get("function_call"))
        has_calls = has_calls or role in ("tool", "function")
        marks.append(role == "user" and (has_calls or not LOOK_ALIKE.match(text_of(message))))
    return marks


def _pins_in(text):
    return [*PINS.findall(text), *(line for line in text.split("\n") if MARKER in line)]


def _without_reasoning(message):
    return _canonical({name: value for name, value in message.items() if name not in REASONING})


def _canonical(value):
    return json.dumps(value, sort_keys=True)


def _is_subsequence(part, whole):
    rest = iter(whole)
    return all(any(each == other for other in rest) for each in part)


def split_body(body):
    """The messages of a request as bytes, and its other members: (name, bytes) in their order."""
    members, messages = [], []
    decoder = json.JSONDecoder()
    text = body.decode("utf-8", "surrogateescape")
    place = text.index("{") + 1
    while text[(place := _skip(text, place))] != "}":
        name, place = decoder.raw_decode(text, place)
        start = _skip(text, _skip(text, place) + 1)
        _, place = decoder.raw_decode(text, start)
        members.append((name, text[start:place].encode("utf-8", "surrogateescape")))
        if name == "messages":
            messages = _elements(text, start, decoder)
        place = _skip(text, place)
        place += text[place] == ","
    return messages, [member for member in members if member[0] != "messages"]


def _elements(text, place, decoder):
    found = []
    place = _skip(text, place + 1)
    while text[place] != "]":
        _, stop = decoder.raw_decode(text, place)
        found.append(text[place:stop].encode("utf-8", "surrogateescape"))
        place = _skip(text, stop)
        place = _skip(text, place + (text[place] == ","))
    return found


def _skip(text, place):
    while text[place] in " \t\r\n":
        place += 1
    return place
