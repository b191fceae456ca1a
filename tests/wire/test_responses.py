"""OpenAI Responses: which requests hold their whole history."""

import json

import pytest

from proxy.wire.responses import why_relayed
from tests.support.messages import history, user
from tests.support.responses_api import request

TOOL = {"type": "function", "name": "Tell", "parameters": {"properties": {"conversation": {"type": "string"}}}}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, ""),
        ({"tools": [TOOL], "previous_response_id": None}, ""),
        ({"tools": [TOOL], "conversation": "conv_1"}, "history-elsewhere"),
        ({"previous_response_id": "resp_1"}, "history-elsewhere"),
        ({"context_management": [{"type": "x"}]}, "provider-compacts"),
    ],
)
def test_a_history_is_elsewhere_where_the_request_itself_says_so(more, why):
    assert why_relayed(request(history(user("Mend it.")), **more)) == why


def test_what_is_no_json_is_for_others_to_say():
    assert why_relayed(b'{"conversation": ') == ""
    assert why_relayed(json.dumps(["conversation"]).encode()) == ""
