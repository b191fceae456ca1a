"""Documents in force: which results they are, and that only a fold takes them, last."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy.history.grouping import list_callers
from proxy.history.identity import compute_chain
from proxy.history.messages import Message
from proxy.shorten.documents import find_documents, find_kept_documents
from proxy.shorten.drop_middle import write_ledger
from proxy.shorten.fold import OPENING, find_lost_documents
from proxy.shorten.pipeline import BYTES_PER_TOKEN, Draft
from proxy.shorten.placeholder import render_call
from proxy.shorten.rules import Facts, Keep, Rules
from proxy.shorten.state import ConversationState
from proxy.shorten.summary import SummaryRules
from tests.support.compaction_worker import Worker
from tests.support.messages import KEY, TENANT, assistant, call, history, request, user
from tests.support.written_steps import assert_case, list_cases, list_given, read_steps

GOLDEN = Path(__file__).parent / "golden" / "documents"
LINES = "\n".join(f"line {number} of some output" for number in range(150))
RULE = "# Deploys\n" + "\n".join(f"{number}. Never skip step {number}." for number in range(150))


def judge(case):
    """The steps, and each of them that a document is the result of."""
    given = list_given(case)
    body = request(*read_steps(given)).body
    callers = list_callers(body)
    readings = zip(callers, find_documents(body, callers), strict=True)
    documents = [render_call(caller) if caller else "the user" for caller, reading in readings if reading.is_document]
    return "\n".join([*given, *(f"= {name}" for name in documents or ["none"])])


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_documents_are_those_of_the_golden_file(sentence, case):
    assert_case(GOLDEN, case, judge(case))


def test_rules_in_the_users_role_and_the_task_stay_whole_in_each_fold():
    rules = f"# AGENTS.md instructions for /repo\n\n<INSTRUCTIONS>\n{RULE * 4}\n</INSTRUCTIONS>"
    task = "Mend the totals, and do all that this list says. " * 60
    begun = [*user(rules), *user(task)]
    talk = [message for number in range(60) for message in (assistant("Done. " * 900), user(f"{number} " * 400))]
    sent = Worker(Rules(summary=SummaryRules(enabled=False)), Facts(usable_tokens=110_000)).send(history(begun, *talk))
    texts = [message.text for message in sent.plan.view]
    assert sent.plan.reason == "window"
    assert sent.plan.tokens_after < 50_000
    assert texts.count(rules) == texts.count(task) == 1


def test_a_result_stays_what_it_was_read_as_whatever_follows():
    body = request(user("Do #12."), call("Bash", command="gh issue view 12", out=RULE), user("And #13.")).body
    callers = list_callers(body)
    for stop in range(len(body) + 1):
        known = list(find_documents(body[:stop], callers[:stop]))
        assert known + list(find_documents(body, callers, known)) == list(find_documents(body, callers))


RULES = Rules(
    keep=Keep(tokens=1_000, groups=2),
    clear_at_least=2_000,
    trigger=0.8,
    min_groups=0,
    summary=SummaryRules(enabled=False),
)


def work(steps):
    reads = [call("Read", path=f"{step}.py", out=f"{step}\n{LINES}") for step in range(steps)]
    return history(user("Deploy as AGENTS.md says."), call("Read", path="AGENTS.md", out=RULE), *reads)


def send(steps, usable, rules=RULES):
    return Worker(rules, Facts(usable_tokens=usable)).send(work(steps)).plan


def shows(plan, text):
    return any(text in message.text for message in plan.view)


def test_a_stride_clears_data_and_leaves_instructions_whole():
    plan = send(12, 60_000)
    assert plan.reason == "stride"
    assert shows(plan, RULE)
    assert not shows(plan, f"3\n{LINES}")
    assert not shows(send(12, 60_000, replace(RULES, keep_documents=False)), RULE)
    assert not shows(send(12, 60_000, RULES.for_overflow()), RULE)


def test_a_fold_leaves_them_whole_while_they_take_their_share_of_the_goal():
    plan = send(40, 9_000, replace(RULES, when_full=()))
    assert plan.reason == "window"
    assert shows(plan, OPENING)
    assert shows(plan, RULE)


def test_a_fold_that_must_take_them_names_them():
    plan = send(16, 6_000, replace(RULES, when_full=(), fold_all=True, target=0.3))
    notes = [message.text for message in plan.view if OPENING in message.text]
    assert not shows(plan, RULE)
    (note,) = notes
    assert "read them again before relying on them:\n- Read(AGENTS.md)\n" in note


def test_a_part_that_is_lost_is_named_by_its_lines():
    half = len(RULE) // 2
    first = call("Read", path="AGENTS.md", offset=1, limit=70, out=RULE[:half])
    second = call("Read", path="AGENTS.md", offset=71, limit=70, out=RULE[half:])
    body = request(user("Deploy."), first, second).body
    ledger = write_ledger(body, 1_000, lost_documents={2})
    assert "relying on them:\n- Read(AGENTS.md) for lines 1-70\n" in ledger


def test_a_copy_or_a_part_of_a_document_that_stays_is_not_lost():
    lines = RULE.split("\n")
    other = "\n".join([*lines[9:29], "151. Never skip step 151."])
    reads = [call("Read", path="AGENTS.md", out=text) for text in (RULE, "\n".join(lines[9:29]), other, RULE)]
    body = request(user("Deploy."), *reads).body
    starts = [message.start for message in body if message.is_result]
    draft = Draft((), body, documents=frozenset(starts), origin=body)
    assert find_lost_documents(draft, {id(body[starts[-1]])}) == {starts[2]}
    assert find_lost_documents(draft, set()) == set(starts)


def test_a_document_that_fills_a_small_window_is_treated_as_output():
    assert not shows(send(12, 4_000), RULE)


def test_a_document_in_force_takes_at_most_a_quarter_of_the_window():
    read = request(user("Deploy as AGENTS.md says."), call("Read", path="AGENTS.md", out=RULE))
    state = ConversationState.of(read, compute_chain(read, TENANT, KEY), None, RULES)
    (result,) = [message for message in state.body if message.is_result]
    smallest_window = 4 * len(result.content) // BYTES_PER_TOKEN
    assert find_kept_documents(state.known, state.view, smallest_window + 1) == {result.start}
    assert find_kept_documents(state.known, state.view, smallest_window - 1) == frozenset()


def test_of_copies_one_stays_whole_and_the_others_point_to_it():
    worker = Worker(RULES, Facts(usable_tokens=60_000))
    long_rule = f"{RULE}\n{LINES}"
    copies = [call("Read", path="AGENTS.md", out=long_rule) for _ in range(20)]
    for stop in range(1, len(copies) + 1):
        plan = worker.send(history(user("Deploy as AGENTS.md says."), *copies[:stop])).plan
        texts = [message.text for message in plan.view if message.is_result]
        assert texts.count(long_rule) == 1
        assert all("word for word the same as the result of Read(AGENTS.md)" in text for text in texts[1:])
    assert plan.action != "created"


def test_a_copy_is_whole_again_once_a_fold_has_taken_the_first():
    rules = replace(RULES, when_full=(), keep=Keep(tokens=500, groups=1))
    worker = Worker(rules, Facts(usable_tokens=9_000))
    pieces = [call("Read", path="AGENTS.md", out=f"{RULE}\n{LINES}")]
    for step in range(30):
        pieces.append(call("Read", path=f"{step}.py", out=f"{step}\n{LINES}"))
        pieces.append(call("Read", path="AGENTS.md", out=f"{RULE}\n{LINES}"))
        plan = worker.send(history(user("Deploy as AGENTS.md says."), *pieces)).plan
        texts = [message.text for message in plan.view]
        assert sum("Never skip step 3." in text for text in texts) == 1
        assert not any("no longer shown" in text for text in texts)


def test_its_bytes_stay_the_client_s_own_over_the_whole_conversation():
    worker = Worker(RULES, Facts(usable_tokens=60_000))
    for steps in range(4, 30, 3):
        plan = worker.send([*work(steps), *assistant("So far."), *user("Go on.")]).plan
        (document,) = [message for message in plan.view if "Never skip step 3." in message.text]
        assert isinstance(document, Message)
        assert not document.literal
