"""The page of a replay: it loads nothing, shows the figures, and no name becomes markup."""

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

from proxy.lab.replay.conclusion import conclude, exact_percent
from proxy.lab.replay.designs import DESIGNS, NOTHING
from proxy.lab.replay.replay_jobs import replay_all
from proxy.lab.replay.replay_values import (
    PICO_PER_DOLLAR,
    PRICES,
    Judged,
    Needed,
    Point,
    Recall,
    Result,
    Scores,
    Tokens,
)
from proxy.lab.replay.scorecard import Row
from proxy.lab.replay.scoring import UpstreamModel
from proxy.lab.replay.simulation import Trial
from proxy.lab.report import CHARTS_LIMIT, page
from proxy.lab.sessions import read_conversations
from tests.support.written_steps import assert_file

SAMPLES, READ = Path(__file__).parent / "samples", Path(__file__).parent / "golden" / "page" / "page.txt"
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


def result(policy="default", conversation="one", *, source="pi", window=128_000, scored=None):
    scored = scored or scores(1_000, 400, requests=2, rewrites=1, peak=300)
    drawn = points((400, 300), (600, 100), rewrites=(1,))
    return Result(policy, conversation, source, "some-model", window, scored, drawn)


class Reader(HTMLParser):
    """The page as a browser sees it: elements with their attributes and the text within."""

    def __init__(self, source):
        super().__init__()
        self.open, self.found, self.texts = [], [], []
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self.texts.append(" | " if tag in ("td", "th") else "\n")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "title"} & set(self.open[-1:]):
            self.texts.append(data)

    def all(self, tag, **wanted):
        return [attrs for name, attrs in self.found if name == tag and wanted.items() <= attrs.items()]

    def read_aloud(self):
        """What is read, a line for each row of a table and for each other text."""
        rows = "".join(self.texts).replace("\N{NO-BREAK SPACE}", " ").split("\n")
        return "\n".join(filter(None, (" ".join(row.split()).strip(" |") for row in rows))) + "\n"

    @property
    def text(self):
        return " ".join(" ".join(self.texts).replace("\N{NO-BREAK SPACE}", " ").split())


def parse_page(*results):
    reader = Reader(page(results))
    assert reader.open == []
    return reader


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


HOSTILE = "</title></style><script>alert(1)</script><img src=x onerror=\"alert('x')\">&amp; $title ${x}"


def test_a_session_name_is_escaped_whatever_it_holds():
    drawn = (Point(1, 0.0, 600, 0, 300, 0, rewrote=True, reason=HOSTILE),)
    hostile = Result(HOSTILE, HOSTILE, HOSTILE, HOSTILE, 500, result().scores, drawn)
    plain, reader = parse_page(result(window=500)), parse_page(hostile, hostile)
    assert {tag for tag, _ in reader.found} <= {tag for tag, _ in plain.found}
    assert "<script>alert(1)</script>" in reader.text
    assert {name for _, attrs in reader.found for name in attrs} <= {name for _, attrs in plain.found for name in attrs}


def test_a_person_reads_what_the_golden_file_shows():
    costs = {"raw_bill": 8 * PICO_PER_DOLLAR, "priced": 4}
    plain = scores(1_000, 1_000, requests=4, over=3, peak=500, bill=8 * PICO_PER_DOLLAR, **costs)
    ours = scores(
        *(1_000, 400),
        requests=4,
        rewrites=1,
        peak=200,
        bill=2 * PICO_PER_DOLLAR,
        reread_bill=PICO_PER_DOLLAR,
        needed=Needed(10, 9, 1, Tokens(100)),
        recall={"user messages": Recall(5, 5), "pins": Recall(2, 2), "failures told": Recall(9, 4)},
        sentences={"placeholder": Judged(7, 5, 1)},
        **costs,
    )
    assert_file(READ, parse_page(result(NOTHING, scored=plain), result(scored=ours)).read_aloud())


def test_without_list_prices_a_conclusion_names_the_price_model():
    ours = scores(1_000, 1_300, requests=4, rewrites=1)
    assert conclude("thrifty", Row([ours, ours], PRICES["tenth"]), "tenth") == (
        "In 2 conversations with 8 requests, thrifty forwards 2,600 of 2,000 tokens (130.0 %), and loses 30.0 % of the "
        "input cost if lost results are read again: cached input at a tenth of its price (0.1 of the input price, new "
        "1.25)."
    )


def test_no_share_is_rounded_up_to_all_or_down_to_nothing():
    shares = [exact_percent(share) for share in (1, 0.9999, 0.5, 0.0001, 0)]
    assert shares == ["100.0 %", "99.9 %", "50.0 %", "0.1 %", "0.0 %"]


def test_the_most_expensive_have_charts_and_the_table_holds_all():
    many = [
        result(conversation=f"folder/{number:02}", scored=scores(1_000 + number, 400, requests=2))
        for number in range(CHARTS_LIMIT + 3)
    ]
    reader = parse_page(*many)
    assert len(reader.all("svg")) == CHARTS_LIMIT
    assert reader.text.count("folder/") == 2 * CHARTS_LIMIT + 3
    assert reader.text.index("folder/14") < reader.text.index("folder/13")


def test_it_can_be_read_without_seeing_it():
    reader = parse_page(result(NOTHING), result(), result("default", "two", source="Codex"))
    assert reader.all("html", lang="en")
    assert all(attrs.get("scope") in {"col", "row"} for attrs in reader.all("th"))
    assert len(reader.all("caption")) == len(reader.all("table")) == 7
    assert all(attrs["aria-label"] for attrs in reader.all("svg", role="img"))


def test_a_page_of_real_results():
    conversations = list(read_conversations(SAMPLES / "claude-code"))
    trials = [Trial(name, DESIGNS[name], 128_000) for name in (NOTHING, "sliding-10")]
    reader = parse_page(*replay_all(conversations, trials, UpstreamModel()))
    assert len(reader.all("svg")) == len(conversations) == 4
    assert "session.jsonl after compaction" in reader.text
