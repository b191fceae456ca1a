"""What a request may ask of the proxy."""

import pytest

from proxy.foundation.errors import BadRequest
from proxy.serve.request_context import MODES, RequestOptions


def test_without_options_the_policy_decides():
    assert RequestOptions.read(()) == RequestOptions("auto", "", "")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("spelt", [str.lower, str.upper, " {} ".format])
def test_each_mode_is_understood_however_it_is_spelt(mode, spelt):
    assert RequestOptions.read((("X-Compaction", spelt(mode)),)).mode == mode


def test_an_empty_word_is_none():
    assert RequestOptions.read((("x-compaction", ""),)).mode == "auto"


@pytest.mark.parametrize("word", ["on", "none", "true", "auto,off", "offf"])
def test_any_other_mode_is_a_client_error_that_lists_the_valid_ones(word):
    with pytest.raises(BadRequest, match="one of auto, off, force, observe, bypass") as refused:
        RequestOptions.read((("x-compaction", word),))
    assert refused.value.status == 400


def test_the_refusal_does_not_quote_the_value():
    with pytest.raises(BadRequest) as refused:
        RequestOptions.read((("x-compaction", "sk-canary"),))
    assert "canary" not in refused.value.message


def test_focus_and_conversation_are_taken_word_for_word():
    headers = (("X-Compaction-Focus", "Dates & names"), ("x-conversation-id", "Run 7"))
    assert RequestOptions.read(headers) == RequestOptions("auto", "Dates & names", "Run 7")
