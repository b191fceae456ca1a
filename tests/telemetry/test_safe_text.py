"""Control characters of conversations never reach a terminal as such."""

import io
import json

import pytest

from proxy import events
from proxy.cli import main
from proxy.telemetry.log import EscapedOutput, Log, encode_json, escape_controls
from tests.support.messages import call, chat, user
from tests.support.transcripts import exchange, keep, originals

ATTACK = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\u202ered\r\x7f\ud800"
FORBIDDEN = set("\x1b\x07\x9b\u202e\r\x7f")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, schön, 日本\tand\nlines", "plain, schön, 日本\tand\nlines"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b\u202e\ud800", "\\x9b\\u202e\\ud800"),
        ("a\rb", "a\\x0db"),
    ],
)
def test_controls_are_shown_and_not_obeyed(text, shown):
    assert escape_controls(text) == shown


def test_bytes_for_programs_stay_as_they_are():
    inner = io.TextIOWrapper(io.BytesIO(), "utf-8")
    output = EscapedOutput(inner)
    output.buffer.write(b"\x1b")
    print("\x1b", file=output)
    output.flush()
    assert inner.buffer.getvalue() == b"\x1b\\x1b\n"


def test_the_log_as_text_escapes_names_of_clients(capfd):
    log = Log("info", "text")
    log(events.SummaryEnded("c", "default", "up", "m" + ATTACK, "made\nforged line", 1, 1, 1, 1, 1.0))
    log.close()
    written = capfd.readouterr().out
    assert len(written.splitlines()) == 1
    assert not set(written) & FORBIDDEN


@pytest.mark.parametrize("words", [["show", "ID"], ["show", "ID", "--full"], ["search", "CANARY"], ["list"]])
def test_transcripts_are_shown_without_their_controls(capfd, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    attack = ATTACK.removesuffix("\ud800")
    talk = exchange(chat(user(attack + "CANARY"), call("read" + attack, out=attack + "CANARY"), user("And now?")))
    with originals(tmp_path / "state" / "originals") as kept:
        keep(kept, talk)
    name = talk.history.conversation
    assert main(["transcripts", *(name if word == "ID" else word for word in words), "--state", "state"]) == 0
    written = capfd.readouterr().out
    assert ("CANARY" in written) is (words != ["list"])
    assert not set(written) & FORBIDDEN


@pytest.mark.parametrize("value", ["m\ud800", 10**30, {"nested": ["\udfff"]}])
def test_a_line_is_written_whatever_a_client_or_an_upstream_named(value):
    assert json.loads(encode_json({"model": value})) == {"model": value}
