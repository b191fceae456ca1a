"""The page that one sends to somebody: it asks for nothing, tells the figures, and no name becomes markup."""

import itertools
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import pytest

from proxy.lab.replay.designs import DESIGNS, NOTHING
from proxy.lab.replay.heart import Trial
from proxy.lab.replay.run import run
from proxy.lab.replay.scoring import Upstream
from proxy.lab.replay.values import PICO, Kept, Point, Recall, Result, Scores, Tokens
from proxy.lab.report import page
from proxy.lab.report.conversations import PICTURED
from proxy.lab.report.drawing import MOST, thinned, ticks
from proxy.lab.report.headline import presented
from proxy.lab.report.markup import Markup, element
from proxy.lab.report.numbers import dollars, exact, percent, span
from proxy.lab.report.style import SHEET
from proxy.lab.sessions import read

SAMPLES = Path(__file__).parent / "samples"
VOID = {"meta"}


def points(*sizes, rewrites=()):
    """Requests that grow as given: (raw, forwarded)."""
    return tuple(
        Point(place=2 * number + 1, seconds=60.0 * number, raw=raw, raw_cached=0, forwarded=ours, cached=ours // 2,
              rewrote=number in rewrites, reason="stride" if number in rewrites else "")
        for number, (raw, ours) in enumerate(sizes)
    )  # fmt: skip


def scores(raw, forwarded, **more):
    """As if nothing were ever cached: costs are shares of tokens."""
    return Scores(raw=Tokens(raw), forwarded=Tokens(forwarded), **more)


def result(policy="default", conversation="one", *, source="pi", window=128_000, scored=None, drawn=None):
    scored = scored or scores(1_000, 400, requests=2, rewrites=1, peak=300)
    drawn = drawn or points((400, 300), (600, 100), rewrites=(1,))
    return Result(policy, conversation, source, "some-model", window, scored, drawn)


class Reader(HTMLParser):
    """The page as a browser sees it: elements with their attributes and the text within."""

    def __init__(self, source):
        super().__init__()
        self.open, self.found, self.texts = [], [], []
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "title"} & set(self.open[-1:]):
            self.texts.append(data)

    def all(self, tag, **wanted):
        return [attrs for name, attrs in self.found if name == tag and wanted.items() <= attrs.items()]

    @property
    def text(self):
        return " ".join(" ".join(self.texts).replace("\N{NO-BREAK SPACE}", " ").split())


def shown(*results, setting=""):
    reader = Reader(page(results, setting))
    assert reader.open == []
    return reader


# --- safety ----------------------------------------------------------------------------------------------------------


def test_the_page_asks_for_nothing_and_runs_nothing():
    source = page([result(NOTHING), result()])
    assert re.findall(r"(?i)https?:|//\w|src=|href=|<script|<link|<iframe|@import|url\(|\son\w+=|style=", source) == []


def test_its_policy_allows_its_own_sheet_and_nothing_else():
    source = page([result()])
    (policy,) = [meta["content"] for meta in Reader(source).all("meta") if "http-equiv" in meta]
    (sheet,) = re.findall(r"<style>(.*?)</style>", source, re.DOTALL)
    digest = b64encode(sha256(sheet.encode()).digest()).decode()
    assert policy.split("; ") == ["default-src 'none'", f"style-src 'sha256-{digest}'", "base-uri 'none'",
                                  "form-action 'none'"]  # fmt: skip


HOSTILE = "</title></style><script>alert(1)</script><img src=x onerror=\"alert('x')\">&amp;"


def test_whatever_a_session_is_called_is_only_text():
    hostile = Result(HOSTILE, HOSTILE, HOSTILE, HOSTILE, 500, result().scores, (
        Point(1, 0.0, 600, 0, 300, 0, rewrote=True, reason=HOSTILE),))  # fmt: skip
    source = page([hostile, hostile], HOSTILE)
    plain = Reader(page([result(window=500)]))
    reader = Reader(source)
    assert {tag for tag, _ in reader.found} <= {tag for tag, _ in plain.found}
    assert not reader.all("img")
    assert "<script>alert(1)</script>" in reader.text
    assert {name for _, attrs in reader.found for name in attrs} <= {name for _, attrs in plain.found for name in attrs}


def test_only_what_is_made_as_markup_is_markup():
    assert element("p", "<b>", Markup("<i>x</i>"), title='"&') == '<p title="&quot;&amp;">&lt;b&gt;<i>x</i></p>'


def test_the_same_results_make_the_same_page():
    results = [result(NOTHING), result()]
    assert page(results) == page(list(results))


# --- figures ---------------------------------------------------------------------------------------------------------


def test_the_figures_that_matter_stand_first():
    plain = scores(1_000, 1_000, requests=4, over=3, peak=500, raw_bill=8 * PICO, bill=8 * PICO, priced=4)
    ours = scores(1_000, 400, requests=4, rewrites=1, peak=200, raw_bill=8 * PICO, bill=2 * PICO, priced=4,
                  kept={"old path": Kept(10, 9, 10, 10), "fresh path": Kept(4, 4, 4, 4)},
                  recall={"user messages": Recall(5, 5), "pins": Recall(2, 2), "paths": Recall(4, 3)})  # fmt: skip
    text = shown(result(NOTHING, scored=plain), result(scored=ours)).text
    for said in (
        "60 % less cost for the same 1 conversation, 4 requests",
        "Cost, against doing nothing 40 % $2.00 instead of $8.00 at list prices",
        "Cache broken, per 100 requests 25.0 1 rewrite in 4 requests",
        "Requests over the window 0 the largest had 200 of 128,000 tokens; doing nothing: 3 over",
        "What the next action needed 90.0 % in its context; 100.0 % at least by name; of what it had just read 100.0 %",
        "Never lost 100.0 % 5 of 5 user messages and 2 of 2 pins; no request became invalid; beside them 75.0 %",
    ):
        assert said in text


def test_what_was_lost_is_not_called_kept():
    lost = scores(1_000, 400, requests=2, recall={"user messages": Recall(5, 4)}, invalid={"openai": 1}, over=1)
    reader = shown(result(scored=lost))
    assert "Kept of what must not be lost 80.0 % 4 of 5 user messages; 1 request breaks rules" in reader.text
    assert len(reader.all("div", **{"class": "figure bad"})) == 2


def test_a_policy_that_costs_more_is_not_sold():
    assert "150 % of the cost of doing nothing" in shown(result(scored=scores(1_000, 1_500, requests=2))).text


def test_the_shipped_policy_is_presented_or_the_first_that_does_anything():
    assert presented([NOTHING, "sliding-10", "default"]) == "default"
    assert presented([NOTHING, "sliding-10"]) == "sliding-10"
    assert presented([NOTHING]) == NOTHING


def test_it_says_what_one_must_know_to_believe_it():
    text = shown(result(), setting="2 conversations, summaries: stand-in").text
    for said in ("behaviour is held fixed, so savings are upper bounds", "summaries are a stand-in's unless a model",
                 "no request was sent to a provider", "2 conversations, summaries: stand-in"):  # fmt: skip
        assert said in text


def test_no_share_is_rounded_up_to_all_or_down_to_nothing():
    assert [exact(share).replace("\N{NO-BREAK SPACE}", " ") for share in (1, 0.9999, 0.5, 0.0001, 0)] == [
        "100.0 %", "99.9 %", "50.0 %", "0.1 %", "0.0 %",
    ]  # fmt: skip


def test_figures_read_well():
    assert [percent(share).replace("\N{NO-BREAK SPACE}", " ") for share in (0.461, 0.023, 0)] == [
        "46 %",
        "2.3 %",
        "0 %",
    ]
    assert [dollars(each * PICO // 100) for each in (150, 123_456_700)] == ["$1.50", "$1,234,567"]
    assert [span(seconds) for seconds in (42, 600, 9_660, 93_600)] == ["42 s", "10 min", "2 h 41 min", "1 d 2 h"]


# --- pictures --------------------------------------------------------------------------------------------------------


def test_every_rewrite_has_a_mark_that_says_why():
    source = page([result(drawn=points((100, 100), (300, 40), (500, 240), rewrites=(1,)))])
    assert source.count('class="mark"') == 1 + 1  # and one in the legend
    assert "<title>request 2 (stride): 100 tokens before, 40 now</title>" in source


def test_the_window_is_drawn_where_it_does_not_press_everything_flat():
    near, far = (page([result(window=window)]) for window in (700, 100_000))
    assert 'class="limit"' in near.split("</figure>")[0]
    assert 'class="limit"' not in far


def test_the_numbers_of_each_picture_stand_behind_it():
    reader = shown(result(drawn=points((1_000, 1_000), (2_345, 678), rewrites=(1,))))
    assert "The numbers in this picture" in reader.text
    assert "2 2,345 678 339 stride" in reader.text


def test_the_dearest_have_pictures_and_the_others_a_table():
    many = [
        result(conversation=f"folder/{number:02}", scored=scores(1_000 + number, 400, requests=2))
        for number in range(PICTURED + 3)
    ]
    reader = shown(*many)
    assert len(reader.all("svg", **{"class": "chart"})) == PICTURED
    assert f"The {PICTURED} dearest conversations" in reader.text
    assert "The other 3 conversations" in reader.text
    assert reader.text.index("14") < reader.text.index("13")


def test_a_long_session_is_thinned_and_keeps_its_ends_its_extremes_and_its_rewrites():
    sizes = [(number, number % 977) for number in range(5_000)]
    drawn = dict(thinned(points(*sizes, rewrites=(7, 4_001))))
    assert len(drawn) <= MOST + 4
    assert {0, 4_999, 7, 4_001} <= drawn.keys()
    assert max(point.forwarded for point in drawn.values()) == 976
    assert thinned(points(*sizes[:MOST])) == list(enumerate(points(*sizes[:MOST])))


@pytest.mark.parametrize(
    ("top", "wanted"), [(287_000, [100_000, 200_000]), (163_000, [50_000, 100_000, 150_000]), (9, [2.5, 5, 7.5])]
)
def test_the_scale_has_round_numbers(top, wanted):
    assert ticks(top) == wanted


# --- for everybody ---------------------------------------------------------------------------------------------------


def test_it_can_be_read_without_seeing_it():
    source = page(
        [result(NOTHING), result(), result(NOTHING, "two", source="Codex"), result("default", "two", source="Codex")]
    )
    reader = Reader(source)
    assert reader.all("html", lang="en")
    assert all(attrs.get("scope") in {"col", "row"} for attrs in reader.all("th"))
    assert len(reader.all("caption")) == len(reader.all("table")) > 5
    assert (
        len(re.findall(r'<svg[^>]*class="chart"[^>]*role="img"[^>]*><title>|<svg class="chart" role="img"', source))
        == 2
    )
    pictures = [attrs for attrs in reader.all("svg") if "bar" in attrs.get("class", "")]
    assert all(attrs["aria-hidden"] == "true" for attrs in pictures)
    levels = [int(tag[1]) for tag, _ in reader.found if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))


def colours(block):
    return dict(re.findall(r"--([a-z]+): (#[0-9a-f]{3,6})\b", block))


def luminance(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_words_and_lines_stand_out_in_light_in_the_dark_and_on_paper(scheme):
    found = dict(zip(("light", "dark", "print"), map(colours, SHEET.split(":root {")[1:]), strict=True))[scheme]
    for ground in ("paper", "card"):
        for words in ("ink", "soft", "limit", "ours", "good"):
            assert contrast(found[words], found[ground]) >= 4.5, (words, ground)
        for line in ("raw", "mark"):
            assert contrast(found[line], found[ground]) >= 3, (line, ground)


# --- the whole way ---------------------------------------------------------------------------------------------------


def test_a_page_of_real_results():
    conversations = list(read(SAMPLES / "claude-code"))
    trials = [Trial(name, DESIGNS[name], 128_000) for name in (NOTHING, "sliding-10")]
    reader = shown(*run(conversations, trials, Upstream()))
    assert len(reader.all("svg", **{"class": "chart"})) == len(conversations) == 4
    assert "session.jsonl after compaction" in reader.text


def test_no_results_are_no_fault():
    assert "Nothing was replayed" in shown().text
