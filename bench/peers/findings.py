"""Who is better than ours at what, and what it pays for that: read off the figures, so that no sentence can flatter.

A policy is cheaper where it costs less under a price model by more than two parts in a hundred; it keeps more where a
retention is higher by more than half a part. What it gives up for that is everything ours is better at. Of what a relay
takes, which is never the same twice, less is a tenth less.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill

from proxy.lab.replay.prices import PRICES, share
from proxy.lab.replay.scorecard import OLD
from proxy.lab.replay.values import AGES, Scores

CHEAPER = 0.98
LIGHTER = 0.9
MORE = 0.005
KEPT = ("in context", "named", "fresh")


@dataclass(frozen=True, slots=True)
class Better:
    """One that is better than ours at something."""

    name: str
    at: tuple[str, ...]
    but: tuple[str, ...]
    """What ours is better at; empty for one that is simply better."""


def better(scores: Mapping[str, Scores], ours: str) -> list[Better]:
    """All that take part, in the order of the table."""
    own = scores[ours]
    return [
        Better(name, at, tuple(_given_up(other, own)))
        for name, other in scores.items()
        if name != ours and (at := (*_cheaper(other, own), *_keeps_more(other, own)))
    ]


def _cheaper(other: Scores, own: Scores) -> Iterator[str]:
    costs = {name: (share(other, prices), share(own, prices)) for name, prices in PRICES.items()}
    less = [f"{name} ({100 * a:.1f})" for name, (a, b) in costs.items() if a < b * CHEAPER]
    if less:
        yield f"cost at {', '.join(less)}"


def _keeps_more(other: Scores, own: Scores) -> Iterator[str]:
    theirs, ours = retentions(other), retentions(own)
    more = [f"{name} ({theirs[name]:.3f})" for name in KEPT if theirs[name] > ours[name] + MORE]
    if more:
        yield ", ".join(more)


def _given_up(other: Scores, own: Scores) -> Iterator[str]:
    dearer = [
        f"{name} ({100 * share(other, prices):.1f})"
        for name, prices in PRICES.items()
        if share(own, prices) < share(other, prices) * CHEAPER
    ]
    if dearer:
        yield f"cost at {', '.join(dearer)}"
    theirs, ours = retentions(other), retentions(own)
    yield from (f"{name} ({theirs[name]:.3f})" for name in KEPT if theirs[name] < ours[name] - MORE)
    for what, count in _faults(other).items():
        if count > _faults(own)[what]:
            yield f"{count:,} {what}"


def _faults(scores: Scores) -> dict[str, int]:
    return {"over the window": scores.over, "invalid": scores.invalid.get("openai", 0), "failed": scores.failed}


def retentions(scores: Scores) -> dict[str, float]:
    """The three main measures; where nothing was asked, nothing was lost."""
    old, fresh = scores.kept_of(OLD), scores.kept_of(AGES[:1])
    return {
        "in context": _ratio(old.in_context, old.asked),
        "named": _ratio(old.named, old.asked),
        "fresh": _ratio(fresh.in_context, fresh.asked),
    }


def _ratio(kept: int, asked: int) -> float:
    return kept / asked if asked else 1.0


def sentences(found: Sequence[Better], ours: str) -> list[str]:
    """A row of a list for each; a sentence where there is none."""
    if not found:
        return [f"None of these is cheaper than {ours} or keeps more."]
    return [_item(f"**{one.name}**: {'; '.join(one.at)}. {_price(one.but)}") for one in found]


def _item(text: str) -> str:
    """An item of a list, in lines as long as a page may have them."""
    return fill(text, 120, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


def _price(but: tuple[str, ...]) -> str:
    return f"For that: {'; '.join(but)}." if but else "At no price: it is simply better."


def lighter(figures: Mapping[str, Mapping[str, float | None]], ours: str) -> list[str]:
    """Of each thing that is taken: who takes less than ours, the least first."""
    rows = []
    for title, by_name in figures.items():
        own = by_name.get(ours)
        less = {name: taken for name, taken in by_name.items() if own and taken is not None and taken < own * LIGHTER}
        who = ", ".join(f"{name} ({less[name]:.3g})" for name in sorted(less, key=lambda name: less[name]))
        rows += [_item(f"{title}, ours {own:.3g}: {who}.")] if less else []
    return rows or ["None of these takes less than ours of anything."]
