"""The URL of shared state: what is read from it, and that nothing of a wrong one is ever quoted."""

import pytest

from proxy.config.state_url import StateUrl, parse_state_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://redis.internal", "redis://redis.internal:6379/0"),
        ("rediss://me:zesam@redis.internal:7000/3", "rediss://redis.internal:7000/3"),
        ("redis://:ze%40sam@[::1]/1", "redis://[::1]:6379/1"),
        ("redis+sentinel://:ze@a,b:7/mymaster", "redis+sentinel://a:26379,b:7/mymaster/0"),
        ("rediss+sentinel://a/mymaster/2?sentinel_password=zesam", "rediss+sentinel://a:26379/mymaster/2"),
    ],
)
def test_an_address_is_shown_without_its_credentials_and_options(url, shown):
    parsed = parse_state_url(url)
    assert str(parsed) == shown
    assert "ze" not in repr(parsed)


def test_credentials_and_options_are_decoded():
    parsed = parse_state_url(
        "rediss+sentinel://me:s%2Fc%40%3A@a:1,b:2/primary/3"
        "?sentinel_username=guard&sentinel_password=p%20w&ssl_cert_reqs=none"
    )
    assert (parsed.user, parsed.password, parsed.service, parsed.database) == ("me", "s/c@:", "primary", 3)
    assert parsed.nodes == (("a", 1), ("b", 2))
    assert dict(parsed.options) == {
        "sentinel_username": "guard",
        "sentinel_password": "p w",
        "ssl_cert_reqs": "none",
    }


def test_one_server_needs_no_more_than_its_name():
    assert parse_state_url("redis://h") == StateUrl(tls=False, nodes=(("h", 6379),))


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "redis://",
        "redis://:se/cret@h",
        "redis://:1#secret@h",
        "redis://:1?secret@h",
        "redis://h:secret/0",
        "redis://h:99999",
        "redis://h/secret",
        "redis://h/-1",
        "redis://h//0",
        "redis://h/0/",
        "redis://h:/0",
        "redis://h:0/0",
        "redis://my host:6379/0",
        "redis://h[::1]/0",
        "redis://h,secret/0",
        "redis+sentinel://secret",
        "redis+sentinel://a//1",
        "redis+sentinel://a/name/1/",
        "redis+sentinel://h/name/secret",
        "unix:///secret",
        "secret",
    ],
)
def test_an_invalid_address_is_refused_without_being_quoted(url):
    with pytest.raises(ValueError, match=r"redis://HOST:6379/0.*redis\+sentinel") as refused:
        parse_state_url(url)
    assert "secret" not in str(refused.value)
    assert "se" not in str(refused.value).replace("sentinel", "")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis://h?secret=1", "known are ssl_cert_reqs, "),
        ("redis://h?sentinel_password=secret", "an option of this URL is not known"),
        ("redis://h?ssl_cert_reqs=secret", "the value of ssl_cert_reqs"),
    ],
)
def test_an_option_that_cannot_be_used_is_named_and_its_value_is_not(url, why):
    with pytest.raises(ValueError, match=why) as refused:
        parse_state_url(url)
    assert "secret" not in str(refused.value)


def test_a_cluster_is_refused_with_what_to_use_instead():
    with pytest.raises(ValueError, match=r"Redis Cluster is not supported any more.*Sentinels"):
        parse_state_url("redis+cluster://h:6379")
