"""Files of a folder: recognised by their content, read as far as possible, and never trusted."""

import gzip
import json

import pytest

from proxy.lab.replay.replay_history import ReplayHistory
from proxy.lab.sessions import FORMATS, read_conversations, read_sessions
from proxy.lab.sessions.session_files import UnreadableError
from tests.lab.conversation_text import SAMPLES, format_lines, lines
from tests.support.verification import is_json


def test_a_file_is_recognised_by_its_content_whatever_its_name(tmp_path):
    for place in [path for path in SAMPLES.rglob("*") if path.is_file() and "storage" not in path.parts]:
        source = place.read_bytes()
        (tmp_path / "x.txt").write_bytes(source)
        (tmp_path / "y.bin").write_bytes(gzip.compress(source))
        kinds = {session.format for name in ("x.txt", "y.bin") for session in read_sessions(tmp_path / name)}
        assert kinds == {session.format for session in read_sessions(place)}, place


def test_calls_without_results_and_results_without_calls_are_repaired_and_reported(tmp_path):
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    path = lines(
        tmp_path / "cut",
        {"role": "user", "content": "Go"},
        {"role": "tool", "tool_call_id": "never", "content": "lost"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "user", "content": "Stop"},
        {"role": "assistant", "content": "Stopped."},
    )
    (session,) = read_sessions(path)
    assert format_lines(session.conversations[0]) == [
        "user: Go",
        "assistant:  a=f()",
        "tool a: [No result of this call was recorded.]",
        "user: Stop",
        "assistant: Stopped.",
    ]
    assert session.notes == {
        "calls without a recorded result, answered by a fixed text": 1,
        "results without their call, left out": 1,
    }


def test_ids_that_repeat_are_paired_with_the_nearest_call(tmp_path):
    def turn(result):
        call = {"id": "same", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        asked = {"role": "assistant", "content": None, "tool_calls": [call]}
        return [asked, {"role": "tool", "tool_call_id": "same", "content": result}]

    path = lines(tmp_path / "ids", {"role": "user", "content": "Go"}, *turn("one"), *turn("two"))
    assert format_lines(next(read_conversations(path)))[2::2] == ["tool same: one", "tool same: two"]


def test_an_unknown_file_format_is_reported_with_the_known_ones(tmp_path):
    path = lines(tmp_path / "notes.json", {"title": "Shopping", "items": ["bread"]})
    with pytest.raises(UnreadableError) as figures:
        list(read_conversations(path))
    assert all(known.looks_for in str(figures.value) for known in FORMATS)
    assert str(path) in str(figures.value)


@pytest.mark.parametrize("source", [b"", b"\x00\xff\x00", b"\x1f\x8b cut off", b"Dear diary,\n", b"[" * 100_000])
def test_a_file_without_json_is_an_error_that_names_it(tmp_path, source):
    path = tmp_path / "whatever"
    path.write_bytes(source)
    with pytest.raises(UnreadableError, match="whatever"):
        list(read_conversations(path))


def test_unknown_files_of_a_folder_are_skipped_and_reported(tmp_path):
    (tmp_path / "readme.md").write_text("# Sessions", encoding="utf-8")
    lines(tmp_path / "settings.json", {"theme": "dark"})
    lines(tmp_path / "session", {"role": "user", "content": "Go"}, {"role": "assistant", "content": "Gone."})
    found = list(read_sessions(tmp_path))
    assert [(each.place.name, each.format) for each in found] == [
        ("readme.md", ""),
        ("session", "OpenAI messages"),
        ("settings.json", ""),
    ]


WRONG = [None, True, -1, 1.5, "", "x", [], [None], [[1]], {}, {"role": 1}, {"content": {"a": 1}}, "\ud800"]


@pytest.mark.seconds
@pytest.mark.parametrize("place", [path for path in sorted(SAMPLES.rglob("*")) if path.is_file()], ids=lambda p: p.name)
def test_a_value_of_another_kind_anywhere_trips_no_reader(place, tmp_path):
    """Each member of each object of each sample in turn becomes something else; who still knows the file reads it."""
    source = place.read_text(encoding="utf-8").splitlines() if place.suffix == ".jsonl" else [place.read_text("utf-8")]
    rows = [json.loads(line) for line in source if is_json(line)]
    for number, (holder, key) in enumerate(_members(rows)):
        kept = holder[key]
        holder[key] = WRONG[number % len(WRONG)]
        (tmp_path / "odd").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        holder[key] = kept
        try:
            for conversation in read_conversations(tmp_path / "odd"):
                assert ReplayHistory(conversation).places, conversation
        except UnreadableError:
            continue


def _members(value):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, within in list(items):
        yield value, key
        yield from _members(within)
