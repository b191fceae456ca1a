"""`keys` and `switch` on a proxy that runs: from any folder, and by its address."""

import pytest

from proxy.access.admin_key import ADMIN_KEY_FILE
from tests.support.admin_client import until_open
from tests.support.commands import run_command

QUIET = {"window": 1_000_000}


@pytest.fixture
async def proxy(up, serve):
    settings = {"teams": {"red": {}}, "upstreams": [{"base_url": up.url, **QUIET}]}
    async with serve(None, config=settings) as proxy:
        yield proxy


@pytest.fixture
def elsewhere(tmp_path_factory):
    """A folder in which no proxy runs."""
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture
def by_url(proxy, elsewhere):
    """Runs a command on the proxy's address, with its admin key."""

    async def run(*words, key=""):
        key = key or (proxy.state / ADMIN_KEY_FILE).read_text()
        variables = {"COMPACTION_PROXY_ADMIN_KEY": key}
        return await run_command(*words, "--url", proxy.origin, place=elsewhere, **variables)

    return run


async def test_a_command_in_another_folder_acts_on_the_proxy_of_the_configuration(proxy, elsewhere):
    ended = await run_command("switch", "off", "--config", str(proxy.place / "proxy.yaml"), "--yes", place=elsewhere)
    assert (ended.code, ended.out) == (0, "all teams: off\nred: off\n")
    assert ended.complaint.startswith(f"in force at {proxy.origin} since ")
    assert list(elsewhere.iterdir()) == []
    ended = await run_command("switch", "show", "--state", str(proxy.state), place=elsewhere)
    assert ended.out == "all teams: off\n"


async def test_a_command_in_another_folder_without_a_configuration_changes_nothing(proxy, elsewhere):
    ended = await run_command("switch", "off", "--yes", place=elsewhere)
    assert (ended.code, ended.out) == (1, "")
    assert ended.complaint.startswith(f"there is no state folder {elsewhere}/state (")
    ended = await run_command("keys", "create", "--team", "red", "--state", str(proxy.state), place=elsewhere)
    assert (ended.code, ended.out) == (1, "")
    assert "no file was read" in ended.complaint


async def test_keys_and_switches_are_changed_by_the_address_of_a_proxy(proxy, by_url):
    created = await by_url("keys", "create", "--team", "red", "--label", "ci", "--days", "7")
    key = created.out.strip()
    assert created.complaint.endswith(f"in force at {proxy.origin}\n")
    await until_open(proxy, key)
    assert (await by_url("switch", "off", "--team", "red", "--yes")).out == "all teams: on\nred: off\n"
    assert (await by_url("switch", "on", "--team", "red", "--yes")).out == "all teams: on\nred: on\n"
    revoked = await by_url("keys", "revoke", key, "--yes")
    assert revoked.out == f"Revoked key {key.split('-')[1]}.\n"
    listed = (await by_url("keys", "list")).out
    assert [" revoked " in listed, " ci" in listed, key in listed] == [True, True, False]


async def test_what_the_proxy_at_an_address_refuses_is_said_in_its_words(by_url):
    wrong_key = await by_url("switch", "off", "--yes", key="cpa-" + "x" * 32)
    assert (wrong_key.code, wrong_key.out) == (1, "")
    assert "refuses: this is not the key" in wrong_key.complaint
    no_team = await by_url("switch", "off", "--team", "green", "--yes")
    assert (no_team.code, no_team.out) == (1, "")
    assert "unknown team: add it to `teams` in the configuration (known: red)" in no_team.complaint
