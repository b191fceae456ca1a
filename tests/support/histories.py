"""Histories of every shape that agents send, and some that no agent should."""

import json
from collections import Counter

from hypothesis import strategies as st

from tests.support.messages import assistant, call, calls, history, system, user

WORDS = (
    "alpha",
    "src/main.py",
    "beta_2",
    "getUser",
    "the",
    "10.4.1",
    "naïve",
    "数据",
    "line\nbreak",
    'quo"te',
    "\\path",
    "x=1",
)
SMALL = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
BIG = st.builds(
    lambda word, size: "\n".join(f"{n} {word} file_{n}.py" for n in range(size)), SMALL, st.integers(30, 200)
)
TEXT = st.one_of(SMALL, BIG)
FAILURE = BIG.map(lambda text: f"Error: no such file\n{text}")
PARTS = TEXT.map(lambda text: [{"type": "text", "text": text}, {"type": "text", "text": "and more"}])
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 80}}
PICTURE = SMALL.map(lambda text: [{"type": "text", "text": text}, IMAGE])
OUT = st.one_of(TEXT, BIG, FAILURE, PARTS, PICTURE)
TOOL = st.sampled_from(("Read", "Bash", "Edit", "TodoWrite", "mcp__db__query"))
ARGUMENTS = st.one_of(
    st.fixed_dictionaries({"path": SMALL}),
    st.fixed_dictionaries({"file_path": SMALL, "content": TEXT}),
    st.fixed_dictionaries({"edits": st.lists(st.fixed_dictionaries({"old": TEXT, "new": TEXT}), max_size=2)}),
    st.sampled_from(("", "{not json", "[1, 2]", '{"n": 123456789012345678901234567890}')),
)


def custom(name, text, out):
    group = call(name, out=out)
    group[0]["tool_calls"] = [{"type": "custom", "custom": {"name": name, "input": text}}]
    return group


def legacy(name, arguments, out):
    asked = {"role": "assistant", "content": None, "function_call": {"name": name, "arguments": json.dumps(arguments)}}
    return [asked, {"role": "function", "name": name, "content": out}]


def thinking(text, signed, group):
    group[0]["reasoning_content"] = text
    if signed:
        group[0]["reasoning_details"] = [{"type": "reasoning.text", "text": text, "signature": "c2ln" + text[:8]}]
    return group


def repeat_ids(group):
    """Ids repeat within real conversations."""
    for each in group[0]["tool_calls"]:
        each["id"] = "call_same"
    return group


ONE = st.builds(lambda name, arguments, out: calls((name, arguments, out)), TOOL, ARGUMENTS, OUT)
SEVERAL = st.lists(st.tuples(TOOL, ARGUMENTS, OUT), min_size=2, max_size=3).map(lambda made: calls(*made))
LEGAL = st.one_of(
    TEXT.map(user),
    PICTURE.map(user),
    TEXT.map(assistant),
    ONE,
    ONE,
    SEVERAL,
    st.builds(custom, TOOL, TEXT, TEXT),
    st.builds(legacy, TOOL, st.fixed_dictionaries({"path": SMALL}), TEXT),
    st.builds(lambda text, out: assistant(text) + user(f"Observation: {out}"), SMALL, TEXT),
    st.builds(lambda text: assistant(text) + user([{"type": "text", "text": "Observation: a screen"}, IMAGE]), SMALL),
    st.builds(thinking, TEXT, st.booleans(), ONE),
    SMALL.map(lambda text: system(f"Mind this: {text}")),
    SMALL.map(lambda text: user(f"<pin>never touch {text}</pin>")),
    ONE.map(repeat_ids).filter(lambda group: len(group) == 2),
)
BROKEN = st.one_of(
    TEXT.map(lambda text: [{"role": "tool", "tool_call_id": "call_nobody", "content": text}]),
    ONE.map(lambda group: group[:1]),
    SEVERAL.map(lambda group: group[:-1]),
    SEVERAL.map(lambda group: [group[0], *reversed(group[1:])]),
    SEVERAL.map(lambda group: [*group[:-1], *user("wait"), group[-1]]),
    st.just([{"role": "critic", "content": None, "score": 1}]),
    st.just([{"role": "assistant"}]),
)
OPENING = st.one_of(st.just([]), SMALL.map(system), SMALL.map(lambda text: [{"role": "developer", "content": text}]))


class History(list):
    """Messages that fit on a screen when a test fails."""

    def __repr__(self):
        return "[" + ",\n ".join(f"{json.dumps(message)[:160]} ({len(json.dumps(message))})" for message in self) + "]"


def start_history(opening, first, pieces):
    return History(history(opening, user(first), *pieces))


legal = st.builds(start_history, OPENING, SMALL, st.lists(LEGAL, max_size=14))
any_history = st.builds(start_history, OPENING, SMALL, st.lists(st.one_of(LEGAL, LEGAL, BROKEN), max_size=14))


def asked_and_answered(messages):
    """Each message with calls, and what follows it without a gap: the ids called, and the ids answered."""
    for place, message in enumerate(messages):
        ids = [each["id"] for each in message.get("tool_calls") or ()]
        ids += [message["function_call"]["name"]] if message.get("function_call") else []
        answered = []
        for result in messages[place + 1 :]:
            if result["role"] not in ("tool", "function"):
                break
            answered.append(result.get("tool_call_id") or result.get("name"))
        if ids or (answered and message["role"] not in ("tool", "function")):
            yield Counter(ids), Counter(answered)
