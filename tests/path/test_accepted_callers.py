"""Known callers: a team, and any caller that an upstream has accepted."""

from proxy.foundation.lru import ENTRY_BYTES
from proxy.serve import request_context
from proxy.serve.request_context import AcceptedCallers
from proxy.upstream.client import Call
from proxy.wire.http_head import Caller


def call(key="sk-a", query="", caller=None):
    headers = (("authorization", key), ("accept", "*/*"))
    return Call("POST", "/chat/completions", query, headers, b"", caller or Caller())


def test_a_team_is_known_and_any_other_caller_from_its_first_accepted_request_on():
    known = AcceptedCallers()
    assert known.knows(call(caller=Caller("red")))
    assert not known.knows(call())
    known.add(call())
    others = [call(), call("sk-b"), call(query="key=a")]
    assert [known.knows(other) for other in others] == [True, False, False]


def test_so_many_are_remembered_and_the_others_are_not_forgotten_with_the_oldest(monkeypatch):
    monkeypatch.setattr(request_context, "REMEMBERED_MAX_BYTES", 100 * ENTRY_BYTES)
    known = AcceptedCallers()
    for number in range(101):
        known.add(call(f"sk-{number}"))
    assert not known.knows(call("sk-0"))
    assert all(known.knows(call(f"sk-{number}")) for number in range(1, 101))
