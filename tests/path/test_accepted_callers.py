"""Known callers: a team, and any caller that an upstream has accepted."""

from proxy.foundation.lru import ENTRY_BYTES
from proxy.serve import request_context
from proxy.serve.request_context import AcceptedCallers, compute_fingerprint
from proxy.upstream.client import Call
from proxy.wire.http_head import Caller

UNIDENTIFIED = Caller()


def call(key="sk-a", caller=UNIDENTIFIED):
    return Call("POST", "/chat/completions", "", (("authorization", key), ("accept", "*/*")), b"", caller)


def is_known(known, request):
    return known.knows(request.caller, compute_fingerprint(request))


def test_a_new_caller_is_known_from_its_first_accepted_request_on():
    known = AcceptedCallers()
    assert not is_known(known, call())
    known.add(compute_fingerprint(call()))
    assert is_known(known, call())
    assert not is_known(known, call("sk-b"))


def test_callers_with_different_configured_headers_are_separated():
    known = AcceptedCallers()
    one, other = (Call("POST", "/chat/completions", f"key={key}", (), b"") for key in "ab")
    known.add(compute_fingerprint(one))
    assert is_known(known, one)
    assert not is_known(known, other)


def test_a_team_is_known():
    assert is_known(AcceptedCallers(), call(caller=Caller("red")))


def test_so_many_are_remembered_and_the_others_are_not_forgotten_with_the_oldest(monkeypatch):
    monkeypatch.setattr(request_context, "REMEMBERED_MAX_BYTES", 100 * ENTRY_BYTES)
    known = AcceptedCallers()
    for number in range(101):
        known.add(compute_fingerprint(call(f"sk-{number}")))
    assert not is_known(known, call("sk-0"))
    assert all(is_known(known, call(f"sk-{number}")) for number in range(1, 101))
