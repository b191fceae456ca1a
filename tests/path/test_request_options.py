"""What a request may ask of the proxy."""

import pytest

from proxy.foundation.errors import BadRequest
from proxy.serve.request_context import MODES, RequestOptions


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
