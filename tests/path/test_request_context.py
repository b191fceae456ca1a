"""What a request may ask of the proxy, whose it is, which policy applies to it, and who gets marks and a key."""

import json
from pathlib import Path

import pytest

from proxy.config.policies import Occasion, Policy
from proxy.config.settings import Config, Upstream
from proxy.foundation.errors import BadRequest
from proxy.history.identity import Identity
from proxy.serve.request_context import (
    ANONYMOUS,
    MODES,
    Placement,
    PolicySelector,
    RefusedOptions,
    RequestOptions,
    choose_placement,
    compute_rollout_position,
    find_tenant,
    make_window_scope,
)
from proxy.upstream.client import Call
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.http_head import ApiPath, Caller
from proxy.wire.responses_api import RESPONSES_FORMAT
from tests.support import responses_api
from tests.support.messages import assistant, body, request, tool, user
from tests.support.written_steps import assert_case, list_cases, list_given

PLACEMENTS = Path(__file__).parent / "golden" / "placements"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("spelt", [str.lower, str.upper, " {} ".format])
def test_each_mode_is_understood_however_it_is_spelt(mode, spelt):
    assert RequestOptions.read((("X-Compaction", spelt(mode)),)).mode == mode


@pytest.mark.parametrize("word", ["on", "none", "true", "auto,off", "sk-canary"])
def test_any_other_mode_is_a_client_error_that_lists_the_valid_ones_and_does_not_quote_it(word):
    with pytest.raises(BadRequest, match="one of auto, off, force, observe, bypass") as refused:
        RequestOptions.read((("x-compaction", word),))
    assert refused.value.status == 400
    assert "canary" not in refused.value.message


FOCUSED = (("X-Compaction-Focus", "Dates & names"), ("x-conversation-id", "Run 7"))


@pytest.mark.parametrize(
    ("headers", "options"),
    [
        ((), RequestOptions("auto", "", "")),
        ((("x-compaction", ""),), RequestOptions("auto", "", "")),
        (FOCUSED, RequestOptions("auto", "Dates & names", "Run 7")),
    ],
)
def test_without_a_word_the_policy_decides_and_focus_and_conversation_are_taken_word_for_word(headers, options):
    assert RequestOptions.read(headers) == options


@pytest.mark.parametrize(("focus", "used"), [("The API.", "The API."), ("", "Dates & names")])
def test_the_focus_of_a_command_goes_before_that_of_the_header(focus, used):
    assert RequestOptions.read(FOCUSED).with_force(focus) == RequestOptions("force", used, "Run 7")


SECRET, OTHER_SECRET = b"s" * 32, b"o" * 32
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
        tenant((), OTHER_SECRET, red),
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
    tenants = {tenant(bearer("sk-a"), SECRET), tenant(bearer("sk-b"), SECRET), tenant(bearer("sk-a"), OTHER_SECRET)}
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


CONFIG = Config(
    policies={"few": {}, "more": {}, "rest": {}},
    upstreams=[{"policy": "rest"}],
    attachments=[{"policy": "few", "rollout": 5}, {"policy": "more", "rollout": 10}],
)


def position_of(request, tenant="team.red", conversation=""):
    return compute_rollout_position(request, tenant, SECRET, conversation)


@pytest.mark.parametrize(
    ("place", "policy"), [(0, "few"), (4.99, "few"), (5, "more"), (9.99, "more"), (10, "rest"), (100, "rest")]
)
def test_each_conversation_gets_the_first_policy_that_reaches_so_far(place, policy):
    offer = PolicySelector(CONFIG, {}).select(Occasion(upstream="default"))
    assert offer.choose(place).rules.policy == policy
    assert len(offer.offers) == 3


def test_a_conversation_keeps_its_rollout_position_from_its_first_message_on():
    begun = request(user("Go."))
    assert position_of(begun) == position_of(request(user("Go."), assistant("Gone."), user("And now?")))
    others = [position_of(begun, "team.blue"), position_of(begun, conversation="another")]
    assert len({position_of(begun), *others, position_of(request(user("Come.")))}) == 4
    assert position_of(None) == 100


def test_a_rollout_position_is_the_same_in_every_process():
    below = sum(position_of(request(user(f"Task {number}."))) < 20 for number in range(500))
    assert 60 < below < 140


def test_long_words_of_a_client_are_answered_and_not_remembered():
    offers = PolicySelector(CONFIG, {})
    for number in range(50):
        offers.select(Occasion(upstream="default", model="m" * 256 + str(number)))
    assert offers._cached.cache_info().currsize == 0
    offers.select(Occasion(upstream="default", model="gpt-4o", tag="nightly"))
    assert offers._cached.cache_info().currsize == 1


def choose(*, policy=None, mode="auto", url="https://api.openai.com/v1", path=ApiPath.CHAT, switch="on", refused=()):
    call = Call("POST", path, "", (), b"", Caller(switch=switch))
    scope, refused_options = make_window_scope(Upstream(base_url=url), "gpt-5.1", call), RefusedOptions()
    for option in refused:
        refused_options.add(scope, option)
    return choose_placement(call, Policy(**(policy or {})), RequestOptions(mode), scope, refused_options)


def judge(case):
    """What is not as usual of a request, and the marks and the key that it gets."""
    (line,) = list_given(case)
    placement = choose(**json.loads(line))
    return f"{line}\n= marks {placement.cache_marks}, key {placement.cache_key}"


@pytest.mark.parametrize(("sentence", "case"), list_cases(PLACEMENTS))
def test_a_request_gets_the_marks_and_the_key_of_its_golden_file(sentence, case):
    assert_case(PLACEMENTS, case, judge(case))


@pytest.mark.parametrize(("wire", "write"), [(CHAT_FORMAT, body), (RESPONSES_FORMAT, responses_api.request)])
@pytest.mark.parametrize("more", [{}, {"tools": []}, {"tools": [tool("Read")]}])
def test_a_request_without_tools_gets_no_key_for_none_continues_it(wire, write, more):
    sent = write(user("Go."), **more)
    left, options = Placement(cache_key="on").place(wire, wire.parse(sent), sent)
    assert (options, left != sent) == ((("cache-key",), True) if more.get("tools") else ((), False))
