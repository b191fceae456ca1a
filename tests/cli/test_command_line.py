"""The command line as people expect one: names that are nearly right, JSON, standard input, colours."""

import codecs
import gzip
import io
import json
import os
import pty
import subprocess
import sys

import pytest

from proxy import events
from proxy.__main__ import main as entry_point
from proxy.cli import COMMANDS, build_parser, main
from proxy.config.defaults import as_yaml
from proxy.foundation.lifetime import INTERRUPTED_STATUS
from proxy.server.listeners import announce
from proxy.telemetry import log
from tests.support.commands import run_command
from tests.support.messages import user

CHAT = {"model": "gpt-5.1", "messages": user("Hello?")}


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"keys", "transcripts"}))
def test_the_help_of_a_command_has_examples_that_parse(capsys, command):
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    assert f"  compaction-proxy {command}" in capsys.readouterr().out


def test_the_defaults_can_be_printed_and_are_good(capsys, folder):
    assert main(["check", "--defaults"]) == 0
    printed = capsys.readouterr().out
    assert printed == as_yaml()
    (folder / "proxy.yaml").write_text(printed)
    assert main(["check"]) == 0


@pytest.mark.parametrize("words", ["check", "explain", "switch show", "keys list", "transcripts list"])
def test_commands_that_print_a_table_print_json_too(capsys, folder, words):
    (folder / "state").mkdir()
    assert main([*words.split(), "--json"]) == 0
    for line in capsys.readouterr().out.splitlines():
        json.loads(line)


@pytest.mark.seconds
def test_a_configuration_and_a_conversation_are_read_from_standard_input(folder):
    def run(*words, text):
        command = [sys.executable, "-m", "proxy", *words, "-"]
        return subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True, timeout=120, check=False)

    bad = run("check", text="listen: {port: 99999}\n")
    assert (bad.returncode, bad.stderr.startswith("/dev/stdin:1: listen.port: ")) == (1, True)
    good = run("compact", "--json", text=json.dumps(CHAT))
    assert (good.returncode, json.loads(good.stdout)["messages_before"]) == (0, 1)


@pytest.mark.parametrize("label", ["a\nb", "\udcff"])
async def test_a_label_is_one_line(folder, label):
    ended = await run_command("keys", "create", "--team", "red", "--label", label, place=folder)
    assert ended.code == 2
    assert "error: argument --label: must be one line" in ended.complaint


async def test_json_that_is_nested_too_deeply_is_reported(folder):
    (folder / "deep.json").write_text("[" * 100_000)
    ended = await run_command("compact", "deep.json", place=folder)
    assert (ended.code, ended.complaint) == (1, "deep.json: the JSON is nested too deeply\n")


@pytest.mark.parametrize("pack", [lambda source: codecs.BOM_UTF8 + source, gzip.compress])
async def test_a_conversation_is_read_as_editors_and_archives_leave_it(folder, pack):
    (folder / "work.json").write_bytes(pack(json.dumps(CHAT).encode()))
    ended = await run_command("compact", "work.json", "--json", place=folder)
    assert (ended.code, ended.complaint) == (0, "")


@pytest.mark.parametrize("words", [("doctor",), ("keys", "list"), ("transcripts", "list")])
async def test_a_folder_that_cannot_be_looked_at_is_reported(folder, words):
    ended = await run_command(*words, "--state", "x" * 300, place=folder)
    assert (ended.code, ended.complaint.count("\n")) == (1, 1)
    assert ended.complaint.endswith("x: File name too long\n") or "/originals: File" in ended.complaint


@pytest.mark.parametrize("words", [("check",), ("explain", "--json"), ("transcripts", "list")])
async def test_a_disk_that_is_full_is_reported(folder, words):
    (folder / "state").mkdir()
    ended = await run_command(*words, place=folder, stdout="/dev/full")
    assert ended.code == 1
    assert ended.complaint.endswith("No space left on device\n")
    assert "Traceback" not in ended.complaint


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["compact", "work.json", "--apply"], 0),
        (["transcripts", "delete", "--user", "ann", "--state", "."], 1),
        (["no-such-command"], 2),
    ],
)
def test_a_command_whose_channels_are_closed_does_its_work(folder, words, status):
    (folder / "work.json").write_text(json.dumps(CHAT))
    command = ("sh", "-c", 'exec "$@" <&- >&- 2>complaints', "sh", sys.executable, "-m", "proxy", *words)
    assert subprocess.run(command, cwd=folder, check=False).returncode == status
    assert "Traceback" not in (folder / "complaints").read_text()


def test_ctrl_c_counts_while_modules_are_loaded(monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("proxy.__main__.import_module", interrupt)
    assert entry_point() == INTERRUPTED_STATUS


@pytest.mark.seconds
def test_the_output_of_a_command_is_read_as_a_file(folder):
    (folder / "chat.json").write_text('{"messages": [{"role": "user", "content": "Hello."}]}')
    line = f"{sys.executable} -m proxy compact <(cat chat.json)"
    ended = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(("answer", "state"), [("y", "off"), ("n", "on"), ("", "on")])
def test_it_asks_on_a_terminal(capsys, monkeypatch, folder, answer, state):
    terminal = io.StringIO(f"{answer}\n")
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdin", terminal)
    (folder / "state").mkdir()
    with announce(folder / "state", "http://127.0.0.1:8800"):
        assert main(["switch", "off"]) == (0 if state == "off" else 1)
    assert "switch compaction to off for all teams on every replica? [y/N]" in capsys.readouterr().err
    main(["switch", "show"])
    assert capsys.readouterr().out == f"all teams: {state}\n"


@pytest.mark.parametrize(("has_colours", "marks"), [(True, True), (False, False)])
def test_no_color_is_heeded_by_the_log(monkeypatch, capfd, has_colours, marks):
    monkeypatch.setattr(log, "is_terminal", lambda: True)
    shown = log.Log("info", "text", color=has_colours)
    shown(events.StoreFailed("x"))
    shown.close()
    assert ("\x1b[" in capfd.readouterr().out) == marks


@pytest.mark.slow
def test_no_color_and_log_level_reach_the_log_of_serve(folder):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "proxy", "serve", "--port", "0", "--log-level", "debug"]
    process = subprocess.Popen(command, stdout=theirs, env={"NO_COLOR": "1", "TERM": "xterm"})
    os.close(theirs)
    seen = b""
    while b"listening" not in seen.partition(b"state ")[2]:
        seen += os.read(ours, 4096)
    process.terminate()
    assert process.wait(20) == 0
    os.close(ours)
    assert b"\x1b[" not in seen


def test_the_effect_on_each_message_is_shown_as_a_diff(capsys, folder):
    call = {"id": "c1", "type": "function", "function": {"name": "Read", "arguments": '{"path": "a.py"}'}}
    lines = "\n".join(f"line {number} of the file, and more of it" for number in range(2_000))
    messages = [
        *user("Read it."),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": lines},
        *({"role": role, "content": "Go on."} for role in ("assistant", "user") * 12),
    ]
    (folder / "r.json").write_text(json.dumps({"model": "gpt-5.1", "messages": messages}))
    assert main(["compact", "r.json", "--step", "clear_results", "--keep-last", "1", "--diff"]) == 0
    output = capsys.readouterr().out
    conclusion, _, heading = output.splitlines()[:3]
    assert conclusion.startswith(
        "25,171 tokens in 27 messages become 205 (0.8 %) in 27, with 1 change; $0.0315 become "
    )
    assert heading == "@@ message 3 (tool) @@"
    assert output.count("@@ message") == 1
    assert "-line 1000 of the file" in output
    assert any(line.startswith("+") and "context proxy" in line for line in output.splitlines())


@pytest.mark.parametrize("options", [[], ["--step", "clear_results", "--keep-last", "1"], ["--drop", "2"]])
def test_a_diff_counts_the_messages_of_the_file_and_leaves_out_those_that_stay(capsys, folder, options):
    system = [{"role": "system", "content": "You are a tool."}, {"role": "developer", "content": "Be brief."}]
    talk = [{"role": role, "content": f"Go on. {turn}"} for turn in range(6) for role in ("user", "assistant")]
    messages = [*system, *talk, *user("And now?")]
    (folder / "r.json").write_text(json.dumps({"model": "gpt-5.1", "messages": messages}))
    assert main(["compact", "r.json", *options, "--diff"]) == 0
    headings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("@@")]
    dropped = ["@@ message 5 (user) @@", "@@ message 6 (assistant) @@"]
    assert headings == (dropped if options[:1] == ["--drop"] else [])


def test_the_parser_of_one_command_loads_no_other():
    assert list(build_parser(["check"])._subparsers._group_actions[0].choices) == ["check", "explain"]


def test_the_file_may_be_named_by_the_environment(capsys, monkeypatch, folder):
    (folder / "proxy.yaml").write_text("listn: {}\n")
    (folder / "other.yaml").write_text("listen: {port: 9000}\n")
    monkeypatch.setenv("COMPACTION_PROXY_CONFIG", str(folder / "other.yaml"))
    assert main(["check"]) == 0
    assert "other.yaml" in capsys.readouterr().out
    assert main(["check", "proxy.yaml"]) == 1
