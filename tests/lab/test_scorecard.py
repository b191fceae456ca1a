"""Every column of the scorecard says what the scores say, and the documents define it."""

import json
import re

import pytest
from msgspec.structs import replace

from proxy.cli import main
from proxy.lab.commands.replay import PUBLISHED_POLICIES
from proxy.lab.replay import sample, scorecard
from proxy.lab.replay.replay_values import PRICES, Documents, Judged, Needed, Recall, Result, Scores, Tokens
from proxy.lab.replay.scorecard import KEPT, NONE, SHAPE, WORTH, Row
from proxy.lab.replay.validity import find_breaches
from tests import ROOT

SCORECARD = ROOT / "tests" / "lab" / "golden" / "scorecard.tsv"
"""Each column with what it shows of `SCORES`, and behind some how that is computed."""
PAGE = (ROOT / "docs" / "replay-your-sessions.md").read_text(encoding="utf-8")
SCORES = Scores(
    requests=8,
    raw=Tokens(fresh=2_000, cached=8_000),
    forwarded=Tokens(fresh=1_000, cached=4_000),
    rewrites=1,
    peak=2_500,
    over=2,
    summary_calls=3,
    summaries=Tokens(fresh=80, cached=500, written=10),
    invalid={"openai": 1, "anthropic": 4},
    recall={"user messages": Recall(8, 7), "pins": Recall()},
    needed=Needed(10, 5, 2, Tokens(fresh=200, cached=400)),
    own=Recall(8, 6),
    documents=Documents(whole=3, cut=1),
    sentences={"verdict": Judged(5, 3, 1), "size": Judged(5, 5, 0)},
    removed=1_000,
    raw_bill=10**12,
    bill=6 * 10**11,
    priced=8,
    failed=1,
)


OTHER = Scores(requests=2, raw=Tokens(fresh=100), forwarded=Tokens(fresh=100), needed=Needed(2, 2))


def cell(name, *scores, prices=PRICES["tenth"]):
    column = next(column for column in (*WORTH, *SHAPE, *KEPT) if column.name == name)
    return column.of(Row(scores or [SCORES], prices))


@pytest.mark.parametrize("row", SCORECARD.read_text(encoding="utf-8").splitlines())
def test_a_column_says_what_the_scores_say(row):
    name, shown, *_ = row.split("\t")
    assert str(cell(name)) == shown


def test_spans_count_one_by_one_or_each_conversation_alike():
    assert cell("spans", SCORES, OTHER) == "0.583 (0.500-1.000)"  # 7 of 12
    assert cell("per conversation", SCORES, OTHER, Scores(requests=3)) == "0.750 (0.500-1.000)"
    assert cell("spans", Scores(requests=3)) == NONE


def test_without_a_price_model_the_prices_are_the_models_own():
    assert str(cell("cost", prices=None)) == "60.0"


def test_a_policy_that_reads_no_prices_is_shown_at_each_price_model():
    results = [Result("nothing", "c", "s", "m", 10, SCORES), Result("p", "c", "s", "m", 10, SCORES, prices="twentieth")]
    first, second = scorecard.as_json(results)["policies"]
    assert (first["policy"], first["cost"].keys()) == ("nothing", {"twentieth"})
    assert (second["policy"], second["cost"].keys()) == ("p", {"twentieth"})


def test_a_third_of_the_conversations_is_kept_apart_by_their_names():
    results = [Result("p", f"conversation {number}", "s", "m", 10, SCORES) for number in range(900)]
    groups = scorecard.by_third(results, "p", "tenth")
    assert {name: len(row.conversations) // 100 for name, row in groups.items()} == {"open": 6, "kept apart": 2}
    assert [result.is_apart for result in results] == [replace(result, policy="q").is_apart for result in results]


@pytest.mark.parametrize("conversation", sample.conversations(), ids=lambda each: each.name)
def test_the_sample_is_well_formed_and_has_what_the_measures_ask_for(conversation):
    assert find_breaches(conversation.messages[:-1]) == {}
    assert conversation == next(each for each in sample.conversations() if each.name == conversation.name)
    pauses = [each.at for each in conversation.recorded.values()]
    assert pauses == sorted(pauses)


@pytest.mark.seconds
def test_the_evidence_says_what_the_sample_costs(capsys):
    """The other figures there are of recorded conversations, which are not part of this repository."""
    page = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    said = re.search(r"the default costs\s([\d.]+),\s([\d.]+)\sand\s([\d.]+)\s%\swith\sre-reads", page)
    assert main(["replay", "--sample", "--policy", "default", "--json"]) == 0
    (figures,) = json.loads(capsys.readouterr().out)["policies"]
    costs = [f"{100 * cost:.1f}" for cost in figures["cost_with_rereads"].values()]
    assert said is not None
    assert list(said.groups()) == costs


def test_the_page_defines_every_column():
    marked = {name.strip() for mark in re.findall(r"\*+([^*\n]+)\*+", PAGE.lower()) for name in mark.split(",")}
    assert [column.name for column in (*WORTH, *SHAPE, *KEPT) if column.name not in marked] == []
    assert [name for name in PRICES if f"*{name}*" not in PAGE] == []
    assert all(name in PAGE for name in PUBLISHED_POLICIES)
