"""Which headers and query parameters carry a credential, and which values a request shows."""

import pytest

from proxy.wire.http_head import find_credentials, is_credential

CARRIED_IN = """
Authorization api-key x-api-key x-goog-api-key Cookie Ocp-Apim-Subscription-Key cf-aig-authorization x-litellm-api-key
x-portkey-virtual-key Helicone-Auth apikey X-Auth-Token PRIVATE-TOKEN x_access_token x-functions-key
x-serverless-authorization cf-access-jwt-assertion cf-access-client-secret page.token csrf.token x.csrf-token
"""
ORDINARY = """
Content-Type Accept User-Agent Idempotency-Key X-CSRF-Token x-xsrf-token x-request-id traceparent
x-stainless-retry-count OpenAI-Organization anthropic-beta session_id x-author
"""
"""Sent by today's clients, some with another value in every request."""


@pytest.mark.parametrize("name", CARRIED_IN.split())
def test_a_header_named_like_a_credential_is_one(name):
    assert is_credential(name)
    assert find_credentials(((name, "secret=1"),)) == ((name.lower(), "secret=1"),)


@pytest.mark.parametrize("name", [*ORDINARY.split(), "api.key", "user.key", "x" * 10_000 + "-token"])
def test_other_headers_are_none(name):
    assert not is_credential(name)


@pytest.mark.parametrize("name", ["key", "API_KEY", "access_token", "subscription-key", "sig", "code"])
def test_a_query_parameter_named_like_a_credential_is_one(name):
    assert find_credentials((), f"api-version=1&{name}=a%20b&beta=true") == ((f"?{name.lower()}", "a b"),)


def test_other_parameters_are_none():
    assert find_credentials((), "api-version=2024-06-01&beta=true&limit=10") == ()


def test_order_spelling_and_repetition_make_no_difference():
    one = find_credentials((("X-API-Key", "a"), ("Authorization", "b")), "key=c")
    assert one == find_credentials((("authorization", "b"), ("x-api-key", "a"), ("authorization", "b")), "key=c")


def test_an_empty_credential_is_none():
    assert find_credentials((("authorization", ""), ("cookie", " ; ")), "key=") == ()


def test_cookies_count_without_those_that_balancers_and_bot_checks_change_with_every_answer():
    session = find_credentials((("cookie", "session=a; theme=dark"),))
    changing = "__cf_bm=1; theme=dark; AWSALB=2; AWSALBCORS=2; _ga_X1=3; session=a; csrftoken=4; BIGipServerpool=5"
    assert find_credentials((("cookie", changing),)) == session
    assert find_credentials((("cookie", "session=b; theme=dark"),)) != session
    assert find_credentials((("cookie", "__cf_bm=1; _cfuvid=2"),)) == ()


def test_odd_bytes_are_read():
    assert find_credentials((("cookie", "a=\udcff"),), "key=%ff\udcff") == (
        ("?key", "\udcff\udcff"),
        ("cookie", "a=\udcff"),
    )
