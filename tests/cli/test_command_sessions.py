"""What commands print, in golden files that show it as a terminal does.

A case is the text of a `proxy.yaml`, if it has one, and commands with what they print: `| ` and `! ` stand before lines
of output and of complaints, `= ` before an exit status other than 0. KEY and THE_KEY_ID are of the team key that was
created last. The folder of a file says where its commands run.

For commands that ask an upstream, a case begins with its pages: `counts` is a stream of numbers, and for others the
connection is cut. Lines with `> ` say what it was asked.
"""

import asyncio
import io
import json
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
from tests.support.scripted_upstream import Upstream, answer, by_path, cut, pace_turn, text_turn
from tests.support.written_steps import assert_case, list_cases

GOLDEN = Path(__file__).parent / "golden"
KINDS = ("nowhere", "stopped", "running", "transcripts", "request", "upstream")
"""There is no state folder; no proxy uses it; a proxy uses it; conversations are saved in it; a request is there; or an
upstream answers."""
NEW_EACH_TIME = {
    r"@[0-9a-f]{8}\b": "@VERSION",
    r"\b20\d\d-\d\d-\d\d \d\d:\d\d(:\d\d)?( UTC)?": "TIME",
    r"\bcp-\w{10}-[\w-]{32}": "KEY",
    r"\d+ chunks in \d\.\d\d s, the first after \d\.\d\d s": "MANY chunks",
    r"\[Errno \d+\]": "[Errno]",
    r" \(choose from [^)]*\)": "",
}
USAGE = re.compile(r"^usage: .*?\n(?=compaction-proxy)", re.DOTALL)
"""What argparse puts before a fault of an option, which is long."""


PAGE = re.compile(r"(?:GET|POST) (\S+) (?:(counts)|(\d+) (.*))$")
COUNTING = pace_turn(text_turn(" ".join(map(str, range(1, 30)))), 0.005)
SHOWN_HEADERS = ("authorization", "x-api-key", "anthropic-version")
SHOWN_MEMBERS = ("model", "stream", "max_tokens", "max_completion_tokens")


def read_pages(case):
    pages = [PAGE.match(line) for line in case.split("\n")]
    answers = {page[1]: COUNTING if page[2] else answer(page[4], int(page[3])) for page in pages if page}
    return by_path(answers, cut())


def describe_request(request):
    shown = [f"{name}: {request.header(name)}" for name in SHOWN_HEADERS if request.header(name)]
    if request.body not in (b"", b"null"):
        shown.append(json.dumps({name: request.json[name] for name in SHOWN_MEMBERS if name in request.json}))
    return ", ".join([f"> {request.method} {request.path}", *shown])


@contextmanager
def working_in(kind, folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HOUSE_KEY", "sk-canary-explain")
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
            patch.delenv(name, raising=False)
        if kind not in ("nowhere", "upstream"):
            (folder / "state").mkdir()
        if kind == "transcripts":
            save_conversations(folder / "state")
        if kind == "request":
            shutil.copy(GOLDEN / kind / "work.json", folder)
        with announce(folder / "state", "http://127.0.0.1:8800") if kind == "running" else nullcontext():
            yield


def run(line):
    """Yield each line that a command prints, and its exit status. Variables stand before its name, as in a shell."""
    words = shlex.split(line)
    output, complaints = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", output)
        patch.setattr(sys, "stderr", complaints)
        while "=" in words[0]:
            patch.setenv(*words.pop(0).replace("\\n", "\n").split("=", 1))
        try:
            status = main(words)
        except SystemExit as ended:
            status = ended.code
    for mark, file in (("|", output), ("!", complaints)):
        file.flush()
        text = USAGE.sub("", file.buffer.getvalue().decode())
        yield from (f"{mark} {line}".rstrip() for line in text.splitlines())
    if status:
        yield f"= {status}"


def play(case, kind, up):
    """The case with what its commands print now."""
    given = [line for line in case.split("\n") if line[0] not in "|!=>"]
    before = [line for line in given if not line.startswith("$ ")]
    settings = [line for line in before if not PAGE.match(line)]
    played, names = list(before), {**NAMES, "UPSTREAM": up.origin}
    with TemporaryDirectory() as folder, working_in(kind, Path(folder)):
        new_each_time = {**NEW_EACH_TIME, folder: "FOLDER", up.origin: "UPSTREAM"}
        if settings:
            Path("proxy.yaml").write_text("\n".join(settings).replace("UPSTREAM", up.origin) + "\n")
        for line in given[len(before) :]:
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
            printed = list(filter(None, text.split("\n")))
            assert "canary" not in "".join(printed)
            played += [line, *printed, *sorted(set(map(describe_request, up.requests)))]
            up.forget()
    return "\n".join(played)


@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind in KINDS for _, case in list_cases(GOLDEN / kind)])
async def test_commands_print_what_their_golden_file_shows(kind, case):
    async with Upstream(read_pages(case)) as up:
        assert_case(GOLDEN / kind, case, await asyncio.to_thread(play, case, kind, up))
