"""What a conversation holds many of costs in proportion to their number, and a turn costs what is new in it.

What is counted is how often each line of the package runs, for a number of one kind, twice and four times as many: for
a first request of which all is shortened that may be, for a turn after it, and for a rewrite. Line by line, for the
square of a number in one place is less than what all others cost, up to thousands.
"""

import json
import re
from dataclasses import replace

import pytest
from msgspec.structs import replace as with_values

from proxy.history.pins import Pins
from proxy.shorten.clear_results import StripReasoning
from proxy.shorten.rules import Facts, Keep, Rules
from proxy.shorten.summary import SummaryRules
from proxy.shorten.tool_designs import ClearArguments, DedupOld, StripAttachments
from proxy.wire.formats import REQUEST_FORMATS
from proxy.wire.known_requests import KnownRequests
from tests import ROOT
from tests.support.compaction_worker import Worker
from tests.support.cost_growth import count_lines
from tests.support.growing_requests import BULK, MARKER, ONLY_IN, PATHS, SHAPES, write
from tests.support.messages import assistant, call, history, user

STANDING = Rules(
    min_groups=0,
    pins=Pins(tags=("pin",), markers=(MARKER,)),
    summary=SummaryRules(enabled=False),
)
EAGER = with_values(
    STANDING,
    when_full=(StripReasoning(with_calls=True), DedupOld(), *Rules().when_full, ClearArguments(), StripAttachments()),
    keep=Keep(tokens=100, groups=1),
    trigger_tokens=600,
    clear_at_least=1,
    min_progress=0.0,
)
NUMBERS = (25, 50, 100)
MORE_OF = {"reads of one file": 4}
"""Times those numbers: each is compared with all others, of which at most 64 are kept."""
MOST_TIMES_MORE = 2.6
SPORADIC = 30
"""So often a line may run beyond that."""
MOST_TIMES_DEARER_TURN = 1.5
"""For four times as many: some loops of a turn only look at each message, and call nothing."""
TURN = [*assistant("Yes."), *user("And then?")]
COLUMN = re.compile(r'\.(?:column|map|memo)\(\s*"([^"]+)"')
OF_COLUMNS = {
    "group starts": "results one answer late",
    "callers": "ids that repeat",
    "token sums": "items of unknown kinds",
    "turns": "short messages",
    "foldable tokens": "instructions in the midst",
    "clearable tokens": "documents",
    "links": "escapes in each message",
    "canonical kinds": "marks in each message",
    "cache marks": "marks in each message",
    "head digest": "instructions at the head",
    "block": "short messages",
    "content hashes": "long results again and again",
    "references": "computer calls",
    "last users": "reminders of the harness",
    "text style": "short messages",
    "observations": "output in messages of the user",
    "results": "one file read and changed",
    "documents": "reads of one document",
    "pinned passages": "messages with pins",
    "compact requests": "words about compaction",
    "tail": "rejections of the user",
    "written": "reasoning between calls",
}
"""For each column, a history of messages that it looks at."""
FAST = {"calls in one message", "files that git puts back", "lines of a command", "parts", "tools"}
OTHERS = (
    *("a list of arguments", "calls answered backwards", "changes of one file", "commands", "deleted files"),
    *("errors of a result", "failed calls", "files read twice", "here-documents", "images", "parts with cache marks"),
    *("names that the user gives", "paths of a result", "pins", "plans", "pointers at many files"),
    *("pointers at one file", "pointers at other lines", "promises about many files", "reads of one file"),
    *("reminders", "results of the provider's tools", "results without calls", "tasks", "words of a command"),
    *("the same result again and again", "tools of which most are called", "uses of the provider's tools"),
)
KINDS = [
    pytest.param(kind, marks=() if kind in FAST else pytest.mark.seconds)
    for kind in sorted({*FAST, *OTHERS, *OF_COLUMNS.values()})
]


class Life:
    """A conversation, and how often each line has run for each of its requests."""

    def __init__(self, api, shape):
        self.api, self.shape = api, shape
        wire = REQUEST_FORMATS[PATHS[api]]
        self.worker = Worker(EAGER, Facts(), wire=wire, write=lambda source: source, known=KnownRequests())

    def send(self, rules, *later):
        self.shape = replace(self.shape, messages=[*self.shape.messages, *later])
        self.worker.rules, source, sent = rules, write(self.api, self.shape), []
        self.counts = count_lines(lambda: sent.append(self.worker.send(source)))
        return sent[0].plan.action, self.counts


def read_more(time=0):
    """What is new since a block, and enough for another one."""
    reads = history(*(call("Read", path=f"/{time}/{number}.py", out=f"{number}\n{BULK}") for number in range(12)))
    return [*json.loads(json.dumps(reads).replace('"call_', f'"new_{time}_')), *TURN]


def find_dearest(counts):
    """The lines that run more often with each number than in proportion, also to what came with it."""
    for line in counts[-1]:
        few, some, many = (count[line] for count in counts)
        is_dear = all(more > MOST_TIMES_MORE * less + SPORADIC for less, more in ((few, some), (some, many)))
        if is_dear and many - some > MOST_TIMES_MORE * (some - few) + SPORADIC:
            code, number = line
            yield f"{code.co_qualname}:{number} ran {few}, {some} and {many} times"


@pytest.mark.parametrize("kind", KINDS)
def test_many_of_a_kind_cost_in_proportion_and_a_turn_what_is_new_in_it(kind):
    first, turns, rewrites = [], [], []
    for number in (1, *NUMBERS):
        life = Life(ONLY_IN.get(kind, "chat"), SHAPES[kind](number * MORE_OF.get(kind, 1)))
        steps = [life.send(EAGER), life.send(STANDING, *TURN), life.send(STANDING, *TURN)]
        steps += [life.send(EAGER, *read_more()), life.send(STANDING, *TURN), life.send(STANDING, *TURN)]
        assert [action for action, _ in steps] == ["created", "applied", "applied"] * 2
        first.append(steps[0][1])
        turns.append([steps[2][1].total(), steps[5][1].total()])
        rewrites.append(steps[3][1])
    assert [*find_dearest(first[1:])] == []
    assert [*find_dearest(rewrites[1:])] == []
    for few, _, many in zip(*turns[1:], strict=True):
        assert many <= MOST_TIMES_DEARER_TURN * few


def come_from_another(life, number):
    life.worker.tenant = f"team-{number}"
    life.send(EAGER)


def branch_off(life, number):
    life.shape = replace(life.shape, messages=history(*life.begun, user(f"Try way {number}.")))
    life.send(EAGER)


def fold_again(life, number):
    life.send(EAGER, *read_more(number + 1))


@pytest.mark.parametrize("happens", [come_from_another, branch_off, fold_again])
def test_what_has_happened_before_costs_a_request_nothing(happens):
    firsts, turns = [], []
    for number in (4, 16):
        life = Life("chat", SHAPES["commands"](40))
        life.begun = [life.shape.messages]
        for time in range(number):
            happens(life, time)
        life.send(STANDING, *TURN)
        turns.append(life.send(STANDING, *TURN)[1].total())
        happens(life, number)
        firsts.append(life.counts.total())
    assert turns[1] <= MOST_TIMES_DEARER_TURN * turns[0]
    assert firsts[1] <= (4 if happens is fold_again else 1) * MOST_TIMES_DEARER_TURN * firsts[0]


def test_each_column_has_histories_of_messages_that_it_looks_at():
    text = "".join(path.read_text() for path in (ROOT / "proxy").rglob("*.py"))
    assert OF_COLUMNS.keys() == {*COLUMN.findall(text)}
