"""A body whose history begins with known messages is read as it is without that knowledge."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.messages import chain
from proxy.wire.chat import find_first_message, find_prefix, parse
from proxy.wire.chat.requests import CHANGING_MESSAGES
from tests.support.histories import any_history
from tests.support.messages import KEY, TENANT, body, call, history, says, system, tool, user

LONG = history(system("You help."), user("Mend it."), *(call("Read", path=f"{n}.py", out=f"{n} é") for n in range(9)))
MORE = history(*(call("Bash", command=f"ls {n}") for n in range(2)))


def read_warm(source, *earlier):
    """The request as it is read by one who has read the earlier bodies; None where nothing of them is found in it."""
    found = [find_prefix(parse(each), source, find_first_message(source)) for each in earlier]
    prefix = max(filter(None, found), key=lambda prefix: prefix.count, default=None)
    return None if prefix is None else (parse(source, prefix), prefix.count)


def assert_read_alike(source, *earlier):
    found = read_warm(source, *earlier)
    assert found is not None
    assert found[0] == parse(source)
    return found[1]


def test_only_what_follows_is_read():
    assert assert_read_alike(body(LONG + MORE), body(LONG)) == len(LONG)
    assert assert_read_alike(body(LONG), body(LONG)) == len(LONG)


def test_what_is_known_is_shared_and_not_read_again():
    known, source = parse(body(LONG)), body(LONG + MORE)
    links = chain(known, TENANT, KEY)
    warm = parse(source, find_prefix(known, source, find_first_message(source)))
    assert all(one is other for one, other in zip(warm.messages, known.messages, strict=False))
    assert chain(warm, TENANT, KEY) == chain(parse(source), TENANT, KEY)
    assert chain(warm, TENANT, KEY)[: len(links)] == links


def test_what_stands_before_and_behind_the_messages_may_change():
    one = json.dumps({"model": "m", "messages": LONG, "tools": [tool("Read")], "max_tokens": 7})
    other = json.dumps({"tools": [tool("Read", path="string")] * 9, "user": "é", "messages": LONG + MORE, "seed": 1})
    assert assert_read_alike(other.encode(), one.encode()) == len(LONG)
    assert assert_read_alike(one.encode(), other.encode()) == len(LONG)


def test_the_newest_messages_may_change():
    """Clients move cache markers with every request."""
    marked = [*LONG[:-1], {**LONG[-1], "content": [{"type": "text", "text": "x", "cache_control": {}}]}]
    assert assert_read_alike(body(LONG + MORE), body(marked)) == len(LONG) - 1


def test_of_an_old_message_that_changed_nothing_is_found():
    edited = [LONG[0], *user("Break it."), *LONG[2:]]
    assert read_warm(body(edited + MORE), body(LONG)) is None
    assert read_warm(body(LONG[: -CHANGING_MESSAGES - 1]), body(LONG)) is None
    assert read_warm(body([LONG[0]]), body([LONG[0]])) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("]}", ",]}"),
        lambda text: text.replace("]}", ",,{}]}"),
        lambda text: text.replace("]}", "}"),
        lambda text: text.replace("]}", "]} x"),
        lambda text: text.replace("]}", ', {"role": 1}]}'),
        lambda text: text.replace("]}", '], "messages": []}'),
        lambda text: text.replace("]}", '], "a": NaN}'),
        lambda text: text.replace("]}", ', {"role": "user", "content": "\\ud800"}]}'),
        lambda text: '{"metadata": {"messages": ' + text[text.index("[") : -1] + '}, "messages": [{"role": "user"}]}',
        lambda text: '{"metadata": {"messages": ' + text[text.index("[") : -1] + "}, " + text[1:],
        lambda text: text.replace('"messages"', '"mess\\u0061ges"'),
        lambda text: text.replace('{"model"', '{"a": "\\"messages\\": [", "model"'),
        lambda text: text.replace("[{", "[\n\t{"),
        lambda text: '{"messages":' + text[text.index("[") :],
    ],
)
def test_other_json_around_known_messages_is_read_as_without_them(change):
    known = body(LONG).decode()
    source = change(known).encode()
    first = find_first_message(source)
    prefix = find_prefix(parse(known.encode()), source, first) if first >= 0 else None
    assert parse(source, prefix) == parse(source)


def test_bytes_that_are_no_text_are_not_understood():
    source = body(LONG + says("é")).replace(b'"\xc3\xa9"', b'"\xff"')
    prefix = find_prefix(parse(body(LONG)), source, find_first_message(source))
    assert prefix is not None
    assert parse(source, prefix) is None


@given(any_history, any_history, st.integers(0, 20), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_any_history_is_read_alike(messages, others, cut, indent, escape):
    def encode(history, **more):
        value = {"model": "m", **more, "messages": history, "x": 10**30}
        return json.dumps(value, indent=indent, ensure_ascii=escape).encode()

    source = encode(messages, tools=[tool("Read")])
    for earlier in (messages, messages[:-1], messages[:cut] + others[1:], messages + others[1:]):
        if earlier:
            prefix = find_prefix(parse(encode(earlier)), source, find_first_message(source))
            assert parse(source, prefix) == parse(source)
