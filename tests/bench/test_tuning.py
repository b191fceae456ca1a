"""The choice of the default's figures: what a point is, which is chosen, and the command that makes the same rows."""

import json
import sys
from dataclasses import replace

from tests import ROOT
from tests.support.messages import assistant, call, history, user

sys.path.append(str(ROOT / "bench"))
import tuning

from proxy.cli import main
from proxy.core.rules import Rules
from proxy.lab import sessions
from proxy.lab.replay.cache import HABITS
from proxy.lab.replay.prices import PRICES, share
from proxy.lab.replay.run import replay_all
from proxy.lab.replay.scoring import UpstreamModel

# Some forty results of 2 kB: old ones are cleared, and some of their names come up again.
READS = [
    call("Read", path=f"src/{n}.py", out="\n".join(f"def make_{n}_{k}(value): ..." for k in range(60)))
    for n in range(40)
]
WORK = history(user("Mend it."), *READS, assistant("make_3_7 is wrong; src/3.py has it."))
POLICY = {"clear_at_least": 9_000, "clear_cold_at_least": 6_000, "trigger": 0.6, "target": 0.8}


def test_a_point_changes_what_it_names_and_nothing_else():
    assert tuning.Point().change(Rules()) == Rules()
    assert tuning.Point(9_000, 6_000, 0.6).change(Rules()) == replace(
        Rules(), clear_at_least=9_000, clear_cold_at_least=6_000, trigger=0.6
    )
    cleared = tuning.Point(over=300).change(Rules()).when_full[1]
    assert cleared == replace(Rules().when_full[1], over=300)
    assert len({trial.rules for trial in tuning.candidates("provider")}) == len(tuning.POINTS)


def test_the_replay_command_makes_the_row_of_a_point(tmp_path, capsys, monkeypatch):
    """docs/economy.md says of its tables that `replay --policy NAME` makes their rows."""
    saved, config = tmp_path / "work.json", tmp_path / "proxy.yaml"
    saved.write_text(json.dumps({"model": "gpt-4o", "messages": WORK}))
    config.write_text(json.dumps({"policies": {"later": POLICY}}))
    assert main(["replay", str(saved), "--config", str(config), "--policy", "later", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["policies"]

    monkeypatch.setattr(tuning, "POINTS", {"later": tuning.Point(9_000, 6_000, 0.6, 0.8)})
    conversations = list(sessions.read_conversations(saved))
    results = replay_all(
        conversations, tuning.candidates("provider"), UpstreamModel(tuning.WINDOW, HABITS["provider"]), jobs=1
    )
    scores = tuning.points_over(results)["later"]
    assert scores.rewrites > 0
    assert row["figures"]["rewrites /100"] == round(100 * scores.rewrites / scores.requests, 1)
    assert row["figures"][".1/1.25"] == round(100 * share(scores, PRICES[".1/1.25"]), 1)
    text = tuning.report([*results, *(replace(each, source="other") for each in results)])
    assert "| all together |" in text
    assert text.count("| later |") == 3
