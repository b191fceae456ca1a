"""Who gets marks and a key: by policy, upstream, options of the request and what the upstream has refused."""

import pytest

from proxy.config.policies import Policy
from proxy.config.settings import Upstream
from proxy.serve.request_context import (
    RefusedOptions,
    RequestOptions,
    choose_placement,
    list_options,
    make_window_scope,
)
from proxy.upstream.client import Call
from proxy.wire.http_head import ApiPath, Caller

OPENAI = "https://api.openai.com/v1"
OTHER = "http://127.0.0.1:9/v1"
MARKS, KEY, NOTHING = (True, False), (False, True), (False, False)
MESSAGES = {"path": ApiPath.MESSAGES}


def choose(*, policy=None, mode="auto", url=OPENAI, path=ApiPath.CHAT, switch="on", refused=()):
    call = Call("POST", path, "", (), b"", Caller(switch=switch))
    scope, refused_options = make_window_scope(Upstream(base_url=url), "gpt-5.1", call), RefusedOptions()
    for option in refused:
        refused_options.add(scope, option)
    placement = choose_placement(call, policy or Policy(), RequestOptions(mode), scope, refused_options)
    return placement.may_mark, placement.may_key


@pytest.mark.parametrize(
    ("circumstances", "chosen"),
    [
        ({}, KEY),
        (MESSAGES, MARKS),
        ({"path": ApiPath.RESPONSES}, KEY),
        ({"policy": Policy(mode="lossless")}, KEY),
        ({"policy": Policy(mode="lossless"), **MESSAGES}, MARKS),
        ({"mode": "force"}, KEY),
        ({"url": OTHER}, NOTHING),
        ({"url": OTHER, **MESSAGES}, MARKS),
        ({"url": OTHER, "policy": Policy(cache_key="on")}, KEY),
        ({"policy": Policy(cache_marks="on")}, (True, True)),
        ({"policy": Policy(cache_key="off")}, NOTHING),
        ({"policy": Policy(cache_marks="off"), **MESSAGES}, NOTHING),
        ({"refused": ["cache-key"]}, NOTHING),
        ({"refused": ["cache-marks"], **MESSAGES}, NOTHING),
        ({"refused": ["usage-option", "cache-marks"]}, KEY),
        ({"policy": Policy(mode="observe")}, NOTHING),
        ({"policy": Policy(mode="off")}, NOTHING),
        ({"mode": "off"}, NOTHING),
        ({"mode": "observe"}, NOTHING),
        ({"switch": "off"}, NOTHING),
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
    assert ("cache-key" in list_options(Policy(), url)) is is_keyed
