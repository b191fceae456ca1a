"""The real version 0.1 and this one, one after the other on one state folder: an upgrade, and the way back."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml

from tests import ROOT
from tests.release.installed import install, run, running_command
from tests.support.agent import Agent, reading
from tests.support.messages import call
from tests.support.scripted_upstream import Upstream, text_turn

COMMIT = "df7252e"
"""The last commit of version 0.1."""
NEXT = call("Read", out="what came next", path="src/next.py")
LATER = call("Read", out="what came last", path="src/last.py")


def has_commit():
    found = subprocess.run(
        ["git", "cat-file", "-e", f"{COMMIT}^{{commit}}"], cwd=ROOT, capture_output=True, check=False
    )
    return found.returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("release"),
    pytest.mark.skipif(not has_commit(), reason="a clone without the history of version 0.1"),
]


@pytest.fixture(scope="module")
def version_0_1(tmp_path_factory):
    """The command of version 0.1, installed from its sources."""
    sources, place = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("old")
    packed = subprocess.run(["git", "archive", COMMIT], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "--extract", "--directory", str(sources)], input=packed, check=True)
    program = install(sources, place) / "compaction-proxy"
    assert run(program, "--version", place=place) == "compaction-proxy 0.1.0\n"
    return [program]


NEW = [sys.executable, "-m", "proxy"]


def upgrade_config(up):
    """All that decides is set: the defaults differ."""
    return {
        "upstreams": [{"base_url": up.url, "window": 1_000_000, "key": "file:upstream.key"}],
        "policies": {"default": {"clear_at_least": 3_000, "keep": {"tokens": 1_000}}},
        "teams": {"red": {}},
        "log": {"format": "json"},
    }


async def test_keys_blocks_and_originals_of_0_1_are_used_and_0_1_goes_on_after_a_rollback(version_0_1, tmp_path):
    history = reading(16)
    where = ["--config", tmp_path / "proxy.yaml", "--state", tmp_path / "state"]
    (tmp_path / "upstream.key").write_text("sk-upstream")
    async with Upstream(text_turn("Go on.")) as up:

        async def send(program, *histories):
            async with running_command(program, *where, place=tmp_path) as (origin, _, _):
                agent = Agent(SimpleNamespace(origin=origin), up, key)
                return [await agent.send(messages) for messages in histories]

        (tmp_path / "proxy.yaml").write_text(yaml.safe_dump(upgrade_config(up)))
        key = run(*version_0_1, "keys", "create", "--team", "red", *where, place=tmp_path).strip()
        made, before = await send(version_0_1, history, history)
        assert [made.compaction, before.compaction] == ["created", "applied"]

        same, further = await send(NEW, history, [*history, *NEXT])
        assert [same.answer.status, same.compaction, further.compaction] == [200, "applied", "applied"]
        assert same.forwarded == before.forwarded
        assert further.forwarded.startswith(before.forwarded.removesuffix(b"]}"))

        listed = run(*NEW, "transcripts", "list", "--json", *where, place=tmp_path)
        (kept,) = [json.loads(line)["conversation"] for line in listed.splitlines()]
        assert kept.startswith(before.header("x-compaction-conversation"))
        assert run(*NEW, "keys", "list", *where, place=tmp_path).count("open") == 1
        revoked = run(*NEW, "keys", "create", "--team", "red", "--label", "new", *where, place=tmp_path).split("-")[1]
        run(*NEW, "keys", "revoke", revoked, "--yes", *where, place=tmp_path)

        (back,) = await send(version_0_1, [*history, *NEXT, *LATER])
        assert (back.answer.status, back.compaction) == (200, "applied")
        assert back.forwarded.startswith(before.forwarded.removesuffix(b"]}"))
    assert "failed-open" not in (tmp_path / "log").read_text()


def test_the_configuration_that_0_1_shipped_is_good(version_0_1, tmp_path):
    (tmp_path / "proxy.yaml").write_text(run(*version_0_1, "check", "--defaults", place=tmp_path))
    assert run(*NEW, "check", "proxy.yaml", place=tmp_path).endswith(
        "OK (proxy.yaml). Upstreams: default (https://api.openai.com/v1)\n"
    )
