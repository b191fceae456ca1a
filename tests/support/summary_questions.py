"""Histories over a trigger, and the question about them."""

from proxy.decide.planning import NeedSummary
from proxy.shorten.rules import Facts, Rules
from proxy.shorten.summary import SummaryRules
from tests.support.compaction_worker import Worker
from tests.support.messages import call, history, user

BIG = "\n".join(f"{number} line_{number} told" for number in range(130))
SHORT = SummaryRules(prompt="Sum it up.", max_tokens=100, ledger=400, prepare=0.8)
RULES = Rules(trigger_tokens=6_000, when_full=(), summary=SHORT)


def work(steps, task="Mend the tests."):
    """Each step weighs about 600 tokens."""
    return history(user(task), *[call("Read", path=f"{step}.py", out=f"{step}\n{BIG}") for step in range(steps)])


SEEN, NEAR, OVER, BEYOND = work(7), work(9), work(10), work(12)


def need(messages, rules=RULES, **facts):
    """What is asked about this history, where anything is."""
    made = Worker(rules, Facts(**facts)).considers(messages)
    return made if isinstance(made, NeedSummary) else None
