"""Who is better than ours at what, and what it pays for that: read off the figures, so that no sentence can flatter.

A policy is cheaper where it costs less under a price model, re-reads charged, by more than two parts in a hundred; it
keeps more where a share of the needed spans is higher by more than half a part. What it gives up for that is
everything ours is better at. Of what a relay takes, which is never the same twice, less is a tenth less.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill

from proxy.lab.replay.prices import PRICES, share_with_rereads
from proxy.lab.replay.scorecard import Row
from proxy.lab.replay.values import Scores

CHEAPER = 0.98
LIGHTER = 0.9
MORE = 0.005


@dataclass(frozen=True, slots=True)
class Better:
    """One that is better than ours at something."""

    name: str
    at: tuple[str, ...]
    but: tuple[str, ...]
    """What ours is better at; empty for one that is simply better."""


def better(rows: Mapping[str, Row], ours: str) -> list[Better]:
    """All that take part, in the order of the table."""
    own = rows[ours]
    return [
        Better(name, at, tuple(_given_up(other, own)))
        for name, other in rows.items()
        if name != ours and (at := (*_cheaper(other, own), *_keeps_more(other, own)))
    ]


def _cheaper(other: Row, own: Row) -> Iterator[str]:
    theirs, ours = _costs(other), _costs(own)
    less = [f"{name} ({100 * cost:.1f})" for name, cost in theirs.items() if cost < ours[name] * CHEAPER]
    if less:
        yield f"cost with re-reads at {', '.join(less)}"


def _keeps_more(other: Row, own: Row) -> Iterator[str]:
    theirs, ours = kept_shares(other), kept_shares(own)
    more = [f"{name} ({share:.3f})" for name, share in theirs.items() if share > ours[name] + MORE]
    if more:
        yield ", ".join(more)


def _given_up(other: Row, own: Row) -> Iterator[str]:
    costs, our_costs = _costs(other), _costs(own)
    dearer = [f"{name} ({100 * cost:.1f})" for name, cost in costs.items() if our_costs[name] < cost * CHEAPER]
    if dearer:
        yield f"cost with re-reads at {', '.join(dearer)}"
    theirs, ours = kept_shares(other), kept_shares(own)
    yield from (f"{name} ({share:.3f})" for name, share in theirs.items() if share < ours[name] - MORE)
    our_faults = _faults(own.scores)
    for what, count in _faults(other.scores).items():
        if count > our_faults[what]:
            yield f"{count:,} {what}"


def _costs(row: Row) -> dict[str, float]:
    return {name: share_with_rereads(row.scores, prices) for name, prices in PRICES.items()}


def _faults(scores: Scores) -> dict[str, int]:
    return {"over the window": scores.over, "invalid": scores.invalid.get("openai", 0), "failed": scores.failed}


def kept_shares(row: Row) -> dict[str, float]:
    """Needed spans one by one and each conversation alike; where nothing was needed, nothing was lost."""
    per_conversation = row.spans_per_conversation
    return {
        "spans": 1.0 if row.spans is None else row.spans,
        "spans per conversation": 1.0 if per_conversation is None else per_conversation,
    }


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
