"""What a reader who reads nothing else should know: what it would have cost, and what it would have kept."""

from collections.abc import Iterator, Mapping, Sequence

from proxy.lab.replay.prices import PRICES, share
from proxy.lab.replay.scorecard import OLD
from proxy.lab.replay.values import AGES, Kept, Result, Scores
from proxy.lab.report.markup import Markup, element, joined
from proxy.lab.report.numbers import count, dollars, exact, percent, whole

NOTHING = "nothing"
PRESENTED = "default"
USUAL = ".1/1.25"
PROMISED = ("user messages", "pins")
"""What a policy is to keep to the letter."""


def presented(policies: Sequence[str]) -> str:
    """The policy that the page is about: the shipped one, or the first that does anything."""
    if PRESENTED in policies:
        return PRESENTED
    return next((name for name in policies if name != NOTHING), policies[0])


def opening(results: Sequence[Result], totals: Mapping[str, Scores], name: str) -> Markup:
    scores = totals[name]
    price = share(scores, PRICES[USUAL])
    conversations = len({result.conversation for result in results})
    said = f"{count(conversations, 'conversation')}, {count(scores.requests, 'request')}"
    if price < 1:
        title = f"{percent(1 - price)} less cost for the same {said}"
    else:
        title = f"{percent(price)} of the cost of doing nothing, for {said}"
    return joined(element("h1", title), element("p", *_lead(scores, name), class_="lead"))


def cards(totals: Mapping[str, Scores], name: str, window: int) -> Markup:
    scores = totals[name]
    return element(
        "dl", *(element("div", *card) for card in _cards(scores, totals.get(NOTHING), window)), class_="cards"
    )


def _lead(scores: Scores, name: str) -> Iterator[str | Markup]:
    yield "What recorded sessions of agents would have cost with the policy "
    yield element("strong", name)
    yield f" in between. Replayed request by request; {whole(scores.raw.read)} tokens were sent, "
    yield f"{whole(scores.forwarded.read)} forwarded."


def _cards(scores: Scores, plain: Scores | None, window: int) -> Iterator[tuple[Markup, ...]]:
    price = share(scores, PRICES[USUAL])
    yield _card("Cost, against doing nothing", percent(price), _money(scores), good=price < 1)
    tokens = scores.forwarded.read / scores.raw.read if scores.raw.read else 1.0
    yield _card("Tokens, against those sent", percent(tokens), _caught(scores), good=tokens < 1)
    often = 100 * scores.rewrites / scores.requests if scores.requests else 0.0
    broken = f"{count(scores.rewrites, 'rewrite')} in {count(scores.requests, 'request')}"
    yield _card("Cache broken, per 100 requests", f"{often:.1f}", broken)
    yield _card("Requests over the window", whole(scores.over), _largest(scores, plain, window), good=scores.over == 0)
    old, fresh = scores.kept_of(OLD), scores.kept_of(AGES[:1])
    if old.asked:
        just = f"; of what it had just read {_part(fresh.in_context, fresh)}" if fresh.asked else ""
        told = f"in its context; {_part(old.named, old)} at least by name{just}"
        yield _card("What the next action needed", _part(old.in_context, old), told)
    if scores.recall:
        yield _promised(scores)


def _card(term: str, figure: str, told: str, *, good: bool | None = None) -> tuple[Markup, ...]:
    kind = "figure" if good is None else "figure good" if good else "figure bad"
    return (
        element("dt", term),
        element("dd", element("div", figure, class_=kind), element("div", told, class_="soft")),
    )


def _money(scores: Scores) -> str:
    at = f"at {USUAL} of the plain price, cached / not cached"
    if not scores.priced or not scores.raw_bill:
        return at
    some = "" if scores.priced == scores.requests else f", for the {whole(scores.priced)} whose model has known prices"
    return f"{dollars(scores.bill)} instead of {dollars(scores.raw_bill)} at list prices{some}"


def _caught(scores: Scores) -> str:
    read = scores.forwarded.read
    return f"{percent(scores.forwarded.cached / read)} of them from the provider's cache" if read else ""


def _largest(scores: Scores, plain: Scores | None, window: int) -> str:
    told = f"the largest had {whole(scores.peak)} of {whole(window)} tokens"
    return f"{told}; doing nothing: {whole(plain.over)} over" if plain and plain.over else told


def _part(kept: int, of: Kept) -> str:
    return exact(kept / of.asked)


def _promised(scores: Scores) -> tuple[Markup, ...]:
    """What must survive, held against the last request of each conversation; and that nothing became invalid."""
    asked = {name: found for name in PROMISED if (found := scores.recall.get(name)) is not None and found.asked}
    kept, of = (sum(getattr(found, field) for found in asked.values()) for field in ("kept", "asked"))
    broken = max(scores.invalid.values(), default=0)
    told = " and ".join(f"{whole(found.kept)} of {whole(found.asked)} {name}" for name, found in asked.items())
    breaks = f"{count(broken, 'request')} {'breaks' if broken == 1 else 'break'} rules of some API that it kept before"
    valid = breaks if broken else "no request became invalid"
    rest = ", ".join(_recalled(scores, name) for name in scores.recall if name not in PROMISED)
    said = "; ".join(filter(None, [told, valid, f"beside them {rest}" if rest else ""]))
    title = "Never lost" if kept == of and not broken else "Kept of what must not be lost"
    return _card(title, exact(kept / of) if of else "-", said, good=kept == of and not broken)


def _recalled(scores: Scores, name: str) -> str:
    found = scores.recall[name]
    return f"{exact(found.kept / found.asked)} of {name}" if found.asked else f"no {name}"
