"""Team keys: shown once, kept as a hash, found by a public id."""

import inspect

import pytest

from proxy.access.admin_key import is_admin_key
from proxy.access.authentication import Admitted
from proxy.access.registry import Registry, TeamKey, compute_digest, create_team_key, find_public_id
from proxy.admin import routes
from proxy.wire.http_head import Caller

NOW = 1_800_000_000.0


def test_a_key_is_known_by_its_public_id_and_its_secret_is_not_kept():
    text, key = create_team_key("red", NOW)
    assert find_public_id(text) == key.id
    assert key.matches(text)
    assert text.startswith(f"cp-{key.id}-")
    document = Registry().with_key(key).to_bytes().decode()
    assert key.id in document
    assert text.removeprefix(f"cp-{key.id}-") not in repr(key) + document


@pytest.mark.parametrize(
    "change", [str.upper, lambda text: text[:-1], lambda text: text + "a", lambda text: text[:-1] + "_"]
)
def test_another_text_is_another_key(change):
    text, key = create_team_key("red", NOW)
    assert change(text) == text or not key.matches(change(text))


@pytest.mark.parametrize("text", ["", "cp-", "sk-123", "cp-0123456789-short", "cp-XYZ3456789-" + "a" * 32, "é" * 46])
def test_a_text_without_the_form_of_a_key_is_none(text):
    assert find_public_id(text) is None


def test_the_hash_of_a_key_stays_the_same_and_odd_bytes_have_one_too():
    """Or else no key would open after an upgrade."""
    assert compute_digest("cp-") == "f6a5847cddac1c3a6557d5245afcd7493373a9972266425d873905769b59e9d2"
    assert compute_digest("cp-\udcff") != compute_digest("cp-")


def test_a_hash_in_other_characters_matches_nothing():
    assert not TeamKey("a", "red", "é", NOW).matches("cp-x")


@pytest.mark.parametrize("compare", [TeamKey.matches, is_admin_key, routes.is_session])
def test_a_secret_is_compared_in_constant_time(compare):
    """No test can time it on a busy machine, so the call itself is looked for."""
    assert "return hmac.compare_digest(" in inspect.getsource(compare)


def test_what_a_log_might_print_of_an_admitted_request_holds_no_credential():
    admitted = Admitted(Caller("red", identified_by=(("x-user", "alice"),)), (("authorization", "Bearer sk-secret"),))
    assert "sk-secret" not in repr(admitted)
    assert "alice" not in repr(admitted)
