"""A body whose history begins with known messages is read as it is without that knowledge."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.history.identity import compute_chain
from proxy.history.request import CHANGING_MESSAGES
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.json_body import find_prefix
from proxy.wire.known_requests import KnownRequests
from proxy.wire.messages_api import MESSAGES_FORMAT
from proxy.wire.responses_api import RESPONSES_FORMAT
from tests.support import messages_api, responses_api
from tests.support.apis import each_api, each_other_api
from tests.support.compaction_worker import turns
from tests.support.histories import any_history, legal
from tests.support.messages import KEY, TENANT, assistant, body, call, history, system, tool, user
from tests.support.worker_cases import CUTTERS, SETTLED

LONG = history(system("You help."), user("Mend it."), *(call("Read", path=f"{n}.py", out=f"{n} é") for n in range(9)))
MORE = history(*(call("Bash", command=f"ls {n}") for n in range(2)))


def find_in(wire, source, *earlier):
    start = wire.find_first_message(source)
    found = [find_prefix(wire.parse(each).without_source(), source, start) for each in earlier if start >= 0]
    return max(filter(None, found), key=lambda prefix: prefix.count, default=None)


def assert_continued(wire, source, *earlier):
    """How many elements of the list were known."""
    prefix = find_in(wire, source, *earlier)
    assert prefix is not None
    warm, cold = wire.parse(source, prefix), wire.parse(source)
    assert warm == cold
    known = prefix.request
    count = prefix.count - known.head_size
    assert all(one is other for one, other in zip(warm.body[:count], known.body[:count], strict=True))
    assert compute_chain(warm, TENANT, KEY) == compute_chain(cold, TENANT, KEY)
    # One message is cleared: what is rendered around it is the client's own bytes, and the same from both.
    views = [
        (*read.messages[:3], read.messages[3].with_text("cleared", "clear"), *read.messages[4:])
        for read in (warm, cold)
    ]
    assert wire.render(warm, views[0]) == wire.render(cold, views[1])
    if wire is CHAT_FORMAT:
        return prefix.count
    for number, offset in enumerate(warm.offsets):
        assert source.startswith(cold.find_element(number), offset)
    return known.pieces[prefix.count - 1].container + 1


def test_members_before_and_after_the_messages_may_change():
    one = json.dumps({"model": "m", "messages": LONG, "tools": [tool("Read")], "max_tokens": 7})
    other = json.dumps({"tools": [tool("Read", path="string")] * 9, "user": "é", "messages": LONG + MORE, "seed": 1})
    assert assert_continued(CHAT_FORMAT, other.encode(), one.encode()) == len(LONG)
    assert assert_continued(CHAT_FORMAT, one.encode(), other.encode()) == len(LONG)


def test_the_newest_messages_may_change():
    """Clients move cache markers with every request."""
    marked = [*LONG[:-1], {**LONG[-1], "content": [{"type": "text", "text": "x", "cache_control": {}}]}]
    assert assert_continued(CHAT_FORMAT, body(LONG + MORE), body(marked)) == len(LONG) - 1


@pytest.mark.parametrize(("before", "after"), [("gpt-5", "claude-5"), ("claude-5", "gpt-5")])
def test_whether_reasoning_is_bound_follows_from_the_request_itself(before, after):
    """A client may change the model in the middle of a conversation."""
    signed = {"role": "assistant", "content": "I see.", "reasoning_details": [{"signature": "abc"}]}
    assert_continued(
        CHAT_FORMAT,
        body([*LONG[:2], signed, *LONG[2:], *MORE], model=after),
        body([*LONG[:2], signed, *LONG[2:]], model=before),
    )
    assert_continued(CHAT_FORMAT, body(LONG + MORE, model="claude-5"), body([*LONG, signed], model="claude-5"))


def test_of_an_old_message_that_changed_nothing_is_found():
    edited = [LONG[0], *user("Break it."), *LONG[2:]]
    assert find_in(CHAT_FORMAT, body(edited + MORE), body(LONG)) is None
    assert find_in(CHAT_FORMAT, body(LONG[: -CHANGING_MESSAGES - 1]), body(LONG)) is None
    assert find_in(CHAT_FORMAT, body([LONG[0]]), body([LONG[0]])) is None


def test_bytes_that_are_no_text_are_not_understood():
    source = body(LONG + assistant("é")).replace(b'"\xc3\xa9"', b'"\xff"')
    prefix = find_in(CHAT_FORMAT, source, body(LONG))
    assert prefix is not None
    assert CHAT_FORMAT.parse(source, prefix) is None


STYLES = st.fixed_dictionaries({"indent": st.sampled_from([None, 1, "\t"]), "ensure_ascii": st.booleans()})


@each_api
def test_only_elements_after_the_known_ones_are_parsed(api):
    count = len(json.loads(api.write(LONG))[api.items])
    assert assert_continued(api.wire, api.write(LONG + MORE), api.write(LONG)) == count
    assert assert_continued(api.wire, api.write(LONG), api.write(LONG)) == count


@each_other_api
def test_another_system_prompt_and_other_members_do_not_matter(api):
    """Claude Code's has a line that is another one with each request."""
    other = [{"role": "system", "content": "You are another."}, *LONG[1:], *MORE]
    assert assert_continued(api.wire, api.write(other, temperature=1), api.write(LONG)) > 10
    assert assert_continued(api.wire, api.write(LONG[1:] + MORE), api.write(LONG)) > 10
    assert assert_continued(api.wire, api.write(LONG + MORE, user="u"), api.write(LONG[1:])) > 10


@each_other_api
def test_an_answer_that_continues_is_parsed_again(api):
    """In Responses, items of the model behind each other are one message."""
    begun, gone_on = LONG + assistant("I see."), LONG + assistant("I see.") + assistant("And I know.") + MORE
    count = len(json.loads(api.write(LONG))[api.items])
    assert assert_continued(api.wire, api.write(gone_on), api.write(begun)) == count


def test_reasoning_before_an_unknown_item_stays_with_it():
    items = [*json.loads(responses_api.request(LONG))["input"], {"type": "reasoning", "summary": []}]
    unknown, later = {"type": "local_thing", "id": "x"}, {"type": "message", "role": "user", "content": "Go on."}
    bodies = [json.dumps({"input": [*items, *more]}).encode() for more in ([], [unknown], [unknown, later])]
    assert assert_continued(RESPONSES_FORMAT, bodies[1], bodies[0]) == len(items) - 1
    assert assert_continued(RESPONSES_FORMAT, bodies[2], bodies[1]) == len(items) + 1


def test_a_marked_message_is_read_again():
    """And what the model said before it: a cut is made behind a user's message only."""
    write = messages_api.request
    body = json.loads(write(LONG))
    body["messages"][-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    marked = json.dumps(body).encode()
    assert assert_continued(MESSAGES_FORMAT, write(LONG + MORE), marked) == len(body["messages"]) - 2


@each_api
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-2] + ",]}",
        lambda text: text[:-2] + ",,{}]}",
        lambda text: text[:-1],
        lambda text: text + " x",
        lambda text: text[:-2] + ', {"role": 1}]}',
        lambda text: text[:-2] + ", 5]}",
        lambda text: text[:-1] + ', "a": NaN}',
        lambda text: text[:-2] + ', {"role": "user", "content": "\\ud800"}]}',
        lambda text: '{"metadata": ' + text + ", " + text[1:],
        lambda text: text.replace("[{", "[\n\t{", 1),
        lambda text: text[:-2] + '], "NAME": []}',
        lambda text: '{"metadata": {"NAME": ' + text[text.index("[") : -1] + '}, "NAME": [{"role": "user"}]}',
        lambda text: '{"metadata": {"NAME": ' + text[text.index("[") : -1] + "}, " + text[1:],
        lambda text: text.replace('"NAME"', '"ESCAPED"'),
        lambda text: text.replace('{"model"', '{"a": "\\"NAME\\": [", "model"'),
        lambda text: '{"NAME":' + text[text.index("[") :],
    ],
)
def test_other_json_around_known_elements_is_read_as_without_them(api, change):
    name = api.items
    known = json.dumps({"model": "m", "NAME": json.loads(api.write(LONG))[name]})
    escaped = f"\\u{ord(name[0]):04x}{name[1:]}"
    source = change(known).replace("NAME", name).replace("ESCAPED", escaped).encode()
    prefix = find_in(api.wire, source, known.replace("NAME", name).encode())
    assert api.wire.parse(source, prefix) == api.wire.parse(source)


@each_api
@given(st.tuples(any_history, any_history), st.integers(0, 20), STYLES)
def test_any_history_is_read_alike(api, histories, cut, style):
    messages, others = histories

    def encode(history, **more):
        value = {**json.loads(api.write(history)), **more}
        return json.dumps(value, **style).encode()

    source = encode(messages, user="é", x=10**30)
    for earlier in (messages, messages[:-1], messages[:cut] + others[1:], messages + others[1:]):
        known = api.wire.parse(encode(earlier)) if earlier else None
        if known is not None:
            prefix = find_prefix(known.without_source(), source, api.wire.find_first_message(source))
            assert api.wire.parse(source, prefix) == api.wire.parse(source)


def mark_newest(write):
    """The body as agents send it that mark where the upstream shall cache: at the newest message, each time."""

    def write_marked(history, **more):
        value = json.loads(write(history, **more))
        content = value["messages"][-1]["content"] if value["messages"] else None
        if isinstance(content, list) and content:
            content[-1]["cache_control"] = {"type": "ephemeral"}
        return json.dumps(value).encode()

    return write_marked


FORMATS = [
    (CHAT_FORMAT, body),
    (CHAT_FORMAT, mark_newest(body)),
    (MESSAGES_FORMAT, messages_api.request),
    (MESSAGES_FORMAT, mark_newest(messages_api.request)),
    (RESPONSES_FORMAT, responses_api.request),
]


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("wire", "write"), FORMATS, ids=["chat", "chat, marked", "Messages", "Messages, marked", "Responses"]
)
@given(legal, st.one_of(CUTTERS, SETTLED))
def test_any_history_leaves_as_it_does_from_a_worker_that_remembers_nothing(wire, write, history, make):
    warm, cold = (make(wire=wire, write=write, known=known) for known in (KnownRequests(), None))
    for turn in turns(history):
        assert warm.send(turn).left == cold.send(turn).left
