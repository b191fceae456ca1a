"""What commands print, in golden files that show it as a terminal does.

A case is the text of a `proxy.yaml`, if it has one, and commands with what they print: `| ` and `! ` stand before lines
of output and of complaints, `= ` before an exit status other than 0. KEY and THE_KEY_ID are of the team key that was
created last. The folder of a file says where its commands run.
"""

import io
import re
import shlex
import shutil
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from proxy.cli import main
from proxy.server.listeners import announce
from tests.cli.saved_conversations import NAMES, save_conversations
from tests.support.written_steps import assert_case, list_cases

GOLDEN = Path(__file__).parent / "golden"
KINDS = ("nowhere", "stopped", "running", "transcripts", "request")
"""There is no state folder; no proxy uses it; a proxy uses it; conversations are saved in it; or a request is there."""
NEW_EACH_TIME = {
    r"@[0-9a-f]{8}\b": "@VERSION",
    r"\b20\d\d-\d\d-\d\d \d\d:\d\d(:\d\d)?( UTC)?": "TIME",
    r"\bcp-\w{10}-[\w-]{32}": "KEY",
}
USAGE = re.compile(r"^usage: .*?\n(?=compaction-proxy)", re.DOTALL)
"""What argparse puts before a fault of an option, which is long."""


@contextmanager
def working_in(kind, folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HOUSE_KEY", "sk-canary-explain")
        if kind != "nowhere":
            (folder / "state").mkdir()
        if kind == "transcripts":
            save_conversations(folder / "state")
        if kind == "request":
            shutil.copy(GOLDEN / kind / "work.json", folder)
        with announce(folder / "state", "http://127.0.0.1:8800") if kind == "running" else nullcontext():
            yield


def run(words):
    """Yield each line that a command prints, and its exit status."""
    output, complaints = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", output)
        patch.setattr(sys, "stderr", complaints)
        try:
            status = main(shlex.split(words))
        except SystemExit as ended:
            status = ended.code
    for mark, file in (("|", output), ("!", complaints)):
        file.flush()
        text = USAGE.sub("", file.buffer.getvalue().decode())
        yield from (f"{mark} {line}".rstrip() for line in text.splitlines())
    if status:
        yield f"= {status}"


def play(case, kind):
    """The case with what its commands print now."""
    given = [line for line in case.split("\n") if line[0] not in "|!="]
    settings = [line for line in given if not line.startswith("$ ")]
    played, names = list(settings), dict(NAMES)
    with TemporaryDirectory() as folder, working_in(kind, Path(folder)):
        new_each_time = {**NEW_EACH_TIME, folder: "FOLDER"}
        if settings:
            Path("proxy.yaml").write_text("\n".join(settings) + "\n")
        for line in given[len(settings) :]:
            words = line.removeprefix("$ ")
            for name, value in names.items():
                words = words.replace(name, value)
            text = "\n".join(run(words))
            key = re.match(r"\| (cp-(\w+)-\S+)", text)
            if key is not None:
                names |= {"THE_KEY_ID": key[2], "KEY": key[1]}
                new_each_time[key[2]] = "THE_KEY_ID"
            for pattern, name in new_each_time.items():
                text = re.sub(pattern, name, text)
            played += [line, *filter(None, text.split("\n"))]
    assert "canary" not in "".join(played).replace("search sk-canary-7d1e5a", "")
    return "\n".join(played)


@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind in KINDS for _, case in list_cases(GOLDEN / kind)])
def test_commands_print_what_their_golden_file_shows(kind, case):
    assert_case(GOLDEN / kind, case, play(case, kind))
