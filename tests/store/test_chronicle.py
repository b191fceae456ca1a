"""The chronicle: nobody waits for it, any process reads what all wrote, and it never grows beyond its bounds."""

import sqlite3
import time

import pytest
from msgspec.structs import replace
from operating import TURN

from proxy.store import chronicle
from proxy.store.chronicle import Chronicle, Happening, Lasting, Tally


@pytest.fixture
def opened(tmp_path):
    """Chronicles of one machine, each as a process of its own would open it."""
    found = []

    def open_one(folder=tmp_path, **more):
        found.append(Chronicle(folder, **more))
        return found[-1]

    yield open_one
    for each in found:
        each.close()


def turns(of):
    return of.rows("select * from turns_1 order by at, number")


def test_what_was_told_is_written_with_all_its_figures(opened):
    one = opened()
    one.tell(TURN)
    one.close()
    (row,) = turns(one)
    assert {name: row[name] for name in ("conversation", "before", "after", "cached", "plain")} == {
        "conversation": "c" * 16,
        "before": 100,
        "after": 40,
        "cached": 30,
        "plain": 0.2,
    }


def test_every_process_reads_what_all_of_them_wrote(opened):
    one, other = opened(), opened()
    for number in range(20):
        one.tell(replace(TURN, before=number))
        other.tell(replace(TURN, before=100 + number))
    one.close()
    other.close()
    assert {row["before"] for row in turns(one)} == {*range(20), *range(100, 120)}
    assert len({(row["writer"], row["number"]) for row in turns(other)}) == 40


def test_counts_of_one_minute_add_up(opened):
    one, other = opened(clock=lambda: 125.0), opened(clock=lambda: 130.0)
    for each in (one, one, other):
        each.tell(Tally({"requests": 1}, "a"))
    one.close()
    other.close()
    assert one.rows("select minute, team, sum(many) as many from minutes_1 group by 1, 2") == [
        {"minute": 120, "team": "a", "many": 3}
    ]


def test_too_much_at_once_is_left_out_and_nobody_waits(opened, monkeypatch):
    monkeypatch.setattr(chronicle, "WAITING", 10)
    one, began = opened(), time.perf_counter()
    for _ in range(1_000):
        one.tell(Tally({"requests": 1}))
    assert time.perf_counter() - began < 0.2
    assert one.lost > 900


def test_the_oldest_lines_go_when_there_are_too_many(opened):
    now = [1_000.0]
    one = opened(lasting=Lasting(turns=5, happenings=5, seconds=10_000), clock=lambda: now[0])
    for number in range(20):
        now[0] += 1
        one.tell(replace(TURN, before=number))
    one.close()
    assert [row["before"] for row in turns(one)] == [15, 16, 17, 18, 19]


def test_what_is_too_old_goes(opened, tmp_path):
    now = [1_000.0]
    one = opened(clock=lambda: now[0], lasting=Lasting(seconds=100))
    one.tell(TURN)
    one.tell(Happening("warning", "x", "", "{}"))
    one.close()
    now[0] += 200
    later = opened(clock=lambda: now[0], lasting=Lasting(seconds=100))
    later.tell(Tally({"requests": 1}))
    later.close()
    assert turns(later) == []
    assert later.rows("select * from happenings_1") == []


def test_a_broken_file_is_begun_anew(opened, tmp_path):
    (tmp_path / chronicle.FILE).write_bytes(b"no database" * 100)
    said = []
    one = opened(warn=said.append)
    assert one.rows("select 1 from turns_1") == []
    one.tell(TURN)
    time.sleep(3 * chronicle.GATHER_SECONDS)
    one.tell(TURN)
    one.close()
    assert len(turns(one)) == 1
    assert said


def test_a_disk_that_fails_is_told_of_once(opened, tmp_path):
    said = []
    folder = tmp_path / "file"
    folder.write_text("in the way")
    one = opened(folder, warn=said.append)
    for _ in range(2):
        one.tell(TURN)
        time.sleep(2 * chronicle.GATHER_SECONDS)
    one.close()
    assert len(said) == 1


def test_only_this_user_can_read_it(opened, tmp_path):
    one = opened()
    one.tell(TURN)
    one.close()
    assert one.path.stat().st_mode & 0o777 == 0o600


def test_it_holds_no_word_of_a_conversation():
    columns = sqlite3.connect(":memory:")
    columns.executescript(chronicle._TABLES)
    names = {row[1] for row in columns.execute("pragma table_info(turns_1)")}
    columns.close()
    assert not names & {"message", "text", "content", "body", "title"}


# --- values that a database does not take ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "poison",
    [
        replace(TURN, model="m\ud800"),
        replace(TURN, conversation="\udfff"),
        replace(TURN, written=10**30, prompt=2**63),
        replace(TURN, paid=float("nan"), plain=float("inf")),
        Happening("info", "n\ud800"[:1], "\ud800", '{"a": "\ud800"}'),
        Tally({"raw": 10**30}, "team\ud800"),
    ],
)
def test_an_odd_name_or_figure_costs_no_other_line(opened, poison):
    one = opened()
    for item in (TURN, poison, TURN, Tally({"requests": 1})):
        one.tell(item)
    one.close()
    assert len([row for row in turns(one) if row["model"] == "m" and row["written"] == 5 and row["paid"]]) >= 2
    assert one.rows("select sum(many) as many from minutes_1 where name = 'requests'") == [{"many": 1}]


def test_the_largest_figures_can_still_be_added_up(opened):
    one = opened()
    for _ in range(100):
        one.tell(replace(TURN, prompt=10**30))
    one.close()
    (row,) = one.rows("select sum(prompt) as sum, count(*) as many from turns_1")
    assert row["sum"] / row["many"] * Lasting().turns < 2**63


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_died_is_started_again(opened):
    one = opened()
    one.tell(None)  # ends it, as closing does
    one.tell("not a line")
    one._thread.join(5)
    one.tell(TURN)
    one._thread.join(0.5)
    one.tell(TURN)
    one.close()
    assert turns(one)
