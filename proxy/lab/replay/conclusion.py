"""What a replay comes to, in two sentences. Money is at list prices, or if none is known by a price model."""

from proxy.lab.replay.replay_values import PICO_PER_DOLLAR
from proxy.lab.replay.scorecard import Row, describe_prices


def conclude(policy: str, row: Row, prices: str) -> str:
    scores = row.scores
    count = len(row.conversations)
    size = f"{count:,} conversation{'s' * (count != 1)} with {scores.requests:,} requests"
    if scores.forwarded == scores.raw:
        return f"{policy} shortens nothing in {size}."
    forwarded = f"{scores.forwarded.read:,} of {scores.raw.read:,} tokens"
    if scores.raw.read:
        forwarded += f" ({exact_percent(scores.forwarded.read / scores.raw.read)})"
    sentence = f"In {size}, {policy} forwards {forwarded}, {_tell_cost(row, prices)}"
    needed, judged = scores.needed, row.judged
    kept = []
    if needed.asked:
        kept.append(f"keeps {exact_percent(needed.kept / needed.asked)} of the {needed.asked:,} passages needed later")
    if judged.said:
        false_count = f"{judged.false:,}" if judged.false else "none"
        verdict = f"{judged.true + judged.false:,} were judged, {false_count} of them false"
        kept.append(f"writes {judged.said:,} sentences, of which {verdict}")
    return f"{sentence} It {' and '.join(kept)}." if kept else sentence


def describe_bill(row: Row) -> str:
    """Return an empty text if no price is known."""
    scores = row.scores
    if not (scores.priced and scores.raw_bill):
        return ""
    bill = f"${scores.bill / PICO_PER_DOLLAR:,.2f} instead of ${scores.raw_bill / PICO_PER_DOLLAR:,.2f} at list prices"
    return bill if scores.priced == scores.requests else f"{bill}, for the {scores.priced:,} requests with known prices"


def _tell_cost(row: Row, prices: str) -> str:
    scores, bill = row.scores, describe_bill(row)
    if bill:
        saved_share = 1 - (scores.bill + scores.reread_bill) / scores.raw_bill
        return f"which costs {bill}, and {_tell_saving(saved_share)} if lost results are read again."
    saving = _tell_saving(1 - row.cost_with_rereads)
    return f"and {saving} of the input cost if lost results are read again: {describe_prices(prices)}."


def _tell_saving(share: float) -> str:
    return f"saves {exact_percent(share)}" if share >= 0 else f"loses {exact_percent(-share)}"


def exact_percent(part: float) -> str:
    """A share in percent, never rounded up to all nor down to nothing."""
    text = f"{100 * part:.1f}"
    if text == "100.0" and part < 1:
        text = "99.9"
    return f"{'0.1' if text == '0.0' and part > 0 else text} %"
