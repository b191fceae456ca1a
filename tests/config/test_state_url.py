"""The URL of shared state: what is read from it, and what is shown of it. `golden/state urls.txt` has refused ones."""

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


SECRET = "s3cr3t/with:odd@signs"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("ERR no such user 'ops@shop' or ops%40shop.", "ERR no such user '…' or …."),
        ("NOPERM User OPS@SHOP may not 'set'; workshops@shop may", "NOPERM User … may not 'set'; workshops@shop may"),
        *((f"ERR cannot parse {form} here", "") for form in (SECRET, SECRET.upper(), "s3cr3t%2Fwith%3Aodd%40signs")),
        ("ERR got '*3' '$4' 'AUTH' '$8' 'ops@shop' '$21' 's3cr3t/wi...(13 more)'", ""),
        ("ERR AUTH s3cr3t", ""),
        ("ERR AUTH \\x73\\x33cr\\x33\\x74\\/with", ""),
        ("ERR AUTH the-guards", ""),
        ("ERR AUTH called with 'pw!'", ""),
        (f"-{'x' * 5_000}", f"-{'x' * 198}…"),
        (f"-{'x' * 1_000}{SECRET}", f"-{'x' * 198}…"),
    ],
)
def test_words_of_a_server_are_told_without_the_users_and_not_at_all_with_a_part_of_a_password(words, told):
    url = "redis+sentinel://ops%40shop:s3cr3t%2Fwith%3Aodd%40signs@a/primary"
    parsed = parse_state_url(f"{url}?sentinel_username=pw!&sentinel_password=the-guards-own")
    if "pw!" in words:
        parsed = parse_state_url("redis://:pw!@a")
    assert parsed.remove_credentials(words) == told


def test_without_credentials_the_words_of_a_server_are_its_own():
    assert parse_state_url("redis://h").remove_credentials("ERR  unknown command") == "ERR  unknown command"
