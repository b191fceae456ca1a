"""Who gets marks and a key: by policy, upstream, options of the request and what the upstream has refused."""

import pytest

from proxy.config import Policy, Upstream
from proxy.path.placement import choose_placement, list_options
from proxy.path.request_context import RefusedOptions, RequestOptions, make_window_scope
from proxy.upstream.client import Call
from proxy.wire.chat.chat_format import CHAT_FORMAT
from proxy.wire.http_head import ApiPath, Caller
from tests.support.agent import reading
from tests.support.messages import body

OPENAI = Upstream(base_url="https://api.openai.com/v1")
OTHER = Upstream(base_url="http://127.0.0.1:9/v1")
BOTH, MARKS, NOTHING = (True, True), (True, False), (False, False)


def choose(*, policy=None, mode="auto", upstream=OPENAI, path=ApiPath.CHAT, halted=False, refused=()):
    source = body(reading(2))
    call = Call("POST", path, "", (), source, Caller(halted=halted))
    request, refused_options = CHAT_FORMAT.parse(source), RefusedOptions()
    for option in refused:
        refused_options.add(make_window_scope(upstream, request.model, call), option)
    placement = choose_placement(
        call,
        request,
        policy=policy or Policy(),
        options=RequestOptions(mode),
        upstream=upstream,
        refused_options=refused_options,
    )
    return placement.may_mark, placement.may_key


@pytest.mark.parametrize(
    ("circumstances", "chosen"),
    [
        ({}, BOTH),
        ({"policy": Policy(mode="lossless")}, BOTH),
        ({"mode": "force"}, BOTH),
        ({"upstream": OTHER}, MARKS),
        ({"upstream": OTHER, "policy": Policy(cache_key="on")}, BOTH),
        ({"policy": Policy(cache_key="off")}, MARKS),
        ({"policy": Policy(cache_marks="off")}, (False, True)),
        ({"refused": ["cache-key"]}, MARKS),
        ({"refused": ["cache-marks"]}, (False, True)),
        ({"refused": ["usage-option"]}, BOTH),
        ({"policy": Policy(mode="observe")}, NOTHING),
        ({"policy": Policy(mode="off")}, NOTHING),
        ({"mode": "off"}, NOTHING),
        ({"mode": "observe"}, NOTHING),
        ({"halted": True}, NOTHING),
        ({"path": ApiPath.COUNT_TOKENS}, NOTHING),
    ],
    ids=str,
)
def test_a_request_gets_what_its_policy_and_its_upstream_allow(circumstances, chosen):
    assert choose(**circumstances) == chosen


@pytest.mark.parametrize(
    ("url", "is_keyed"),
    [
        ("https://api.openai.com/v1", True),
        ("https://eu.api.openai.com/v1", True),
        ("https://team.openai.azure.com/openai/v1", True),
        ("https://team.services.ai.azure.com/openai/v1", True),
        ("https://api.openai.com.evil.example/v1", False),
        ("https://notapi.openai.com/v1", False),
        ("http://localhost:8000/api.openai.com", False),
    ],
)
def test_openai_and_azure_are_known_by_the_name_of_their_host(url, is_keyed):
    assert ("cache-key" in list_options(Policy(), Upstream(base_url=url))) is is_keyed
