"""A team's own upstream key (`teams.NAME.key`): which upstream sees it, and which paths it opens."""

import time

import pytest

from proxy.access.registry import create_team_key
from proxy.config.values import Secret
from proxy.foundation.errors import PathNotAllowed
from proxy.upstream.client import Call
from tests.support.gateway_in_process import GatewayInProcess
from tests.support.scripted_upstream import Upstream, text_turn
from tests.support.summary_model import OVER, SEEN, SMALL_WINDOW_SETTINGS, WINDOW, account

TEAM_KEY = "sk-of-the-team"
TEAM = {"upstream": "up", "key": Secret("env:TEAM", TEAM_KEY)}


class GatewayOfTeam(GatewayInProcess):
    """A gateway with one team; what the team sends goes to the first upstream with the team's own key."""

    def __init__(self, up, place, **more):
        super().__init__(up, place, teams={"red": TEAM}, **more)
        self.text, key = create_team_key("red", time.time())
        self.records.change(lambda registry: registry.with_key(key))

    def request(self, method, path, body=b"", *headers):
        return Call(method, path, "", (("authorization", f"Bearer {self.text}"), *headers), body)


@pytest.mark.parametrize("key", [None, Secret("env:TELLER", "sk-of-the-teller")], ids=["none", "its own"])
async def test_the_key_of_a_team_never_reaches_another_upstream_that_makes_summaries(tmp_path, key):
    summary = {**SMALL_WINDOW_SETTINGS["summary"], "upstream": "teller"}
    policies = {"default": {**SMALL_WINDOW_SETTINGS, "summary": summary}}
    async with Upstream(text_turn("Go on.")) as up, Upstream(text_turn(account())) as teller:
        others = [{"name": "teller", "models": ["none"], "base_url": teller.url, "window": 64_000, "key": key}]
        async with GatewayOfTeam(up, tmp_path, policies=policies, others=others, window=WINDOW) as served:
            force = (("x-compaction", "force"), ("x-compaction-focus", "the tests"))
            for history, headers in ((SEEN, ()), (OVER, force)):
                await served.relay(served.call(history, key=served.text, headers=headers))
            assert served.faults == []
    assert {request.header("authorization") for request in up.requests} == {f"Bearer {TEAM_KEY}"}
    assert len(teller.requests) == 1
    (asked,) = teller.requests
    assert TEAM_KEY not in str((asked.target, asked.headers, asked.body))
    assert asked.header("authorization") == (None if key is None else f"Bearer {key.value}")


async def test_a_path_that_the_operator_allows_is_called_with_the_key_of_the_team(tmp_path):
    async with Upstream(text_turn("Hi")) as up, GatewayOfTeam(up, tmp_path, paths=("/files",)) as served:
        await served.relay(served.request("GET", "/files"))
        with pytest.raises(PathNotAllowed):
            await served.relay(served.request("GET", "/files/file-1"))
    (request,) = up.requests
    assert (request.target, request.header("authorization")) == ("/v1/files", f"Bearer {TEAM_KEY}")
