"""What can be set about transcripts, as people write it."""

import pytest

from proxy.config.settings import Config


@pytest.mark.parametrize(("written", "kept"), [("off", "off"), ('"off"', "off"), ("all", "all"), ("lossy", "lossy")])
def test_off_needs_no_quotes(load_text, written, kept):
    assert load_text(f"transcripts: {{keep: {written}}}").transcripts.keep == kept


def test_redaction_is_on_unless_it_is_off(load_text):
    assert Config().transcripts.redact
    assert not load_text("transcripts: {redact: off}").transcripts.redact


def test_originals_are_below_the_state_unless_they_have_a_folder_of_their_own(load_text):
    assert str(Config().originals) == "state/originals"
    assert str(load_text("transcripts: {dir: /somewhere}").originals) == "/somewhere"


def test_without_a_key_the_credentials_are_those_of_a_role(load_text):
    assert load_text("transcripts: {dir: s3://bucket/originals}").transcripts.key is None
