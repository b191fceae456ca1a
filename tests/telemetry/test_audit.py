"""What is done by the admin pages stays written down, whatever is done after it."""

import json
import resource
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxy.events import AdminActed
from proxy.telemetry import activity
from proxy.telemetry.activity import REFUSALS_PER_MINUTE, AuditLog, read_newest


def act(number=0, outcome="done"):
    return AdminActed("admin", "127.0.0.1", "revoke key", f"key-{number}", outcome)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(activity, "FILE_LIMIT_BYTES", 400)


def write(log, *acts):
    for each in acts:
        log(each)
    log.flush()


def subjects(folder):
    lines = [line for file in folder.glob("audit*.jsonl") for line in file.read_text().splitlines()]
    return [json.loads(line)["subject"] for line in lines]


def test_no_act_is_lost_however_many_follow_it(tmp_path, small):
    """Two workers write into one folder."""
    one, other = AuditLog(tmp_path, pytest.fail), AuditLog(tmp_path, pytest.fail)
    for number in range(0, 40, 2):
        one(act(number))
        other(act(number + 1))
    one.flush()
    other.flush()
    assert len(list(tmp_path.glob("audit*.jsonl"))) > 3
    assert sorted(subjects(tmp_path)) == sorted(f"key-{number}" for number in range(40))


def test_an_act_is_written_although_another_worker_sets_the_file_aside_first(tmp_path, small, monkeypatch):
    replace = Path.replace

    def replace_second(path, target):
        replace(path, path.with_name("audit.1.jsonl"))
        return replace(path, target)

    log = AuditLog(tmp_path, pytest.fail)
    write(log, *map(act, range(3)))
    monkeypatch.setattr(Path, "replace", replace_second)
    write(log, act(3))
    assert sorted(subjects(tmp_path)) == [f"key-{number}" for number in range(4)]


def test_the_newest_acts_are_listed_even_right_after_a_file_was_set_aside(tmp_path, small):
    log = AuditLog(tmp_path, pytest.fail)
    for number in range(10):
        write(log, act(number))
        newest = [line["subject"] for line in read_newest(log.path, 2)]
        assert newest == [f"key-{each}" for each in (number, number - 1) if each >= 0]
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_of_refused_tries_some_are_written_and_of_acts_all(tmp_path):
    """The minute may be over by then."""
    log = AuditLog(tmp_path, pytest.fail)
    write(log, *[act(0, "refused")] * 500, *map(act, range(1, 100)))
    assert REFUSALS_PER_MINUTE <= subjects(tmp_path).count("key-0") <= 2 * REFUSALS_PER_MINUTE
    assert subjects(tmp_path)[-99:] == [f"key-{number}" for number in range(1, 100)]


def test_an_act_that_cannot_be_written_is_reported(tmp_path):
    complaints = []
    write(AuditLog(tmp_path / "absent", complaints.append), act())
    assert "admin actions are not recorded" in complaints[0]
    assert not (tmp_path / "absent").exists()


@contextmanager
def room_for(log, room_bytes):
    """A file that cannot grow by more than this, as on a disk that is almost full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.path.stat().st_size + room_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_an_act_cut_off_by_a_full_disk_is_reported_and_swallows_no_later_one(tmp_path):
    complaints = []
    log = AuditLog(tmp_path, complaints.append)
    write(log, act(1))
    with room_for(log, 60):
        write(log, act(2))
    assert "No space left on device: audit log write failed" in complaints[0]
    other = AuditLog(tmp_path, pytest.fail)  # after a restart, or another worker
    write(other, act(3), act(4))
    assert [line["subject"] for line in read_newest(log.path, 10)] == ["key-4", "key-3", "key-1"]


@pytest.mark.parametrize("line", ['{"torn": ', "[]", "7", "{}", '{"at": "yesterday"}', '{"at": 7}', "\x00"])
def test_a_line_that_is_no_act_hides_no_other(tmp_path, line):
    log = AuditLog(tmp_path, pytest.fail)
    write(log, act(1))
    with log.path.open("a") as file:
        file.write(f"{line}\n")
    write(log, act(2))
    assert [line["subject"] for line in read_newest(log.path, 10)] == ["key-2", "key-1"]
