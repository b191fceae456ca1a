"""Whose history it is, and the keys of what is remembered of it."""

from proxy.history.identity import Identity
from proxy.serve.request_context import ANONYMOUS, find_tenant
from proxy.upstream.client import Call
from proxy.wire.http_head import Caller

SECRET, OTHER = b"s" * 32, b"o" * 32
LINKS = (b"\x00" * 20, b"\xab" * 20, b"\xcd" * 20)

UNIDENTIFIED = Caller()


def bearer(key):
    return (("Authorization", f"Bearer {key}"),)


def tenant(headers, secret, caller=UNIDENTIFIED):
    return find_tenant(Call("POST", "/chat/completions", "", headers, b"", caller), secret)


def test_a_team_is_its_own_tenant_whatever_credential_it_shows():
    red, blue = Caller("red"), Caller("blue")
    tenants = {
        tenant(bearer("sk-a"), SECRET, red),
        tenant((), OTHER, red),
        tenant((), SECRET, blue),
        tenant((), SECRET),
    }
    assert tenants == {"team.red", "team.blue", ANONYMOUS}


def test_no_credential_looks_like_a_team():
    assert "." not in tenant(bearer("team.red"), SECRET)


def test_a_tenant_is_the_clients_credential_and_does_not_give_it_away():
    tenants = tenant(bearer("sk-canary"), SECRET)
    assert tenants == tenant((("accept", "*/*"), *bearer("sk-canary")), SECRET)
    assert "canary" not in tenants
    assert tenants.isalnum()


def test_another_credential_or_secret_is_another_tenant():
    tenants = {tenant(bearer("sk-a"), SECRET), tenant(bearer("sk-b"), SECRET), tenant(bearer("sk-a"), OTHER)}
    assert len(tenants | {tenant((("x-api-key", "sk-a"),), SECRET), tenant((("api-key", "sk-c"),), SECRET)}) == 5


def test_without_a_credential_all_are_one():
    assert tenant((), SECRET) == tenant((("authorization", ""),), SECRET) == ANONYMOUS


def test_a_credential_of_odd_bytes_is_one_too():
    assert tenant(bearer("k\udcffé"), SECRET) != ANONYMOUS


def test_a_key_in_the_query_is_a_credential():
    def tenant_of_query(query):
        return find_tenant(Call("POST", "/chat/completions", query, (), b""), SECRET)

    assert len({tenant_of_query("key=a"), tenant_of_query("key=b"), tenant_of_query("key=a&alt=sse"), ANONYMOUS}) == 3
    assert tenant_of_query("alt=sse&api-version=1") == ANONYMOUS


def test_headers_named_by_the_operator_separate_clients():
    alice, bob = (Caller(identified_by=(("x-forwarded-user", name),)) for name in ("alice", "bob"))
    assert len({tenant(bearer("sk-a"), SECRET, caller) for caller in (alice, bob, UNIDENTIFIED)}) == 3
    assert "alice" not in repr(alice)


def test_one_credential_of_version_0_1_keeps_its_tenant():
    """Their blocks are stored under it. Hashed as 0.1 did: the value alone."""
    for name in ("authorization", "api-key", "X-Api-Key"):
        assert tenant(((name, "Bearer sk-a"), ("accept", "*/*")), SECRET) == "2817decc565d4617699ecc6a"
    with_a_balancer = (("authorization", "Bearer sk-a"), ("cookie", "__cf_bm=changes"))
    assert tenant(with_a_balancer, SECRET) == "2817decc565d4617699ecc6a"


def test_no_two_lists_of_credentials_hash_alike():
    shown = [
        (("cookie", "a=1"), ("x-auth-token", "b")),
        (("cookie", "a=1b"), ("x-auth-token", "")),
        (("cookie", "a=1; x-auth-token=b"),),
        (("x-auth-token", "a=1"), ("cookie", "b")),
    ]
    assert len({tenant(headers, SECRET) for headers in shown}) == len(shown)


def test_a_conversation_is_known_by_its_first_message_and_without_one_by_its_owner():
    assert Identity("t", LINKS, "up/gpt-4").conversation == "ab" * 8
    assert Identity("t", LINKS[:1], "up/gpt-4").conversation == "00" * 8


def test_every_key_begins_with_the_tenant_and_no_two_are_alike():
    one, other = Identity("t", LINKS, "up/gpt-4"), Identity("u", LINKS, "up/gpt-4")
    keys = [key for each in (one, other) for key in (*map(each.anchor_key, LINKS), each.scale_key)]
    assert len(set(keys)) == len(keys)
    assert {key.partition("/")[0] for key in keys} == {"t", "u"}
