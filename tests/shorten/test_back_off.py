"""What was shortened and is fetched again is seen, carries others of its kind, and is kept by the next block."""

import json

import pytest
from msgspec.structs import replace

from proxy.shorten.back_off import CARRIED, CARRIED_MAX, CLOSING, OPENING
from proxy.shorten.block import Block, Part, Refetch
from proxy.shorten.rules import Facts, Keep, Rules
from proxy.shorten.summary import SummaryRules
from tests.support.apis import each_other_api
from tests.support.compaction_worker import Worker
from tests.support.cost_growth import count_lines
from tests.support.messages import assistant, call, calls, history, user

RULES = Rules(
    keep=Keep(tokens=2_000, groups=1),
    trigger_tokens=40_000,
    min_groups=0,
    summary=SummaryRules(enabled=False),
)
FILES = 16
PARTS = [f"part{number}" for number in range(FILES)]


def text(name):
    return f"# {name}\n" + "\n".join(f"def {name}_{number}(): return {number}" for number in range(450))


def read(name):
    return call("Read", file_path=f"{name}.py", out=text(name))


class Session:
    """A conversation that grows by one call a request; each is sent by two workers, of which one remembers nothing."""

    def __init__(self, rules=RULES, **api):
        self.api = api
        self.worker = Worker(rules, Facts(usable_tokens=100_000), **api)
        self.pieces = []
        self.sent = None

    def go_on(self, piece):
        before, self.pieces = self.sent, [*self.pieces, piece]
        messages = history(user("Work through the files."), *self.pieces)
        self.sent = self.worker.send(messages)
        other = Worker(self.worker.rules, self.worker.facts, store=self.worker.store, **self.api)
        assert other.decides(messages).left == self.sent.left
        if before is not None and self.sent.plan.action != "created":
            assert self.sent.raws[: len(before.raws)] == before.raws
        return self.sent

    def read(self, *names):
        for name in names:
            self.go_on(read(name))

    @property
    def last_text(self):
        return self.sent.plan.view[-1].text

    @property
    def refetches(self):
        return [
            (refetch.place, refetch.earlier, len(refetch.carried))
            for refetch in self.sent.driver.forwarding.state.refetches
        ]


@pytest.fixture
def session():
    """A fold has taken the first files."""
    session = Session()
    session.read(*PARTS)
    assert "def part1_449" not in b"".join(session.sent.raws).decode()
    return session


def test_a_result_that_was_shortened_and_is_fetched_again_is_counted(session):
    session.read("part1")
    assert session.refetches == [(34, 4, 0)]
    session.read("new")
    assert session.refetches == [(34, 4, 0)]
    assert session.sent.plan.refetch_cost.refetches == 0, "the request before counted it"


def test_what_stands_in_view_is_not_fetched_again(session):
    session.go_on(read(f"part{FILES - 1}"))
    assert session.refetches == []


def test_a_fetched_file_that_is_read_again_is_not_counted_again(session):
    session.read("part1", "part1")
    assert len(session.refetches) == 1


def test_the_third_fetch_carries_the_nearest_files_behind_it(session):
    session.read("part3", "part4", "part5")
    assert [carried for _, _, carried in session.refetches] == [0, 0, CARRIED_MAX]
    assert session.last_text.startswith(text("part5"))
    assert session.last_text.endswith(CLOSING)
    _, _, behind = session.last_text.partition(OPENING)
    carried = [number for number in range(FILES) if text(f"part{number}") in behind]
    assert carried == [6, 7, 8]
    session.go_on(assistant("Now I have them."))
    assert [message.made for message in session.sent.plan.view].count(CARRIED) == 1


def test_a_carried_file_is_not_carried_again_and_its_read_is_no_fetch(session):
    session.read("part3", "part4", "part5", "part6")
    assert len(session.refetches) == 3


def test_a_file_that_was_changed_is_not_carried(session):
    session.go_on(call("Edit", file_path="part6.py", old_string="a", new_string="b", out="ok"))
    session.read("part3", "part4", "part5")
    assert text("part6") not in session.last_text


def test_a_block_keeps_the_fetches_before_it(session):
    session.read("part3", "part4", "part5")
    refetches = session.refetches
    for number in range(20, 40):
        session.go_on(read(f"part{number}"))
        assert session.refetches[: len(refetches)] == refetches


def test_a_stored_block_holds_its_fetches():
    block = Block(4, (Part(0, 4),), made_at=9, refetches=(Refetch(5, 2), Refetch(8, 3, (1, 2))), carry_tokens=900)
    assert Block.from_bytes(block.to_bytes()) == block


@pytest.mark.parametrize("refetches", [[[2, 5]], [[9, 2]], [[5, -1]], [[5, 2, ["x"]]], [[5]], "x", [[5, 2, [7]]]])
def test_a_damaged_refetch_makes_a_block_unreadable(refetches):
    value = json.loads(Block(4, (Part(0, 4),), made_at=9).to_bytes())
    assert Block.from_bytes(json.dumps({**value, "fetches": refetches}).encode()) is None


def test_what_a_request_would_have_been_leaves_out_what_was_fetched(session):
    before = session.sent.plan
    session.read("part1")
    assert session.sent.plan.refetch_cost.is_whole_step
    assert session.sent.plan.tokens_unshortened == 0
    session.read("new")
    assert session.sent.plan.tokens_unshortened == pytest.approx(before.tokens_before * 17 / 16, rel=0.01)


def test_a_step_that_also_brings_something_new_is_no_whole_step(session):
    session.go_on(calls(("Read", {"file_path": "part1.py"}, text("part1")), ("Read", {"file_path": "n.py"}, text("n"))))
    assert session.sent.plan.refetch_cost.refetches == 1
    assert not session.sent.plan.refetch_cost.is_whole_step
    assert 0 < session.sent.plan.refetch_cost.new_tokens == session.sent.plan.refetch_cost.tokens


def grow_until_made(session, first):
    for number in range(first, first + 60):
        session.go_on(read(f"part{number}"))
        if session.sent.plan.action == "created":
            return
    raise AssertionError("no block was made")


def test_the_next_fold_leaves_whole_what_was_fetched_and_what_came_with_it(session):
    session.read("part3", "part4", "part5")
    grow_until_made(session, 20)
    view = "\n".join(message.text for message in session.sent.plan.view)
    assert [number for number in range(9) if text(f"part{number}") in view] == [3, 4, 5, 6, 7, 8]
    assert text("part20") not in view


def test_a_fetched_file_that_has_changed_goes_with_the_next_fold(session):
    session.read("part3")
    session.go_on(call("Edit", file_path="part3.py", old_string="a", new_string="b", out="ok"))
    grow_until_made(session, 20)
    assert text("part3") not in "\n".join(message.text for message in session.sent.plan.view)


@pytest.mark.parametrize(("fetched", "is_left"), [((7,), False), ((7, 8, 9), True)])
def test_the_next_fold_leaves_as_much_whole_as_three_fetches_reached_back(session, fetched, is_left):
    for number in fetched:
        session.go_on(read(f"part{number}"))
    grow_until_made(session, 20)
    newest_kept = [message for message in session.sent.plan.view if message.is_result and message.made == ""]
    assert (len(newest_kept) >= 5) is is_left


@each_other_api
def test_on_the_other_apis_too(api):
    session = Session(wire=api.wire, write=api.write)
    session.read(*PARTS)
    session.read("part3", "part4", "part5")
    assert [carried for _, _, carried in session.refetches] == [0, 0, CARRIED_MAX]
    assert text("part8") in session.last_text
    assert text("part8").splitlines()[-1] in session.sent.left.decode()
    grow_until_made(session, 20)
    assert text("part8") in "\n".join(message.text for message in session.sent.plan.view)


@pytest.mark.seconds
def test_many_fetches_at_once_cost_what_each_of_them_costs():
    """The block and the results behind it are two sizes of one request: the cost is not their product."""
    rules = replace(RULES, trigger_tokens=8_000)

    def count(files):
        reads = [call("Read", file_path=f"part{number}.py", out=f"{number} {'x' * 700}") for number in range(files)]
        worker = Worker(rules, Facts(usable_tokens=100_000_000))
        assert worker.send(history(user("Go."), *reads)).plan.action == "created"
        twice = history(user("Go."), *reads, *reads)
        return count_lines(lambda: worker.send(twice)).total()

    assert count(1_600) <= 2.1 * count(800)
