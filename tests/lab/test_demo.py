"""`demo`, as run right after the installation: no key, no network, no leftovers."""

import asyncio
import json
import os
import pty
import re
import signal
import sys

import pytest

from tests import ROOT
from tests.support.commands import run_command

COMMAND = [sys.executable, "-m", "proxy"]


@pytest.fixture
def environment(tmp_path):
    """A machine whose network leads nowhere, and whose temporary files are here."""
    nowhere = "http://127.0.0.1:9"
    return {"TMPDIR": str(tmp_path), "http_proxy": nowhere, "https_proxy": nowhere, "TERM": "xterm"}


async def demo(environment, *options):
    return await run_command("demo", *options, place=ROOT, **environment)


async def test_a_short_run_says_that_nothing_had_to_be_done(environment):
    done = await demo(environment, "--fast", "--turns", "3")
    assert (done.code, done.complaint) == (0, "")
    assert "simulated" in done.out.splitlines()[0]
    assert "Nothing was shortened" in done.out
    assert "\x1b" not in done.out


@pytest.mark.seconds
async def test_a_run_is_shortened_and_the_originals_are_where_it_says(environment):
    done = await demo(environment, "--fast", "--turns", "60")
    assert (done.code, done.complaint) == (0, "")
    assert re.search(r"turn +\d+   shortened \(window\): [\d,]+ tokens sent, [\d,]+ read", done.out)
    assert re.search(r"requests over the window +0 ", done.out)
    listing, showing = re.findall(r"compaction-proxy (transcripts .*)", done.out)
    listed, shown = [await run_command(*line.split(), place=ROOT) for line in (f"{listing} --json", showing)]
    assert (listed.code, listed.complaint) == (shown.code, shown.complaint)
    assert shown.code == 0
    assert re.fullmatch(r"no proxy uses \S+ now\n", shown.complaint)
    assert json.loads(listed.out)["blocks"] > 0
    assert "seen" in shown.out


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [*(("--turns", turns, "from 1 to 300") for turns in ("0", "-1", "many", "301")), ("--policy", "jpp", "j-cli")],
)
async def test_a_value_that_cannot_be_is_refused_with_those_that_can(environment, option, value, why):
    done = await demo(environment, option, value)
    assert done.code == 2
    assert why in done.complaint


async def on_a_terminal(environment, *options, until, press=b""):
    """Runs it on a terminal; once this text is seen, the key is pressed. Answers exit code and all that was written."""
    ours, theirs = pty.openpty()
    size = {"COLUMNS": "90", "LINES": "40"}
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "demo", *options, cwd=ROOT, env={**environment, **size}, stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    written = b""
    while chunk := await asyncio.to_thread(_read, ours):
        written += chunk
        if press and until in written:
            os.killpg(process.pid, signal.SIGINT)
            press = b""
    os.close(ours)
    return await process.wait(), written.decode()


def _read(terminal):
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other end is closed
        return b""


@pytest.mark.seconds
async def test_on_a_terminal_it_is_drawn_in_place(environment):
    code, written = await on_a_terminal(environment, "--fast", "--turns", "12", until=b"")
    assert code == 0
    assert written.count("turn  12 of 12") == 1
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1
    frames = re.split(r"\x1b\[(\d+)F", written)
    assert len(frames[1::2]) == 12
    assert {int(lines) for lines in frames[1::2]} == {frames[2].count("\n")}


@pytest.mark.seconds
async def test_ctrl_c_leaves_with_what_it_came_to_and_a_visible_cursor(environment):
    code, written = await on_a_terminal(environment, until=b"turn   4 of 150", press=b"\x03")
    assert code == 130
    assert "turns of a simulated agent" in written
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1
    assert "Traceback" not in written
