"""Many conversations: the same results in any order, in any number of processes, and after a run that broke off."""

import pytest

from proxy.lab.replay.designs import DESIGNS
from proxy.lab.replay.replay_jobs import ResultFile, replay_all, result_key
from proxy.lab.replay.scoring import UpstreamModel
from proxy.lab.replay.simulation import Trial
from proxy.shorten.rules import Rules
from tests.support.messages import assistant, call, user
from tests.support.replay_cases import conversation

MANY = [
    conversation(
        user("hi"),
        *[call("Read", path=f"{n}/{m}.py", out="x = 1\n" * 500) for m in range(n)],
        assistant("Done."),
        name=f"c{n}",
    )
    for n in range(1, 5)
]
TRIALS = [Trial("nothing", DESIGNS["nothing"], 128_000), Trial("sliding-10", DESIGNS["sliding-10"], 128_000)]


def run_trials(**more):
    return replay_all(MANY, TRIALS, UpstreamModel(), **more)


def test_results_come_in_the_order_of_policies_and_conversations():
    assert [(each.policy, each.conversation) for each in run_trials()] == [
        (trial.name, each.name) for trial in TRIALS for each in MANY
    ]


def test_several_processes_come_to_the_same():
    assert run_trials(jobs=2) == run_trials()


def test_a_run_that_broke_off_goes_on_where_it_was(tmp_path):
    ledger, done = ResultFile(tmp_path / "out.jsonl"), []
    whole = run_trials(ledger=ledger)
    rows = ledger.path.read_bytes().splitlines(keepends=True)
    assert len(rows) == len(whole)
    ledger.path.write_bytes(b"".join(rows[:5]) + rows[5][:40])
    again = run_trials(ledger=ledger, progress=lambda now, of: done.append((now, of)))
    assert again == whole
    assert done == [(2, 4), (3, 4), (4, 4)]
    assert run_trials(ledger=ledger, progress=lambda now, of: done.append((now, of))) == whole
    assert done[3:] == [(4, 4)]


@pytest.mark.parametrize(
    "other",
    [
        (MANY[1], TRIALS[0], UpstreamModel()),
        (conversation(user("hi"), assistant("Done."), name="c1"), TRIALS[0], UpstreamModel()),
        (MANY[0], Trial("nothing", Rules(), 128_000), UpstreamModel()),
        (MANY[0], TRIALS[0], UpstreamModel(window=64_000)),
    ],
)
def test_results_under_other_settings_are_computed_again(other):
    conversation, *setting = other
    assert result_key(conversation, tuple(setting)) != result_key(MANY[0], (TRIALS[0], UpstreamModel()))
    assert result_key(MANY[0], (TRIALS[0], UpstreamModel())) == result_key(MANY[0], (TRIALS[0], UpstreamModel()))


def test_functions_among_the_rules_do_not_change_the_key():
    def make_trial():
        return Trial("nothing", Rules(redact=lambda text: text), 128_000)

    assert result_key(MANY[0], make_trial()) == result_key(MANY[0], make_trial())
