"""Histories over a trigger, and the question about them."""

from proxy.decide.planning import NeedSummary
from proxy.shorten.rules import Facts, Rules
from proxy.shorten.summary import SummaryRules
from tests.support.compaction_worker import Worker, work

SHORT = SummaryRules(prompt="Sum it up.", max_tokens=100, ledger=400, prepare=0.8)
RULES = Rules(trigger_tokens=6_000, when_full=(), summary=SHORT)


NEAR, OVER = work(9), work(10)


def need(messages, rules=RULES, **facts):
    """What is asked about this history, where anything is."""
    made = Worker(rules, Facts(**facts)).considers(messages)
    return made if isinstance(made, NeedSummary) else None
