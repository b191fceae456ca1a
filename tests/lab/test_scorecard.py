"""The published scorecard is what the command prints, and every column says what the scores say."""

import json
import re
from decimal import Decimal

import pytest

from proxy.cli import main
from proxy.lab.commands.replay import PUBLISHED_POLICIES
from proxy.lab.replay import sample, scorecard
from proxy.lab.replay.prices import PRICES
from proxy.lab.replay.scorecard import COLUMNS, NONE
from proxy.lab.replay.validity import find_breaches
from proxy.lab.replay.values import Estimate, Recall, RecallCount, Result, Scores, Tokens
from tests import ROOT

PAGE = (ROOT / "docs" / "scorecard.md").read_text(encoding="utf-8")
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
    recall={"paths": Recall(8, 7), "pins": Recall()},
    kept={
        "fresh name": RecallCount(4, 3, 4, 4),
        "recent path": RecallCount(10, 5, 8, 9),
        "ancient id": RecallCount(30, 25, 28, 30),
    },
    raw_bill=10**12,
    bill=6 * 10**11,
    priced=8,
    failed=1,
)


def cell(name, scores=SCORES):
    return next(column for column in COLUMNS if column.name == name).of(scores)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("tokens", "50.0"),
        (".1/1.25", "56.1"),  # (1,250 + 400, and of summaries 100 + 50 + 50) / (2,500 + 800)
        ("$", "60.0"),
        ("of it summaries", "6.1"),
        ("cached", "80.0"),
        ("requests", "8"),
        ("rewrites /100", "12.5"),
        ("peak", "2500"),
        ("mean", "625"),
        ("over", "2"),
        ("summaries", "3"),
        ("invalid", "1"),
        ("alternating", "0"),
        ("anthropic", "4"),
        ("failed", "1"),
        ("in context", "0.750"),
        ("named", "0.900"),
        ("fresh", "0.750"),
        ("pointed", "0.975"),
        ("paths", "0.875"),
        ("pins", NONE),
        ("errors", NONE),
    ],
)
def test_a_column_says_what_the_scores_say(name, shown):
    assert str(cell(name)) == shown


def test_retention_is_shown_by_age_and_by_kind():
    rows = {row[0]: row[1:] for row in scorecard.retention_rows(SCORES)}
    assert rows["recent"] == [10, Decimal("0.500"), Decimal("0.800"), Decimal("0.900")]
    assert rows["fresh"][0] == 4
    assert rows["old"] == [0, NONE, NONE, NONE]
    assert rows["name"][0] == 0  # kinds are shown for terms that are not fresh
    assert rows["id"][0] == 30


def test_the_error_of_our_count_is_a_sentence_where_there_is_one():
    scores = Scores(estimate=Estimate(pairs=4, recorded=1_000, estimated=980, missed=60, prompts=20_000))
    assert scorecard.describe_estimate(scores).startswith(
        "our count of what was added: 98.0 % of the upstream's own over 4 "
    )
    assert "0.30 %" in scorecard.describe_estimate(scores)
    assert scorecard.describe_estimate(Scores()) == ""


def test_as_json_everything_is_there():
    (row,) = scorecard.as_json([Result("p", "c", "s", "m", 10, SCORES)])["policies"]
    assert row["figures"].keys() == {column.name for column in COLUMNS}
    assert row["figures"]["in context"] == 0.75
    assert row["dollars"] == {"without": 1.0, "with": 0.6, "priced": 8}


@pytest.mark.parametrize("conversation", sample.conversations(), ids=lambda each: each.name)
def test_the_sample_is_well_formed_and_has_what_the_measures_ask_for(conversation):
    assert find_breaches(conversation.messages[:-1]) == {}
    assert conversation == next(each for each in sample.conversations() if each.name == conversation.name)
    pauses = [each.at for each in conversation.recorded.values()]
    assert pauses == sorted(pauses)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_page_shows_what_the_command_prints(capsys):
    assert main(["replay", "--sample", "--all"]) == 0
    assert f"```text\n{capsys.readouterr().out}```" in PAGE, "write the table anew with `make scorecard`"


@pytest.mark.seconds
def test_the_readme_has_the_bill_of_models_with_cheap_cached_input(capsys):
    """Its column of the sample; the other one is of recorded conversations, which are not part of this repository."""
    rows = re.findall(
        r"^\| (\.\d+ / [\d.]+) \|.*\| (\d+) % \|$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert main(["replay", "--sample", "--policy", "default", "--json"]) == 0
    (scores,) = json.loads(capsys.readouterr().out)["policies"]
    named = {prices.replace(" ", ""): int(cost) for prices, cost in rows}
    assert named.keys() >= {".1/1.25", ".05/1.25", ".025/1", ".02/1"}
    assert named == {prices: round(scores["figures"][prices]) for prices in named}


def test_the_page_defines_every_column():
    marked = {name.strip() for mark in re.findall(r"\*+([^*\n]+)\*+", PAGE.lower()) for name in mark.split(",")}
    assert [column.name for column in COLUMNS if column.name not in marked | PRICES.keys()] == []
    assert [name for name in PRICES if name not in PAGE.partition("Price models:")[2][:200]] == []
    assert all(name in PAGE for name in PUBLISHED_POLICIES)
