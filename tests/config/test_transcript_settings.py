"""What can be set about transcripts, as people write it."""

import pytest

from proxy.config import Config


@pytest.mark.parametrize(("written", "kept"), [("off", "off"), ('"off"', "off"), ("all", "all"), ("lossy", "lossy")])
def test_off_needs_no_quotes(load_text, written, kept):
    assert load_text(f"transcripts: {{keep: {written}}}").transcripts.keep == kept


def test_redaction_is_on_unless_it_is_off(load_text):
    assert Config().transcripts.redact
    assert not load_text("transcripts: {redact: off}").transcripts.redact


def test_a_pattern_that_could_be_slow_is_refused_with_its_place_and_a_reason(refuse):
    (fault,) = refuse('transcripts: {patterns: ["corp-[0-9]{8}", "(a+)+"]}').faults
    assert fault.path == "transcripts.patterns.1"
    assert "may not repeat a group" in fault.message


def test_originals_are_below_the_state_unless_they_have_a_folder_of_their_own(load_text):
    assert str(Config().originals) == "state/originals"
    assert str(load_text("transcripts: {dir: /somewhere}").originals) == "/somewhere"


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("dir: s3://bucket, key: env:K", "`key` is set without `secret`"),
        ("dir: gs://", "not a place in an object store"),
    ],
)
def test_an_object_store_that_cannot_be_opened_is_reported_at_start(refuse, place, problem):
    assert problem in str(refuse(f"transcripts: {{{place}}}", {"K": "AKIA"}))


def test_without_a_key_the_credentials_are_those_of_a_role(load_text):
    assert load_text("transcripts: {dir: s3://bucket/originals}").transcripts.key is None
