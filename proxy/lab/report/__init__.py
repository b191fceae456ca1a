"""A replay as one page that can be sent to somebody: the figures that matter first, then a picture a conversation.

The page is a single file. It asks for nothing, runs nothing and is allowed nothing (its policy names the one style
sheet that stands in it); it can be read in a mail client, in the dark, on paper and by a screen reader.
"""

from collections.abc import Iterator, Sequence

from proxy.lab.replay.scorecard import estimate, totals
from proxy.lab.replay.values import Result
from proxy.lab.report.comparison import comparison
from proxy.lab.report.conversations import conversations
from proxy.lab.report.headline import cards, opening, presented
from proxy.lab.report.markup import Markup, element
from proxy.lab.report.style import POLICY, SHEET
from proxy.lab.report.words import DEFINITIONS, READING

TITLE = "What the conversations would have cost"


def page(results: Sequence[Result], setting: str = "") -> str:
    """The whole page; `setting` is what one must know of the run, in a sentence."""
    within = element("main", *(_body(results) if results else _empty()))
    footer = element("footer", element("p", "Made by compaction-proxy replay. ", setting))
    return "<!doctype html>\n" + element("html", _head(), element("body", within, footer), lang="en") + "\n"


def _head() -> Markup:
    return element(
        "head",
        _lone("meta", charset="utf-8"),
        _lone("meta", http_equiv="Content-Security-Policy", content=POLICY),
        _lone("meta", name="viewport", content="width=device-width, initial-scale=1"),
        _lone("meta", name="referrer", content="no-referrer"),
        _lone("meta", name="color-scheme", content="light dark"),
        element("title", TITLE),
        element("style", Markup(SHEET)),
    )


def _body(results: Sequence[Result]) -> Iterator[Markup]:
    found = totals(results)
    name = presented(list(found))
    yield opening(results, found, name)
    yield cards(found, name, max(result.window for result in results))
    yield element("p", element("strong", "Read it so: "), READING, class_="note")
    yield comparison(results, found, name)
    yield conversations(results, name)
    yield _terms(estimate(found[name]))


def _empty() -> Iterator[Markup]:
    yield element("h1", "Nothing was replayed")
    yield element("p", "No conversation held a request.")


def _terms(told: str) -> Markup:
    """The words, and how well tokens were counted."""
    words = [element("div", element("dt", term), element("dd", told)) for term, told in DEFINITIONS]
    counted = element("p", f"Against recorded usage, {told}.", class_="soft") if told else Markup()
    return element("section", element("h2", "The words"), element("dl", *words, class_="terms"), counted)


def _lone(tag: str, **attributes: str) -> Markup:
    """An element that holds nothing and is not closed."""
    return Markup(element(tag, **attributes).removesuffix(f"</{tag}>"))
