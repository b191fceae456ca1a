"""The activity log: recording never waits, every process reads what all wrote, and the file stays within its limits."""

import sqlite3
import threading
import time
from contextlib import closing

import pytest
from msgspec.structs import replace

from proxy.store import activity_log
from proxy.store.activity_log import ActivityLog, Incident, RetentionLimits
from proxy.store.usage_sums import UsageDelta, UsageNames
from tests.support.admin_client import TURN
from tests.support.clocks import Clocks, even_clock
from tests.support.proxy_client import until


@pytest.fixture
def open_log(tmp_path):
    """Activity logs of one machine, each as a process of its own would open it."""
    found = []

    def open_one(folder=tmp_path, **more):
        found.append(ActivityLog(folder, **more))
        return found[-1]

    yield open_one
    for each in found:
        each.close()


def turns(of):
    return of.query("select * from turns order by at, id")


def test_every_process_reads_what_all_of_them_wrote(open_log):
    one, other = open_log(), open_log()
    for number in range(20):
        one.record(replace(TURN, tokens_before=number))
        other.record(replace(TURN, tokens_before=100 + number))
    one.close()
    other.close()
    assert {row["tokens_before"] for row in turns(one)} == {*range(20), *range(100, 120)}
    assert len(turns(other)) == 40


def test_rows_beyond_the_queue_are_dropped_without_waiting(open_log, monkeypatch):
    monkeypatch.setattr(activity_log, "QUEUED_RECORDS_MAX", 10)
    one = open_log()
    for _ in range(1_000):
        one.record(TURN)
        one.record(UsageDelta({"requests": 1}))
    assert one.writer.dropped > 900


def test_the_oldest_lines_go_when_there_are_too_many(open_log):
    now = [1_000.0]
    one = open_log(limits=RetentionLimits(turns=5, incidents=5, seconds=10_000), clock=even_clock(lambda: now[0]))
    for number in range(20):
        now[0] += 1
        one.record(replace(TURN, tokens_before=number))
    one.close()
    assert [row["tokens_before"] for row in turns(one)] == [15, 16, 17, 18, 19]


def test_warnings_do_not_push_out_what_summaries_cost(open_log):
    """Without it what was paid for a summary would be shown as saved."""
    now = [1_000.0]
    limits = RetentionLimits(incidents=3, paid_incidents=5, seconds=10_000)
    one = open_log(limits=limits, clock=even_clock(lambda: now[0]))
    for number in range(20):
        now[0] += 1
        one.record(Incident("info", "summary-ended", "c", {}, 0.5 + number), Incident("warning", "x", "", {}))
    for _ in range(20):
        now[0] += 1
        one.record(Incident("warning", "x", "", {}))
    one.close()
    rows = one.query("select name, dollars from incidents order by at")
    assert [row["dollars"] for row in rows if row["name"] == "summary-ended"] == [15.5, 16.5, 17.5, 18.5, 19.5]
    assert len([row for row in rows if row["name"] == "x"]) == 3


async def test_a_clock_that_is_ahead_for_a_while_removes_no_rows(open_log):
    clocks = Clocks(1_700_000_000.0)
    one = open_log(clock=clocks.as_system_clock())
    one.record(TURN)
    await until(lambda: turns(one))
    clocks.now += 400 * activity_log.DAY_SECONDS
    clocks.pass_time(activity_log.SWEEP_SECONDS + 1)
    one.record(UsageDelta({"requests": 1}))
    one.close()
    assert len(turns(one)) == 1


async def test_rows_that_are_too_old_are_removed_though_the_clock_was_set_back(open_log):
    """The clock was a day ahead at first, so the time of the last sweep is still to come."""
    hour = 3_600.0
    now = [100 * hour]
    one = open_log(clock=even_clock(lambda: now[0]), limits=RetentionLimits(seconds=hour))
    one.record(UsageDelta({"requests": 1}))
    await until(lambda: one.query("select * from usage_sums"))
    now[0] -= 24 * hour
    one.record(TURN)
    one.record(Incident("warning", "x", "", {}))
    await until(lambda: turns(one))
    now[0] += 2 * hour
    one.record(UsageDelta({"requests": 1}))
    one.close()
    assert turns(one) == one.query("select * from incidents") == []


def test_a_broken_log_file_is_replaced_by_a_new_one(open_log, tmp_path):
    (tmp_path / activity_log.FILE).write_bytes(b"no database" * 100)
    text = []
    one = open_log(warn=text.append)
    assert one.query("select 1 from turns") == []
    one.record(TURN)
    time.sleep(3 * activity_log.GATHER_SECONDS)
    one.record(TURN)
    one.close()
    assert len(turns(one)) == 2
    assert text


def test_a_log_file_that_was_emptied_is_begun_again_and_nobody_waits_for_it(open_log):
    """A reader that opened the emptied file waited 10 s for the locks that the writer held on it, at each query."""
    text = []
    one, other = open_log(warn=text.append), open_log(warn=text.append)
    for each in (one, other):
        each.record(TURN)
    wait_until(lambda: len(turns(one)) == 2)
    one.path.write_bytes(b"")
    begun = time.monotonic()
    assert turns(one) == turns(other) == []
    for each in (one, other):
        each.record(TURN)
    wait_until(lambda: len(turns(one)) == 2)
    assert time.monotonic() - begun < 5
    assert text == []


def test_a_locked_log_file_holds_up_only_the_first_query_of_a_page(open_log, monkeypatch):
    monkeypatch.setattr(activity_log, "READ_BUSY_SECONDS", 0.2)
    one = open_log()
    with closing(sqlite3.connect(one.path, isolation_level=None)) as holder:
        holder.execute("create table made_by_another_program (id integer)")
        holder.execute("begin exclusive")
        begun = time.monotonic()
        assert [turns(one) for _ in range(20)] == [[]] * 20
        assert time.monotonic() - begun < 2
    one.record(TURN)
    wait_until(lambda: turns(one))


def wait_until(is_so):
    end = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.seconds
def test_a_failing_disk_is_reported_once(open_log, tmp_path):
    text = []
    folder = tmp_path / "file"
    folder.write_text("in the way")
    one = open_log(folder, warn=text.append)
    for _ in range(2):
        one.record(TURN)
        time.sleep(2 * activity_log.GATHER_SECONDS)
    one.close()
    assert len(text) == 1


@pytest.mark.parametrize(
    "poison",
    [
        replace(TURN, model="m\ud800"),
        replace(TURN, conversation="\udfff"),
        replace(TURN, output_tokens=10**30, prompt_tokens=2**63),
        replace(TURN, paid_dollars=float("nan"), plain_dollars=float("inf")),
        Incident("info", "n", "\ud800", {"a": "\ud800", "b": 10**30}, float("nan")),
        UsageDelta({"tokens_raw": 10**30, "paid": float("nan")}, UsageNames("team\ud800")),
    ],
)
def test_an_odd_name_or_figure_costs_no_other_line(open_log, poison):
    one = open_log()
    for item in (TURN, poison, TURN, UsageDelta({"requests": 1})):
        one.record(item)
    one.close()
    whole = [row for row in turns(one) if (row["model"], row["output_tokens"]) == ("m", 5) and row["paid_dollars"]]
    assert len(whole) >= 2
    assert one.query("select sum(requests) as many from usage_sums") == [{"many": 1}]


def test_the_largest_figures_can_still_be_added_up(open_log):
    one = open_log()
    for _ in range(100):
        one.record(replace(TURN, prompt_tokens=10**30))
    one.close()
    (row,) = one.query("select sum(prompt_tokens) as sum, count(*) as many from turns")
    assert row["sum"] / row["many"] * RetentionLimits().turns < 2**63


def test_a_thread_that_has_died_is_started_again(open_log, monkeypatch):
    reported = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: reported.set())
    one = open_log()
    one.record("not a record")
    assert reported.wait(5)
    one.record(TURN)
    one.close()
    assert turns(one)


FORMER = """
create table turns (id integer primary key, at real not null, conversation text not null);
create index turns_by_time on turns (at);
create table minutes_1 (minute integer primary key);
insert into turns values (1, 5.0, 'c');
pragma user_version = 3;
"""


def test_the_history_of_another_version_is_dropped_and_recording_goes_on(open_log, tmp_path):
    with closing(sqlite3.connect(tmp_path / activity_log.FILE)) as db:
        db.executescript(FORMER)
    log = open_log(clock=even_clock(lambda: 60.0))
    log.record(TURN)
    log.close()
    assert [turn["tokens_after"] for turn in turns(log)] == [40]
    assert log.query("select name from sqlite_master where name = 'minutes_1'") == []
