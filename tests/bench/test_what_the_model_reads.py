"""The page of placeholders shows what the code makes, and no number or escape that a model cannot read."""

from statistics import median

import pytest
import what_the_model_reads as bench

from proxy.lab.replay import sample
from tests import ROOT


@pytest.fixture(scope="module")
def bodies():
    return list(bench.forward(sample.conversations(), "default"))


@pytest.mark.seconds
def test_the_page_shows_what_the_code_makes(bodies):
    folded = list(bench.forward(sample.conversations(), "default", bench.FOLDED_WINDOW, summaries=False))
    page = (ROOT / "docs" / "what-the-model-reads.md").read_text(encoding="utf-8")
    assert page == bench.render_page(bodies, folded), "write the page anew with `make -C bench what-the-model-reads`"


def test_placeholders_are_a_third_of_a_late_body_at_most_and_most_are_short(bodies):
    for body in bodies:
        assert sum(map(len, body.placeholders)) / body.characters <= 0.35
    assert median(len(text) for body in bodies for text in body.placeholders) <= 800
