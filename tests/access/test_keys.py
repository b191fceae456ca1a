"""Team keys: shown once, kept as a hash, found by a public id."""

import pytest

from proxy.access.records import TeamKey, compute_digest, create_team_key, find_public_id

NOW = 1_800_000_000.0


def test_a_key_is_known_by_its_public_id_and_by_nothing_else():
    text, key = create_team_key("red", NOW)
    assert find_public_id(text) == key.id
    assert key.matches(text)
    assert text.split("-", 2)[2] not in repr(key)
    assert text.startswith("cp-")


def test_no_two_keys_are_alike():
    made = [create_team_key("red", NOW) for _ in range(100)]
    assert len({text for text, _ in made}) == len({key.id for _, key in made}) == 100


@pytest.mark.parametrize(
    "change", [str.upper, lambda text: text[:-1], lambda text: text + "a", lambda text: text[:-1] + "_"]
)
def test_another_text_is_another_key(change):
    text, key = create_team_key("red", NOW)
    assert change(text) == text or not key.matches(change(text))


@pytest.mark.parametrize("text", ["", "cp-", "sk-123", "cp-0123456789-short", "cp-XYZ3456789-" + "a" * 32, "é" * 46])
def test_a_text_without_the_form_of_a_key_is_none(text):
    assert find_public_id(text) is None


def test_odd_bytes_have_a_hash_too():
    assert compute_digest("cp-\udcff") != compute_digest("cp-")


def test_a_hash_in_other_characters_matches_nothing():
    assert not TeamKey("a", "red", "é", NOW).matches("cp-x")


def test_a_key_opens_until_it_is_revoked_or_has_run_out():
    key = TeamKey("a", "red", "", NOW, expires=NOW + 10)
    assert key.why_invalid(NOW + 9) == ""
    assert key.why_invalid(NOW + 10) == "expired"
    assert TeamKey("a", "red", "", NOW, revoked=NOW).why_invalid(NOW) == "revoked"
    assert TeamKey("a", "red", "", NOW).why_invalid(NOW * 2) == ""
