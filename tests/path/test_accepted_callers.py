"""Known callers: a team, and any caller that an upstream has accepted."""

from proxy.foundation.lru import ENTRY_BYTES
from proxy.serve import request_context
from proxy.serve.request_context import AcceptedCallers, compute_fingerprint
from proxy.upstream.client import Call
from proxy.wire.http_head import Caller


def call(key="sk-a", query="", caller=None):
    headers = (("authorization", key), ("accept", "*/*"))
    return Call("POST", "/chat/completions", query, headers, b"", caller or Caller())


def is_known(known, request):
    return known.knows(request.caller, compute_fingerprint(request))


def test_a_team_is_known_and_any_other_caller_from_its_first_accepted_request_on():
    known = AcceptedCallers()
    assert is_known(known, call(caller=Caller("red")))
    assert not is_known(known, call())
    known.add(compute_fingerprint(call()))
    others = [call(), call("sk-b"), call(query="key=a")]
    assert [is_known(known, other) for other in others] == [True, False, False]


def test_so_many_are_remembered_and_the_others_are_not_forgotten_with_the_oldest(monkeypatch):
    monkeypatch.setattr(request_context, "REMEMBERED_MAX_BYTES", 100 * ENTRY_BYTES)
    known = AcceptedCallers()
    for number in range(101):
        known.add(compute_fingerprint(call(f"sk-{number}")))
    assert not is_known(known, call("sk-0"))
    assert all(is_known(known, call(f"sk-{number}")) for number in range(1, 101))
