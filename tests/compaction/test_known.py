"""Who is known: a team, and whoever an upstream has accepted something of."""

from proxy.compaction.known import REMEMBERED, Known
from proxy.upstream import Call
from proxy.wire.caller import ANYBODY, Caller


def call(key="sk-a", caller=ANYBODY):
    return Call("POST", "/chat/completions", "", (("authorization", key), ("accept", "*/*")), b"", caller)


def test_a_stranger_is_known_from_his_first_accepted_request_on():
    known = Known()
    assert call() not in known
    known.meet(call())
    assert call() in known
    assert call("sk-b") not in known


def test_strangers_of_another_header_are_told_apart():
    known = Known()
    one, other = (Call("POST", "/chat/completions", f"key={key}", (), b"") for key in "ab")
    known.meet(one)
    assert one in known
    assert other not in known


def test_a_team_is_known():
    assert call(caller=Caller("red")) in Known()


def test_so_many_are_remembered_and_no_more():
    known = Known()
    for number in range(REMEMBERED + 1):
        known.meet(call(f"sk-{number}"))
    assert call("sk-0") not in known
    assert call(f"sk-{REMEMBERED}") in known
