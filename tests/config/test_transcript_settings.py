"""What can be set about transcripts, as people write it."""

import pytest

from proxy.config import Config, InvalidConfig, load


def read(tmp_path, text) -> Config:
    (tmp_path / "proxy.yaml").write_text(f"transcripts: {{{text}}}\n")
    return load(tmp_path / "proxy.yaml", {}).config


@pytest.mark.parametrize(("written", "kept"), [("off", "off"), ('"off"', "off"), ("all", "all"), ("lossy", "lossy")])
def test_off_needs_no_quotes(tmp_path, written, kept):
    assert read(tmp_path, f"keep: {written}").transcripts.keep == kept


def test_redaction_is_on_unless_it_is_off(tmp_path):
    assert Config().transcripts.redact
    assert not read(tmp_path, "redact: off").transcripts.redact


def test_a_pattern_that_could_be_slow_is_refused_with_its_place_and_a_reason(tmp_path):
    with pytest.raises(InvalidConfig) as refused:
        read(tmp_path, 'patterns: ["corp-[0-9]{8}", "(a+)+"]')
    (fault,) = refused.value.faults
    assert fault.path == "transcripts.patterns.1"
    assert "one of * + {n,}" in fault.message


def test_originals_are_below_the_state_unless_they_have_a_folder_of_their_own(tmp_path):
    assert str(Config().originals) == "state/originals"
    assert str(read(tmp_path, "dir: /somewhere").originals) == "/somewhere"


AFAR = {"transcripts": {"dir": "s3://bucket/originals"}}


def load_settings(tmp_path, values, environ):
    file = tmp_path / "proxy.yaml"
    file.write_text(str(values))
    return load(file, environ).config


@pytest.mark.parametrize(
    ("place", "environ"), [({"dir": "s3://bucket", "key": "env:K"}, {"K": "AKIA"}), ({"dir": "gs://"}, {})]
)
def test_an_object_store_that_cannot_be_opened_is_reported_at_start(tmp_path, place, environ):
    with pytest.raises(InvalidConfig, match="transcripts"):
        load_settings(tmp_path, {"transcripts": place}, environ)


def test_without_a_key_the_credentials_are_those_of_a_role(tmp_path):
    assert load_settings(tmp_path, AFAR, {}).transcripts.key is None
