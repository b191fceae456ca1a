"""What a release has kept is read by the next one, and one that is rolled back is not in the way of what it finds.

`upgrade/VERSION` is a state folder that this version has left behind, with what it forwarded last. Each release leaves
one: `python -m tests.end_to_end.test_upgrade` writes that of the present code.
"""

import asyncio
import json
import sqlite3
import subprocess
import sys
import time
from contextlib import asynccontextmanager, closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from proxy import __version__
from tests.support.admin_client import team_key, until_open
from tests.support.agent import Agent, reading
from tests.support.messages import call
from tests.support.proxy_client import log_of
from tests.support.running_proxy import free_port, serving
from tests.support.scripted_upstream import Upstream, text_turn

HERE = Path(__file__).parent / "upgrade"
RELEASES = sorted(folder for folder in HERE.iterdir() if folder.is_dir()) if HERE.exists() else []
NEXT = call("Read", out="what came next", path="src/next.py")
KEPT = "promises.sql", "registry.json"
BLOCKS_OF_0_2 = "promises_1"
BLOCKS = "blocks_1"


def upgrade_config(up, **more):
    """All that decides is set: what a later release does by default is no matter here."""
    policy = {"clear_at_least": 3_000, "keep": {"tokens": 1_000}, "steps": {"clear_results": {"over": 1_500}}}
    upstream = {"base_url": up.url, "window": 1_000_000, "key": "env:UPSTREAM_KEY"}
    return {
        "upstreams": [upstream],
        "policies": {"default": policy},
        "teams": {"red": {}},
        "log": {"format": "json"},
        **more,
    }


SECRETS = {"UPSTREAM_KEY": "sk-upstream"}


@asynccontextmanager
async def proxy_over(place: Path):
    """A proxy over the state that is there."""
    async with (
        Upstream(text_turn("Go on.")) as up,
        serving(None, config=upgrade_config(up), environment=SECRETS, place=place) as proxy,
    ):
        yield proxy, up


def restore_old_state(release: Path, place: Path) -> dict[str, str]:
    """Its state, as if it had been used a moment ago; and who used it, for what."""
    state = place / "state"
    state.mkdir(parents=True)
    with closing(sqlite3.connect(state / "promises.sqlite")) as db:
        db.executescript((release / KEPT[0]).read_text())
        table = BLOCKS_OF_0_2 if release.name == "0.2.0" else BLOCKS
        db.execute(f"update {table} set used = ?", (time.time(),))
        db.commit()
    (state / KEPT[1]).write_text((release / KEPT[1]).read_text())
    return json.loads((release / "last.json").read_text())


def rewritten(place: Path, change) -> None:
    """The blocks, as another release would have written them."""
    with closing(sqlite3.connect(place / "state" / "promises.sqlite")) as db:
        for key, value in db.execute(f"select key, value from {BLOCKS}").fetchall():
            text = json.dumps(change(json.loads(value))).encode()
            db.execute(f"update {BLOCKS} set value = ? where key = ?", (text, key))
        db.commit()


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
async def test_keys_and_blocks_of_a_release_are_read_by_this_one(tmp_path, release):
    last = restore_old_state(release, tmp_path)
    history = json.loads(last["sent"])["messages"]
    async with proxy_over(tmp_path) as (proxy, up):
        agent = Agent(proxy, up, last["key"])
        step = await agent.send(history)
        further = await agent.send([*history, *NEXT])
    assert (step.answer.status, step.compaction) == (200, "applied")
    assert step.forwarded.decode() == last["forwarded"]
    assert further.extends(step)


def of_a_later_format(block):
    return {**block, "format": 99}


def with_unknown_step(block):
    return {**block, "always": [*block["always"], ["fold_space", {"dimensions": 4}]]}


@pytest.mark.parametrize("change", [of_a_later_format, with_unknown_step])
async def test_blocks_of_a_later_release_cost_one_compaction_and_no_fault(tmp_path, change):
    last = restore_old_state(RELEASES[-1], tmp_path)
    rewritten(tmp_path, change)
    history = json.loads(last["sent"])["messages"]
    async with proxy_over(tmp_path) as (proxy, up):
        agent = Agent(proxy, up, last["key"])
        steps = [await agent.send(history), await agent.send([*history, *NEXT])]
    assert [step.compaction for step in steps] == ["created", "applied"]
    assert steps[1].extends(steps[0])
    assert not log_of(proxy, "failed-open")


@pytest.mark.seconds
def test_over_keys_of_a_later_format_it_does_not_start_and_leaves_them_as_they_are(tmp_path):
    restore_old_state(RELEASES[-1], tmp_path)
    registry = tmp_path / "state" / "registry.json"
    registry.write_text(json.dumps({**json.loads(registry.read_text()), "format": 99}))
    before = registry.read_bytes()
    command = [sys.executable, "-m", "proxy", "serve", "--port", str(free_port()), "--state", str(registry.parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0
    assert str(registry) in done.stdout + done.stderr
    assert registry.read_bytes() == before


async def write_state(place: Path) -> None:
    history = reading(16)
    async with proxy_over(place) as (proxy, up):
        key = team_key(proxy, "red")
        await until_open(proxy, key)
        agent = Agent(proxy, up, key)
        steps = [await agent.send(history), await agent.send(history)]
    assert [step.compaction for step in steps] == ["created", "applied"], [step.answer for step in steps]
    step = steps[1]
    folder = HERE / __version__
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(place / "state" / "promises.sqlite")) as db:
        dump = "\n".join(db.iterdump()) + "\n"
        (folder / KEPT[0]).write_text(dump.replace(",Inf)", ",9e999)"))  # SQL has no word for infinity
    (folder / KEPT[1]).write_text((place / "state" / KEPT[1]).read_text())
    last = {"key": key, "sent": step.sent.decode(), "forwarded": step.forwarded.decode()}
    (folder / "last.json").write_text(json.dumps(last, indent=1) + "\n")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        asyncio.run(write_state(Path(folder)))
