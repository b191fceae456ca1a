"""Who is known: a team, and whoever an upstream has accepted something of."""

from proxy.compaction.windows import REMEMBERED_MAX, AcceptedCallers
from proxy.upstream import Call
from proxy.wire.caller import ANYBODY, Caller


def call(key="sk-a", caller=ANYBODY):
    return Call("POST", "/chat/completions", "", (("authorization", key), ("accept", "*/*")), b"", caller)


def test_a_stranger_is_known_from_his_first_accepted_request_on():
    known = AcceptedCallers()
    assert call() not in known
    known.add(call())
    assert call() in known
    assert call("sk-b") not in known


def test_strangers_of_another_header_are_told_apart():
    known = AcceptedCallers()
    one, other = (Call("POST", "/chat/completions", f"key={key}", (), b"") for key in "ab")
    known.add(one)
    assert one in known
    assert other not in known


def test_a_team_is_known():
    assert call(caller=Caller("red")) in AcceptedCallers()


def test_so_many_are_remembered_and_no_more():
    known = AcceptedCallers()
    for number in range(REMEMBERED_MAX + 1):
        known.add(call(f"sk-{number}"))
    assert call("sk-0") not in known
    assert call(f"sk-{REMEMBERED_MAX}") in known
