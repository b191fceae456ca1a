"""Who is known: a team, and whoever an upstream has accepted something of."""

from proxy.compaction import context
from proxy.compaction.context import AcceptedCallers
from proxy.lru import ENTRY_BYTES
from proxy.upstream import Call
from proxy.wire.http import ANYBODY, Caller


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


def test_so_many_are_remembered_and_the_others_are_not_forgotten_with_the_oldest(monkeypatch):
    monkeypatch.setattr(context, "REMEMBERED_MAX_BYTES", 100 * ENTRY_BYTES)
    known = AcceptedCallers()
    for number in range(101):
        known.add(call(f"sk-{number}"))
    assert call("sk-0") not in known
    assert all(call(f"sk-{number}") in known for number in range(1, 101))
