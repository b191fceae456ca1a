"""What workers are driven with: rules, facts and summaries of every kind, and what to count in what leaves them."""

import json
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.history.grouping import find_groups
from proxy.history.messages import NOTE, find_last_assistant
from proxy.history.observations import OBSERVATIONS
from proxy.history.pins import Pins
from proxy.shorten.clear_results import ClearObservations, ClearResults, ClipOutput, DedupArrivals, StripReasoning
from proxy.shorten.drop_middle import DropMiddle
from proxy.shorten.economics import Prices
from proxy.shorten.fold import HEADING
from proxy.shorten.rules import Facts, Keep, Rules
from proxy.shorten.summary import Summary, SummaryRules
from proxy.shorten.tool_designs import ClearArguments, DedupOld, OneLiners, StripAttachments, ToolHints
from tests.support.compaction_worker import Worker, turns
from tests.support.histories import any_history, asked_and_answered, legal
from tests.support.messages import mark_output, parse_request

SMALL = Rules(
    always=(ClipOutput(over=1_500),),
    when_full=(ClearResults(over=200),),
    keep=Keep(tokens=200, groups=1),
    clear_at_least=300,
    min_groups=2,
    pins=Pins(tags=("pin",)),
    summary=SummaryRules(max_tokens=20, ledger=200, user_tokens=200),
)
HINTS = (("read", "keep", "strip"), ("bash", "remove", ""), ("edit", "strip", "keep"))
KEPT = (("read", "", "keep"), ("bash", "remove", ""))
CLEARING = (ClearResults(over=150), ClearObservations(over=150), ClearArguments(over=60, tools=("*",)))
RULES = st.sampled_from(
    [
        SMALL,
        replace(SMALL, clear_at_least=1, min_progress=0.0),
        replace(SMALL, always=(), trigger_tokens=600),
        replace(SMALL, clear_at_least=0, trigger_tokens=1_200, fold_cold_at_least=200),
        replace(SMALL, trigger_tokens=1_500, keep=Keep(tokens=400, groups=2, turns=1, first=2)),
        replace(SMALL, always=(ClipOutput(over=600),)),
        replace(
            SMALL, always=(ClipOutput(over=1_500), DedupArrivals(over=50)), when_full=(*CLEARING, StripAttachments())
        ),
        replace(SMALL, when_full=(StripReasoning(with_calls=True, signed=True), DedupOld(over=50), *CLEARING)),
        replace(SMALL, when_full=(ToolHints(HINTS, over=50), StripReasoning()), fold=(OneLiners(tokens=100),)),
        replace(SMALL, when_full=(ClipOutput(over=0, lines=5),), clear_at_least=1, fold=(OneLiners(), DropMiddle())),
        replace(SMALL, trigger_tokens=500, summary=replace(SMALL.summary, shape="single"), repair=True),
        replace(SMALL, trigger_tokens=500, summary=replace(SMALL.summary, shape="pair", pointer="See #1.")),
        replace(SMALL, new_blocks=False),
    ]
)
FACTS = st.sampled_from(
    [
        Facts(),
        Facts(usable_tokens=2_000),
        Facts(usable_tokens=700),
        Facts(usable_tokens=4_000, idle_seconds=1_000.0),
        Facts(usable_tokens=4_000, idle_seconds=10.0, cache_seconds=86_400.0),
        Facts(usable_tokens=3_000, prices=Prices(cliffs=(1_000,))),
        Facts(force=True),
    ]
)
LINES = "\n".join(f"{number} line_{number} of src/module_{number}.py" for number in range(60))
ACCOUNT = "The user wants src/main.py to be mended; two of its three tests pass."
SHAPES = ("notes", "single", "pair")
# Makes a block whenever one can be made, and folds without mercy.
EAGER = Rules(
    always=(ClipOutput(over=1_500), DedupArrivals(over=50)),
    when_full=(ClearResults(over=150), ClearObservations(over=150)),
    fold=(DropMiddle(user_tokens=100, ledger=400),),
    keep=Keep(tokens=100, groups=1),
    trigger_tokens=600,
    clear_at_least=1,
    min_progress=0.0,
    min_groups=1,
    pins=Pins(tags=("pin",)),
    summary=SummaryRules(enabled=False),
)
TOLD = SummaryRules(max_tokens=20, ledger=200, user_tokens=200)
# Over its limit whatever comes, and with nothing but a summary to make room.
SUMMARIZING = Rules(
    always=(),
    when_full=(),
    fold=(),
    keep=Keep(tokens=0, groups=1),
    trigger_tokens=1,
    min_progress=0.0,
    min_groups=0,
    pins=Pins(tags=("pin",)),
    summary=SummaryRules(max_tokens=20, ledger=300, user_tokens=200),
)


def with_shape(rules, shape, **more):
    return replace(rules, summary=replace(rules.summary, shape=shape, **more))


CUTTERS = st.sampled_from(
    [
        partial(Worker, EAGER),
        partial(Worker, replace(EAGER, when_full=())),
        partial(Worker, replace(EAGER, fold=(OneLiners(tokens=50),))),
        partial(Worker, replace(EAGER, fold=(OneLiners(tokens=50, hints=KEPT),))),
        partial(
            Worker,
            replace(EAGER, when_full=(ToolHints(KEPT), *EAGER.when_full), fold=(DropMiddle(ledger=400, hints=KEPT),)),
        ),
        *(
            partial(Worker, replace(EAGER, when_full=(), summary=replace(TOLD, shape=shape, hints=KEPT)), model=ACCOUNT)
            for shape in SHAPES
        ),
        *(
            partial(Worker, replace(EAGER, when_full=(), summary=replace(TOLD, shape=shape)), model=ACCOUNT)
            for shape in SHAPES
        ),
    ]
)
SETTLED = st.builds(partial, st.just(Worker), RULES, FACTS, model=st.sampled_from(["", ACCOUNT]))


@dataclass(frozen=True)
class Case:
    """A history, and how to make a worker that is to serve it."""

    messages: list
    make: partial
    is_legal: bool
    cuts: bool
    """Is this one of the workers that make a block whenever one can be made?"""
    is_whole: bool = False
    """Is the history sent once, for something in it is known by its place?"""

    def turns(self):
        return [self.messages] if self.is_whole else turns(self.messages)


KINDS = ("settled", "cutting", "summary")


@st.composite
def cases(draw, kinds=KINDS):
    is_legal = draw(st.booleans())
    messages = draw(legal if is_legal else any_history)
    kind = draw(st.sampled_from(kinds))
    if kind == "settled":
        return Case(messages, draw(SETTLED), is_legal, cuts=False)
    if kind == "cutting":
        return Case(messages, draw(CUTTERS), is_legal, cuts=True)
    make = with_summary_at_hand(messages, draw(st.integers(0, 12)), draw(st.sampled_from(SHAPES)))
    return Case(messages, make, is_legal, cuts=True, is_whole=True)


def with_summary_at_hand(messages, some, shape):
    """A worker that has a summary at hand, of so many groups of this history if there are any."""
    body = mark_output(Worker().decides(messages).body, OBSERVATIONS)
    cuts = [group.stop for group in find_groups(body) if group.stop <= (find_last_assistant(body) or 0)]
    summary = Summary(cuts[min(some, len(cuts) - 1)], ACCOUNT) if cuts else None
    return partial(Worker, with_shape(SUMMARIZING, shape), Facts(summary=summary, can_summarize=False))


def works(worker, messages):
    return [worker.send(each) for each in turns(messages)]


def body_before(sent):
    """The messages as they were read: a block of a text-style history stays what it was after the first tool call.

    A stored block that could not serve says nothing of a new one.
    """
    conversation = sent.driver.forwarding.conversation
    block = sent.plan.block or (conversation and conversation.block)
    text_style = block is not None and block.text_style
    return mark_output(parse_request(sent.came).body, OBSERVATIONS, text_style=text_style)


def client_messages_left(sent):
    """What is left of the client's messages, shortened or not, each by its place in the body."""
    return {message.start: message for message in sent.plan.view[len(sent.head) :] if message.made != NOTE}


def accounts_in(sent):
    """The place of a model's account in what is forwarded."""
    return [place for place, message in enumerate(sent.plan.view) if HEADING in message.text]


def orphans(messages):
    """The number of results without a call before them, and of calls without a result."""
    found = list(asked_and_answered(messages))
    strays = len([1 for message in messages if message["role"] in ("tool", "function")])
    strays -= sum((ids & answered).total() for ids, answered in found)
    return strays + sum((ids - answered).total() for ids, answered in found)


STRICT = (("user", "user"), ("assistant", "assistant"), ("tool", "user"), ("function", "user"))


def breaks(messages):
    """Where the speakers do not take turns as strict templates want it."""
    speakers = [message["role"] for message in messages]
    return Counter((one, other) for one, other in pairwise(speakers) if (one, other) in STRICT)


def messages_that_came(sent):
    return json.loads(sent.came)["messages"]
