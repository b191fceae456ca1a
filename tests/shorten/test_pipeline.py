"""Steps run one after the other, and one that breaks an invariant is left out."""

from dataclasses import dataclass
from typing import ClassVar

from hypothesis import given
from msgspec.structs import replace

from proxy.history.observations import OBSERVATIONS
from proxy.shorten.bounds import bound_message
from proxy.shorten.clear_results import ClipOutput, DedupArrivals, StripReasoning
from proxy.shorten.drop_middle import DropMiddle
from proxy.shorten.pipeline import Draft, StepReport, estimate_tokens, run
from proxy.shorten.state import are_spared
from proxy.shorten.tool_designs import StripAttachments, ToolHints
from tests.support.histories import any_history
from tests.support.messages import assistant, body, call, mark_output, parse_request, request, user
from tests.support.worker_cases import CLEARING, HINTS

BODY = request(
    user("do it"), call("Read", out="x" * 400), call("Read", out="y"), user("thanks"), assistant("done")
).body
DRAFT = Draft(BODY[:1], BODY[1:4], BODY[4:], fixed=frozenset({3}), origin=BODY, tools=b'[{"name": "Read"}]')


@dataclass(frozen=True)
class Does:
    """A step that does what a test tells it."""

    what: object
    name: ClassVar[str] = "does"

    def __call__(self, draft):
        return self.what(draft)


def short(draft):
    return draft.rewrite(lambda message, _: message.with_text("s", "does") if message.is_result else message)


def test_a_report_says_what_was_touched_and_what_it_saved():
    left, reports = run([Does(short), Does(lambda draft: draft)], DRAFT)
    assert reports == (
        StepReport("does", 1, estimate_tokens(BODY[2].raw) - estimate_tokens(left.middle[1].raw)),
        StepReport("does", 0, 0),
    )
    assert left.view[3] is BODY[3]


def test_fewer_tools_count_as_saved():
    _, (report,) = run([Does(lambda draft: replace(draft, tools=b"[]"))], DRAFT)
    assert report == StepReport("does", 0, estimate_tokens(DRAFT.tools))


def test_a_message_that_would_not_get_shorter_stays():
    left = DRAFT.rewrite(lambda message, _: message.with_text("z" * 1_000, "does"))
    assert left.middle == DRAFT.middle


ALL = (*CLEARING, ToolHints(HINTS, over=50), StripReasoning(with_calls=True), StripAttachments(), DropMiddle())


@given(any_history)
def test_no_step_clears_what_its_bound_says_it_cannot(messages):
    body_ = mark_output(parse_request(body(messages)).body, OBSERVATIONS)
    draft = Draft((), body_, origin=body_)
    for step in ALL:
        if not any(bound_message([step], *answer, estimate_tokens) for answer in draft.pair_with_calls()):
            assert step(draft).middle == draft.middle


@given(any_history)
def test_the_effect_of_an_always_step_depends_only_on_earlier_messages(messages):
    body_ = mark_output(parse_request(body(messages)).body, OBSERVATIONS)
    steps = (ClipOutput(over=300), DedupArrivals(over=50))
    whole, _ = run(steps, Draft((), body_, origin=body_))
    for stop in range(len(body_)):
        part, _ = run(steps, Draft((), body_[:stop], origin=body_))
        assert part.middle == whole.middle[:stop]


def test_always_steps_spare_short_results_and_those_that_are_new():
    short, long = request(user("x"), call("Read", out="ok"), call("Read", out="a" * 900)).body[2::2]
    others = list(range(5))
    assert are_spared([ClipOutput(over=500)], [short], None, others)
    assert not are_spared([ClipOutput(over=500)], [short, long], None, others)
    assert are_spared([DedupArrivals(over=500)], [short, long], None, others)
    repeated = [0] * 5
    assert are_spared([DedupArrivals(over=500)], [short], None, repeated)
    assert not are_spared([DedupArrivals(over=500)], [short, long], None, repeated)
    assert not are_spared([print], [short], None, others)
