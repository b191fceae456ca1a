"""Requests that a page of another site may have caused, where the proxy spends a key of its own."""

import pytest

from proxy.access.authentication import Authenticator, check_page
from proxy.config.settings import Config, Team, Upstream
from proxy.config.values import Secret
from proxy.foundation.errors import ForeignOrigin, HostNotAllowed, NotJson
from proxy.wire.http_head import Caller

HOSTS = frozenset({"ai.example.com", "ui.example.com"})
HOST = ("Host", "localhost:8800")
JSON = ("Content-Type", "application/json; charset=utf-8")


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "LOCALHOST:8800", "127.0.0.1:8800", "[::1]:8800", "203.0.113.9", "compaction-proxy:8800",
        "box.lan", "host.docker.internal:8800", "proxy.team.svc.cluster.local", "ai.example.com", "AI.example.com.:443",
        "",
    ],
)  # fmt: skip
def test_by_addresses_local_names_and_listed_ones_it_is_called(host):
    check_page((("Host", host), JSON), HOSTS)


@pytest.mark.parametrize(
    "host",
    [
        "rebound.evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8800", "ui.example.com.evil.test1",
        "[::1].evil.example", "localhost:1@evil.example", "localhost:.evil.example",
    ],
)  # fmt: skip
def test_by_another_public_name_it_is_not(host):
    with pytest.raises(HostNotAllowed, match=r"access\.hosts"):
        check_page((("Host", host), JSON), HOSTS)


@pytest.mark.parametrize(("key", "team"), [(None, ""), (Secret("env:KEY", "k"), "red")])
def test_without_a_key_of_the_proxy_or_with_one_of_a_team_pages_are_not_told_apart(key, team):
    authenticator = Authenticator(Config(teams={"red": Team()}))
    headers = (("host", "rebound.evil.example"),)
    authenticator.check_spending(Upstream(key=key), Caller(team), headers)
    with pytest.raises(HostNotAllowed):
        authenticator.check_spending(Upstream(key=Secret("env:KEY", "k")), Caller(), headers)


@pytest.mark.parametrize(
    "origin",
    ["http://localhost:8800", "https://ui.example.com", "https://ui.example.com:8443", "app://obsidian.md",
     "vscode-webview://1a2b", "chrome-extension://abc"],
)  # fmt: skip
def test_own_and_listed_sites_apps_and_extensions_may_call(origin):
    check_page((HOST, ("Origin", origin), ("Sec-Fetch-Site", "cross-site"), JSON), HOSTS)


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "", "http://localhost:3000", "https://localhost.evil.example", "http://["],
)
def test_pages_of_other_sites_may_not(origin):
    with pytest.raises(ForeignOrigin, match=r"access\.hosts"):
        check_page((HOST, ("origin", origin), JSON), HOSTS)


def test_a_browser_that_names_no_origin_is_believed_when_it_says_that_it_is_another_site():
    with pytest.raises(ForeignOrigin):
        check_page((HOST, ("sec-fetch-site", "cross-site")), HOSTS)
    for site in ("same-origin", "same-site", "none"):
        check_page((HOST, ("sec-fetch-site", site)), HOSTS)


@pytest.mark.parametrize("kind", ["text/plain", "TEXT/PLAIN;charset=UTF-8", "application/x-www-form-urlencoded"])
def test_a_body_that_any_form_can_send_is_no_body_of_the_api(kind):
    with pytest.raises(NotJson):
        check_page((HOST, ("content-type", kind)), HOSTS)


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=x"])
def test_json_and_files_are(kind):
    check_page((HOST, ("content-type", kind)), HOSTS)
