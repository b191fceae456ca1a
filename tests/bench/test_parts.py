"""What a turn costs at least: each part is done, and the page says what a mark leaves for them."""

import sys

from tests import ROOT

sys.path.insert(0, str(ROOT / "bench"))

import parts
from bodies import growing

from proxy.wire.chat.chat_format import CHAT_FORMAT


def test_two_messages_are_new_in_each_turn():
    turns = parts.Turns.of(growing(20_000, 4, 1))
    assert [len(new) for new in turns.new] == [2, 2, 2]
    assert [CHAT_FORMAT.parse(body) for body in turns.bodies] == list(turns.requests)


async def test_each_part_takes_processor_time(tmp_path):
    spent = await parts.measure_parts(tmp_path, parts.Turns.of(growing(20_000, 4, 1)))
    assert len(spent) == 5
    assert all(seconds > 0 for seconds in spent.values())


def test_the_page_says_what_a_mark_leaves():
    cpu = {"bare aiohttp": 0.0004, "the same, bypass": 0.0006, "compaction-proxy": 0.002}
    page = parts.report([{"one": 0.0001, "two": 0.0003}] * 3, {"1 kB": cpu, "100 kB, growing": cpu})
    assert "| all of it      | 400 |" in page
    row = next(line for line in page.splitlines() if line.startswith("| 100 kB, growing"))
    assert [cell.strip() for cell in row.split("|")][2:-1] == ["2", "1.50", "400", "600", "2,000", "800", "200"]
