"""The tables of the evidence are made from a replay, and the pages say where each block stands."""

import json
import re

import evidence
import pytest

from proxy.lab.replay import scorecard
from proxy.lab.replay.replay_values import (
    FRESH_PRICE_RATIO,
    PRICES,
    Documents,
    Needed,
    Point,
    Recall,
    Result,
    Scores,
    Tokens,
)
from tests import ROOT

RAW = Tokens(fresh=20_000, cached=400_000)
CONVERSATIONS = {"long": 90_000, "short": 30_000}
"""The tokens of their largest requests."""
PAGE = """before
<!-- {0}, by bench/evidence.py -->
old
<!-- end of {0} -->
behind
"""


def make_result(policy, prices, conversation, fresh, lost):
    scores = Scores(
        requests=10,
        raw=RAW,
        forwarded=Tokens(fresh=fresh, cached=100_000),
        needed=Needed(8, 8 - lost, lost, Tokens(fresh=100 * lost, cached=1_000 * lost)),
        rewrites=2,
        own=Recall(10, 9),
        documents=Documents(2, 1, 1),
        removed=40_000,
    )
    points = tuple(Point(place, 0.0, raw, 0, raw, 0) for place, raw in ((1, 20_000), (3, CONVERSATIONS[conversation])))
    return Result(policy, conversation, "agent", "model", 128_000, scores, points, prices)


def make_results(policy, fresh, lost):
    return [make_result(policy, prices, name, fresh, lost) for prices in PRICES for name in CONVERSATIONS]


@pytest.fixture
def pages(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "evidence.md").write_text(PAGE.format("figures") + PAGE.format("sentences"), encoding="utf-8")
    (tmp_path / "README.md").write_text(PAGE.format("headline") + PAGE.format("prices"), encoding="utf-8")
    new, old = make_results("default", 22_000, 2) + make_results("later", 24_000, 4), make_results("default", 26_000, 0)
    (tmp_path / "new.json").write_text(json.dumps(scorecard.as_json(new)), encoding="utf-8")
    (tmp_path / "old.json").write_text(json.dumps(scorecard.as_json(old)), encoding="utf-8")
    return tmp_path


def read_rows(text):
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line]
    return {row[0]: row[1:] for row in rows}


def test_each_policy_has_a_row_for_each_size(pages):
    evidence.main([str(pages / "new.json"), f"0.2={pages / 'old.json'}"], pages)
    page = (pages / "docs" / "evidence.md").read_text(encoding="utf-8")
    large, _, everything = page.partition("### All conversations")
    assert "1 conversations of 1 sources, 10 requests" in large
    assert "2 conversations of 1 sources, 20 requests" in everything
    for part in (large, everything):
        rows = read_rows(part)
        # (22,000 x 1.25 + 10,000) / 65,000, and (... + 5,000) / 45,000; 2 re-reads of 100 and 1,000 tokens each.
        assert rows["default"][0].startswith("57.7 / 72.2 / ")
        assert rows["default"][1].startswith("58.4 / 73.0 / ")
        assert rows["default"][2:5] == ["73.0 (73.0..73.0)", "", "73.8"]
        assert rows["default"][6:8] == ["75.3", "0.750 (0.750..0.750)"]
        assert rows["default"][8:10] == ["0.900", "20.0"]
        assert rows["default"][10].startswith("0.2 / ")
        assert rows["later"][3] == "6.3 (6.3..6.3)"
        assert rows["later"][5] == "7.1 (7.1..7.1)"
        assert rows["0.2"][1].startswith("65.4 / ")
        assert rows["doing nothing"][3] == "27.0 (27.0..27.0)"
    assert "before" in page
    assert "old" in page.partition("<!-- sentences")[2], "nothing was given for it"


def test_the_headline_and_the_price_table_are_of_the_default_with_re_reads(pages):
    evidence.main([str(pages / "new.json"), "--choice", "drawn"], pages)
    readme = " ".join((pages / "README.md").read_text(encoding="utf-8").split())
    assert "In sessions of at least 80,000 tokens it saves 27 % (27 to 27) of the input cost" in readme
    assert "of the 1 and 2 conversations of 1 sources (drawn)." in readme
    assert re.search(r"\| 0\.1 / 1\.25 \| Claude[^|]*\| 58 \(58\.\.58\) \| 58 \(58\.\.58\) \| 0 of 2 \|", readme)


def test_the_readme_says_what_the_evidence_says():
    readme, page = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/evidence.md"))
    headlines = [re.findall(r"<!-- headline,.*?<!-- end of headline -->", text, re.DOTALL) for text in (readme, page)]
    assert headlines[0] == headlines[1]
    large, _, everything = page.partition("<!-- figures,")[2].partition("### All conversations")
    everything = everything.partition("### A window")[0]
    prices = read_rows(readme.partition("<!-- prices,")[2].partition("<!-- end of prices")[0])
    for place, price in enumerate(PRICES.values()):
        costs = [read_rows(part)["default"][1].split(" / ")[place] for part in (large, everything)]
        for rounded, cost in zip(prices[f"{price.read:g} / {FRESH_PRICE_RATIO:g}"][1:3], costs, strict=True):
            assert abs(float(rounded.split()[0]) - float(cost.split()[0])) <= 0.55, price


def test_the_models_have_the_prices_that_are_said():
    table = json.loads((ROOT / "proxy" / "models" / "data" / "models.json").read_text(encoding="utf-8"))
    for name, models in evidence.MODELS.items():
        for model in models.split(", "):
            plain = model if model.startswith("Claude") else f"Claude {model}"
            (shown,) = [prices for key, (*_, prices, _) in table.items() if key == names_of(plain)]
            read, write = (price / shown[0] for price in shown[1:3])
            assert (round(read, 4), round(write, 4)) == (PRICES[name].read, FRESH_PRICE_RATIO), model


def names_of(model):
    return model.lower().replace(" ", "-").replace(".", "-")
