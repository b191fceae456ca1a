"""Authentication: which callers are admitted, as which team, and which headers are removed."""

import pytest

from proxy.access.authentication import Authenticator
from proxy.access.registry import EVERYBODY, Registry, create_team_key
from proxy.config.settings import Access, Config, Team
from proxy.foundation.errors import Unauthorized, UnknownTeam, UntrustedGateway
from proxy.wire.http_head import Caller

NOW = 1_800_000_000.0
HERE, AWAY = "127.0.0.1", "203.0.113.9"
TEXT, KEY = create_team_key("red", NOW)
KNOWN = Registry().with_key(KEY)
TEAMS = {"red": Team(), "blue": Team()}


def authenticator(teams=None, **access):
    return Authenticator(Config(access=Access(**access), teams=teams or {}))


OPEN, KEYED = authenticator(), authenticator(TEAMS)
SPOKEN = authenticator(TEAMS, team_header="X-Team")


def bearer(text):
    return (("Authorization", f"Bearer {text}"), ("accept", "*/*"))


def admit(door, headers, registry=KNOWN, peer=HERE, now=NOW, *, query=""):
    return door.admit(headers, peer, registry, now, query)


def test_without_teams_every_caller_passes_with_its_own_credential():
    admitted = admit(OPEN, bearer("sk-any"))
    assert admitted.caller == Caller()
    assert admitted.headers == bearer("sk-any")
    assert admit(OPEN, (("x-team", "blue"),)).caller == Caller()


def test_headers_named_by_the_operator_separate_callers_without_a_key():
    door = authenticator(tenant_headers=("X-Forwarded-User",))
    admitted = admit(door, (*bearer("sk-any"), ("x-forwarded-user", "alice")))
    assert admitted.caller.identified_by == (("x-forwarded-user", "alice"),)
    assert admitted.headers == (*bearer("sk-any"), ("x-forwarded-user", "alice"))
    assert admit(door, bearer("sk-any")).caller == Caller()


@pytest.mark.parametrize(
    "headers", [bearer(TEXT), (("authorization", f"bearer {TEXT}"),), (("api-key", TEXT),), (("x-api-key", TEXT),)]
)
def test_a_team_key_opens_however_a_client_shows_it(headers):
    assert admit(KEYED, headers).caller == Caller("red", KEY.id)


def test_a_team_key_goes_no_further():
    headers = (*bearer(TEXT), ("cookie", "a=b"), ("x-goog-api-key", "k"))
    assert admit(KEYED, headers).headers == (("accept", "*/*"),)


@pytest.mark.parametrize(
    "headers", [(), bearer(""), bearer("sk-provider"), bearer(TEXT[:-1]), bearer("cp-" + "é" * 43)]
)
def test_where_there_are_teams_nothing_else_opens(headers):
    with pytest.raises(Unauthorized) as refused:
        admit(KEYED, headers)
    assert refused.value.status == 401
    assert "keys create" in refused.value.message
    assert "sk-provider" not in refused.value.message


def test_a_key_of_the_right_id_with_another_secret_does_not_open():
    with pytest.raises(Unauthorized, match="unknown team key"):
        admit(KEYED, bearer(TEXT[:-32] + "a" * 32))


def test_a_revoked_key_and_one_that_has_run_out_say_so():
    with pytest.raises(Unauthorized, match=f"{KEY.id} is revoked"):
        admit(KEYED, bearer(TEXT), KNOWN.with_key_revoked(KEY.id, NOW))
    text, key = create_team_key("red", NOW, days=5 / 86_400)
    known = Registry().with_key(key)
    assert admit(KEYED, bearer(text), known).caller.team == "red"
    with pytest.raises(Unauthorized, match="expired"):
        admit(KEYED, bearer(text), known, now=NOW + 5)


def test_a_key_of_a_team_that_is_no_more_does_not_open():
    with pytest.raises(UnknownTeam):
        admit(authenticator({"blue": Team()}), bearer(TEXT))


def test_a_trusted_gateway_names_the_team_and_its_header_goes_no_further():
    admitted = admit(SPOKEN, (("x-team", "blue"), *bearer("sk-gateway")))
    assert admitted.caller == Caller("blue")
    assert admitted.headers == bearer("sk-gateway")


def test_of_a_gateways_request_that_holds_a_key_of_the_proxy_no_credential_goes_further():
    headers = (("x-team", "blue"), *bearer("sk-provider"), ("cookie", "a=b"), ("api-key", TEXT))
    assert admit(SPOKEN, headers).headers == (("accept", "*/*"),)


def test_only_a_trusted_gateway_names_a_team():
    with pytest.raises(UntrustedGateway):
        admit(SPOKEN, (("X-Team", "blue"),), peer=AWAY)
    with pytest.raises(UntrustedGateway):
        admit(SPOKEN, (("X-Team", "blue"),), peer="")


@pytest.mark.parametrize("names", [("X-Team", "x-team"), ("x-team", "X-TEAM")])
def test_a_gateway_that_adds_its_word_to_the_clients_own_is_not_believed(names):
    """It has to replace the header: of two values it is unknown which is the client's."""
    forged = tuple(zip(names, ("red", "blue"), strict=True))
    with pytest.raises(UntrustedGateway, match="more than once"):
        admit(SPOKEN, forged)


def test_an_ipv4_address_in_ipv6_form_is_the_same_address():
    door = authenticator(TEAMS, team_header="x-team", trusted=("10.0.0.0/8",))
    assert admit(door, (("x-team", "blue"),), peer="::ffff:10.1.2.3").caller == Caller("blue")
    with pytest.raises(UntrustedGateway):
        admit(door, (("x-team", "blue"),), peer="::ffff:11.1.2.3")
    with pytest.raises(UntrustedGateway):
        admit(door, (("x-team", "blue"),), peer="2001:db8::1")


_, OTHER_KEY = create_team_key("red", NOW)
ELSEWHERE = Registry().with_key(OTHER_KEY)
ADMIN_KEY = "cpa-" + "Ab_-" * 8
IN_HEADERS = ("authorization", "api-key", "x-api-key", "x-goog-api-key", "cookie", "x-litellm-api-key", "x-custom")


@pytest.mark.parametrize("known", [KNOWN, KNOWN.with_key_revoked(KEY.id, NOW), ELSEWHERE, Registry()])
def test_a_team_key_never_reaches_an_upstream_even_without_teams(known):
    """A replica that was started without its file or with another state: the key must not reach the upstream."""
    with pytest.raises(Unauthorized, match="no `teams`"):
        admit(OPEN, bearer(TEXT), known)
    with pytest.raises(Unauthorized):
        admit(OPEN, (*bearer("sk-provider"), ("api-key", TEXT)), known)


@pytest.mark.parametrize("name", IN_HEADERS)
@pytest.mark.parametrize("key", [TEXT, ADMIN_KEY], ids=["team", "admin"])
@pytest.mark.parametrize("form", ["{}", "Bearer {}", "bearer  {} ", "a=b; key={}; c=d"])
def test_a_key_of_the_proxy_is_refused_in_whatever_header_it_is_sent(name, key, form):
    headers = (*bearer("sk-provider"), (name.title(), form.format(key)))
    with pytest.raises(Unauthorized) as refused:
        admit(OPEN, headers, Registry())
    assert key not in refused.value.message
    for door, more in ((KEYED, (("authorization", f"Bearer {TEXT}"),)), (SPOKEN, (("x-team", "blue"),))):
        assert all(key not in value for _, value in admit(door, (*more, *headers)).headers)


@pytest.mark.parametrize("door", [OPEN, KEYED, SPOKEN])
@pytest.mark.parametrize("query", ["key={}", "beta=true&api_key={}", "key=Bearer+{}", "a={}&key=b"])
@pytest.mark.parametrize(
    "key",
    [TEXT, ADMIN_KEY, TEXT.replace("-", "%2D", 1), "%63" + ADMIN_KEY[1:]],
    ids=["team", "admin", "team, escaped", "admin, escaped"],
)
def test_a_key_of_the_proxy_in_a_url_is_refused(door, query, key):
    with pytest.raises(Unauthorized, match="URL"):
        admit(door, bearer(TEXT if door is KEYED else "sk-provider"), query=query.format(key))


@pytest.mark.parametrize(
    "text",
    [TEXT[:-1], TEXT + "a", "a" + TEXT, "sk-" + ADMIN_KEY, ADMIN_KEY + "-", "cp-0123456789"],
    ids=["shorter", "longer", "within", "another sign", "longer, of an admin", "no secret"],
)
def test_a_text_that_only_resembles_a_key_of_the_proxy_is_a_credential_like_any_other(text):
    assert admit(OPEN, bearer(text), query=f"key={text}").headers == bearer(text)


ANY_TEAM = authenticator(team_header="x-team")


@pytest.mark.parametrize("name", ["", "../red", "a/b", "r" * 65, "röt", ".hidden", "a b"])
def test_a_gateway_names_teams_of_the_list_or_any_valid_one_if_there_is_none(name):
    assert admit(ANY_TEAM, (("x-team", "green"),)).caller == Caller("green")
    for door, team in ((SPOKEN, "green"), (SPOKEN, name), (ANY_TEAM, name)):
        with pytest.raises(UnknownTeam):
            admit(door, (("x-team", team),))


def test_beside_a_gateway_team_keys_open_too():
    assert admit(SPOKEN, bearer(TEXT), peer=AWAY).caller == Caller("red", KEY.id)


def test_a_switched_off_caller_is_marked_as_such():
    assert admit(KEYED, bearer(TEXT), KNOWN.with_switch("red", "off", 1)).caller.switch == "off"
    assert admit(KEYED, bearer(TEXT), KNOWN.with_switch(EVERYBODY, "off", 1)).caller.switch == "off"
    assert admit(KEYED, bearer(TEXT), KNOWN.with_switch("blue", "off", 1)).caller.switch == "on"
    assert admit(OPEN, (), Registry().with_switch(EVERYBODY, "off", 1)).caller.switch == "off"


def test_the_tag_is_what_the_request_says_it_is_for():
    assert admit(OPEN, (("X-Compaction-Tag", "nightly"),)).caller.tag == "nightly"


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.7", [], "10.0.0.7"),
        ("10.0.0.7", ["203.0.113.9"], "203.0.113.9"),
        ("10.0.0.7", ["198.51.100.1, 203.0.113.9, 10.0.0.3"], "203.0.113.9"),
        ("10.0.0.7", ["198.51.100.1", "203.0.113.9:4711"], "203.0.113.9"),
        ("10.0.0.7", ["[2001:db8::7]:443"], "2001:db8::7"),
        ("10.0.0.7", ["unknown, \x1b[2Jforged line"], "10.0.0.7"),
        ("10.0.0.7", ["10.0.0.2, 10.0.0.3"], "10.0.0.2"),
        ("203.0.113.200", ["198.51.100.1"], "203.0.113.200"),
        ("10.0.0.7", [", ".join(["1.2.3.4"] * 5_000 + ["10.0.0.2"] * 20)], "10.0.0.2"),
    ],
)
def test_the_client_is_the_address_that_a_trusted_gateway_names(peer, forwarded, client):
    door = authenticator(trusted=("10.0.0.0/8",))
    headers = tuple(("X-Forwarded-For", value) for value in forwarded)
    assert door.find_client(headers, peer) == client
