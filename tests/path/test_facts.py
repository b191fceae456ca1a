"""The facts of one request, by what is remembered of its conversation and what its client asks for."""

import pytest
from msgspec.structs import replace

from proxy.decide.conversation import Asked, Conversation, LastRequest, SummaryCandidate
from proxy.decide.remedies import plan_untouched
from proxy.history.identity import Identity
from proxy.shorten.block import Block
from proxy.shorten.economics import Calibration, Window
from proxy.shorten.rules import Anchor, Facts, Rules
from proxy.shorten.summary import Summary, SummaryRules
from proxy.store.contract import Found
from proxy.wire.http_head import Caller
from tests.support.messages import KEY, TENANT, request, user

ASKED = request(user("Hello."), max_tokens=1_000)
RULES = Rules(trigger_tokens=5_000, summary=SummaryRules(prepare=0.5))
US = Identity.of(ASKED, TENANT, KEY, "", "up/gpt-4")
ANCHOR = Anchor(US.links[-1], 900, b"view")
LAST = LastRequest(
    ANCHOR, 90.0, US.counter, Calibration(2.0, 1), refused_views=2, asked_covers=2, read_since_question=50
)
READY, UNUSED, MAKING, FAILED = (
    SummaryCandidate("ready", "Told.", covers=3),
    SummaryCandidate("ready", "Told.", failures=2, covers=3),
    SummaryCandidate("making", "worker", covers=2),
    SummaryCandidate("failed", failures=1, covers=4),
)
TOLD = Summary(3, "Told.")
BLOCK = Block(1, (), focus="docs")
SUMMARIZED = Block(3, (), summary=TOLD)


def asked(*, unused=0):
    """A model was asked for a summary, and no request has been read since."""
    return {"read_since_question": 0, "unused_summaries": unused}


def conversation_of(memory=None, rules=RULES, window=None, **context):
    window = window or Window(total=20_000, output=4_000, origin="config")
    asked = Asked(ASKED, rules, len, now=100.0, window=window, **context)
    memory = {"calibration": Calibration(2.0), **(memory or {})}
    return Conversation(asked, asked.find_rules(), US, **memory)


FORCED = {"mode": "force"}
OBSERVED = {"mode": "observe"}
OBSERVED_BLOCK = Found(f"{TENANT}/observed/block/ab", b"")
NOBODY = {"can_summarize": False}
PLAIN = {"was_forwarded": False}
LATER = {"anchor": ANCHOR, "idle_seconds": 10.0, "read_since_question": 50}


@pytest.mark.parametrize(
    ("memory", "context", "asks", "facts"),
    [
        ({}, {}, {}, PLAIN),
        ({}, {}, NOBODY, PLAIN | {"can_summarize": False, "summary_failed": True}),
        ({}, {"rules": replace(RULES, summary=SummaryRules(enabled=False))}, NOBODY, PLAIN | {"can_summarize": False}),
        ({}, OBSERVED, NOBODY, PLAIN | {"can_summarize": False}),
        ({"last": LAST}, {}, {}, {"anchor": ANCHOR, "idle_seconds": 10.0, "read_since_question": 50}),
        ({"last": replace(LAST, counter="other")}, {}, {}, {"idle_seconds": 10.0, "read_since_question": 50}),
        (
            {"last": replace(LAST, forwarded_at=101.0)},
            {},
            {},
            {"anchor": ANCHOR, "idle_seconds": 0, "read_since_question": 50},
        ),
        ({"last": replace(LAST, asked_covers=0)}, {}, {}, {"anchor": ANCHOR, "idle_seconds": 10.0}),
        ({"candidate": READY}, {}, {}, PLAIN | {"summary": TOLD} | asked(unused=1)),
        ({"candidate": READY, "block": SUMMARIZED}, {}, {}, PLAIN | {"summary": TOLD} | asked()),
        ({"candidate": UNUSED}, {}, {}, PLAIN | {"summary": TOLD} | asked(unused=3)),
        (
            {"last": LAST, "candidate": READY},
            *({}, {}, {"anchor": ANCHOR, "idle_seconds": 10.0, "summary": TOLD} | asked(unused=1)),
        ),
        ({"candidate": MAKING}, {}, {}, PLAIN | {"summary_in_progress_covers": 2} | asked()),
        ({"candidate": MAKING}, OBSERVED, {}, PLAIN | {"can_summarize": False} | asked()),
        ({"candidate": FAILED}, {}, {}, PLAIN | {"summary_failed": True} | asked(unused=1)),
        ({"candidate": FAILED}, OBSERVED, {}, PLAIN | {"can_summarize": False} | asked(unused=1)),
        ({"candidate": FAILED}, *(FORCED, {}, PLAIN | {"force": True} | asked(unused=1))),
        ({"candidate": READY}, FORCED, {}, PLAIN | {"force": True} | asked(unused=1)),
        ({"last": LAST}, FORCED, NOBODY, LATER | {"force": True, "summary_failed": True}),
        ({}, {"mode": "force", "focus": "ci"}, {}, PLAIN | {"force": True, "focus": "ci"}),
        ({}, {"focus": "ci"}, {}, PLAIN | {"focus": "ci"}),
    ],
)
def test_what_is_remembered_becomes_facts(memory, context, asks, facts):
    usable = Window(total=20_000).usable_tokens(1_000)
    always = Facts(usable, Window(total=20_000, output=4_000).usable_tokens(), usable)
    assert conversation_of(memory, **context).gather_facts(**{"can_summarize": True, **asks}) == replace(
        always, **facts
    )


def test_an_estimate_in_other_tokens_is_compared_with_a_window_in_its_own():
    untrusted = conversation_of({"last": LAST}, replace(RULES, estimator="chars", trigger_of="window"))
    facts = untrusted.gather_facts(can_summarize=True)
    assert (facts.usable_tokens, facts.trigger_base_tokens, facts.anchor) == (18_050 // 2, 20_000, None)
    assert [untrusted.fits(size) for size in (9_025, 9_026)] == [True, False]
    assert [conversation_of().fits(size) for size in (18_050, 18_051)] == [True, False]
    assert conversation_of(window=Window(output=1)).fits(10**9)
    assert (untrusted.count(b"1234"), conversation_of().count(b"1234")) == (4, 8)


def test_a_limit_that_was_learned_overrules_what_is_known_of_a_model_but_not_the_operator():
    learned, other = Window(input=9_000, origin="learned"), Window(total=8_000, output=500, origin="learned")
    bound = Window(longest_answer=500)
    known = Window(total=20_000, output=4_000, origin="bundled")
    narrowed = [conversation_of(window=known).asked.narrow(limit) for limit in (None, learned, other, bound)]
    assert narrowed == [known, replace(learned, output=4_000), other, replace(known, longest_answer=500)]
    assert conversation_of().asked.narrow(learned) == conversation_of().window


@pytest.mark.parametrize(
    ("memory", "context", "outcome", "reason", "asks_usage"),
    [
        ({}, {}, "none", "why", True),
        ({}, {"may_ask_usage": False}, "none", "why", False),
        ({}, {"mode": "off"}, "off", "why", False),
        ({}, {"caller": Caller(switch="off")}, "off", "switched-off", False),
        ({}, OBSERVED, "observed", "why", False),
        ({"block": BLOCK}, OBSERVED, "none", "why", False),
        ({"block": BLOCK, "stored_block": OBSERVED_BLOCK}, OBSERVED, "observed", "why", False),
        ({"block": BLOCK}, {"mode": "force", "focus": "docs"}, "none", "why", True),
        ({"block": BLOCK}, {"mode": "force", "focus": "ci"}, "none", "focus-unused", True),
        ({}, {"mode": "force", "focus": "ci"}, "none", "focus-unused", True),
        ({}, {"focus": "ci"}, "none", "why", True),
        ({}, {"window": Window(output=1)}, "none", "why", True),
    ],
)
def test_a_decision_says_what_was_done_and_why(memory, context, outcome, reason, asks_usage):
    conversation = conversation_of(memory, **{"may_ask_usage": True, **context})
    decision = conversation.describe(plan_untouched(ASKED, 2_501, "why"))
    assert (decision.outcome, decision.reason, decision.asks_usage) == (outcome, reason, asks_usage)
    assert not conversation.describe(plan_untouched(ASKED, 2_500, "why")).asks_usage
    blind = conversation_of(window=Window())
    assert blind.describe(plan_untouched(ASKED, 1)).reason == "window-unknown"


def test_a_caller_is_known_by_what_is_stored_for_it():
    stored = [{}, {"last": LAST}, {"stored_block": Found("key", b"")}]
    assert [conversation_of(memory, is_known_caller=False).is_known_caller for memory in stored] == [False, True, True]
    untouched, told = plan_untouched(ASKED, 1), Block(1, (), summary=TOLD)
    unknown = conversation_of(is_known_caller=False)
    plans = (untouched, replace(untouched, block=BLOCK), replace(untouched, block=told))
    assert [unknown.may_store(plan) for plan in plans] == [False, False, True]
    others = [None, replace(LAST, counter="other"), LAST]
    assert [conversation_of({"last": last}).count_refused_views() for last in others] == [0, 0, 2]


@pytest.mark.parametrize(
    ("context", "is_large", "decided"),
    [
        *(({"window": Window()}, True, ("none", "window-unknown")), ({"window": Window()}, False, ("none", ""))),
        *(({}, True, ("none", "")), ({"mode": "off", "window": Window()}, True, ("off", ""))),
        ({"caller": Caller(switch="off"), "window": Window()}, True, ("off", "switched-off")),
        ({"rules": replace(RULES, trigger=0), "window": Window()}, True, ("none", "")),
    ],
)
def test_a_large_request_that_is_left_alone_says_if_its_window_is_unknown(context, is_large, decided):
    asked = conversation_of(**context).asked
    decision = asked.describe_left_alone(asked.window, is_large=is_large, is_rewritten=False)
    assert (decision.outcome, decision.reason, decision.plan) == (*decided, None)
