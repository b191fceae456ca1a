"""The page docs/generated-histories.md: how much was played, and how often what must not happen did."""

import textwrap
from collections import Counter
from collections.abc import Mapping

from bench.tables import provenance, table
from tests.end_to_end.growing import apis
from tests.end_to_end.growing.run import (
    AVOIDABLE,
    BELOW_ZERO,
    NOT_OPEN,
    OTHER_BYTES,
    OTHER_BYTES_LATER,
    OTHER_MEMBER,
    OTHER_PREFIX,
    SUMMARY_TOO_LONG,
    WINDOWS,
    Findings,
)

LINE_LENGTH = 120
COMMAND = "python -m tests.end_to_end.growing --markdown docs/generated-histories.md"
TITLE = "# Generated histories"
ABOUT = (
    "{histories:,} histories of {conversations:,} generated conversations were sent turn by turn through two workers "
    "of the proxy, under every included policy and four more, before windows of {windows} tokens. A third of the "
    "conversations is not sound: calls without results, arguments that are no JSON, repeated keys. The workers are "
    "restarted in the middle of every conversation, and six of ten summaries are of no use. The judge is written from "
    "the documentation of the API, without code of the proxy (`tests/support/history_judge.py`)."
)
MADE_BY = "`make soak` plays them, CI a tenth of them. This page is made by"
# In the words of this page: what was looked for, and how the run and the judge name a fault of that kind.
CHECKS = (
    ("forwarded histories that were less valid than what the client sent", ("made invalid",)),
    ("untouched messages with other bytes, or in another order", ("an untouched message", "kept messages")),
    ("other members of a request with other bytes", (OTHER_MEMBER,)),
    ("prefixes that changed without a new block", (OTHER_PREFIX,)),
    ("histories sent once more that left with other bytes (either worker)", (OTHER_BYTES,)),
    ("the same after a restart", (OTHER_BYTES_LATER,)),
    ("refused as too long though that could be helped", (AVOIDABLE,)),
    ("calls for summaries over the window", (SUMMARY_TOO_LONG,)),
    ("system prompts, instructions or pins lost", ("the head changed", "an instruction is gone", "a pin is gone")),
    ("messages of the user lost that the policy keeps", ("the last user message", "a user message")),
    ("forwarded histories longer than what came, sizes below zero", ("longer than it came", BELOW_ZERO)),
    ("faults of the proxy itself", (NOT_OPEN,)),
)


OTHER_APIS = "## Messages and Responses"
ABOUT_APIS = (
    "The sound ones of these conversations in the other two APIs, half of them as streams "
    "(`tests/end_to_end/growing/apis.py`)."
)
CHECKS_OF_APIS = (
    ("forwarded histories that the API rejects, where it took what came", apis.INVALID),
    ("untouched parts in another order", apis.OUT_OF_ORDER),
    ("other members of a request changed", OTHER_MEMBER),
    ("prefixes that changed without a new block", OTHER_PREFIX),
    ("histories sent once more that left with other bytes", OTHER_BYTES),
    ("the same after a restart", OTHER_BYTES_LATER),
    ("the user's newest words lost", apis.LOST_WORDS),
    ("forwarded histories longer than what came", apis.LONGER),
    ("calls for summaries over the window", SUMMARY_TOO_LONG),
    ("faults of the proxy itself", NOT_OPEN),
)
PLAYED = (
    ("histories", "histories"),
    ("forwarded with other messages than they came with", "rewritten"),
    ("in which a new block was made", "created"),
    ("sent once more", "repeated"),
    ("summaries asked for", "summaries"),
    ("refused by the upstream: what must stay is too long, or nothing may be shortened", "refused"),
)


def report_apis(found: Mapping[str, apis.Findings]) -> str:
    """The part of the page about the other APIs."""
    kinds = {name: Counter(fault[0] for fault in each.faults) for name, each in found.items()}
    checks = [(name, *(f"{kinds[api][sentence]:,}" for api in found)) for name, sentence in CHECKS_OF_APIS]
    played = [(name, *(f"{each.tally[key]:,}" for each in found.values())) for name, key in PLAYED]
    parts = (
        OTHER_APIS,
        textwrap.fill(ABOUT_APIS, LINE_LENGTH, break_on_hyphens=False),
        f"{provenance()}.",
        table(("must not happen", *found), checks),
        table(("played", *found), played),
    )
    return "\n" + "\n".join(f"{part}\n" for part in parts).strip() + "\n"


def report(found: Findings) -> str:
    tally = found.tally
    kinds = Counter(fault[0] for fault in found.faults)
    windows = f"{', '.join(f'{window:,}' for window in WINDOWS[:-1])} and {WINDOWS[-1]:,}"
    rows = (*PLAYED[:-1], ("restarts of both workers", "restarts"), PLAYED[-1])
    played = [(name, f"{tally[key]:,}") for name, key in rows]
    checks = [
        (name, f"{sum(times for kind, times in kinds.items() if kind.startswith(starts)):,}") for name, starts in CHECKS
    ]
    about = ABOUT.format(histories=tally["histories"], conversations=tally["conversations"], windows=windows)
    parts = (
        TITLE,
        textwrap.fill(about, LINE_LENGTH, break_on_hyphens=False),
        f"{textwrap.fill(MADE_BY, LINE_LENGTH)}\n\n```\n{COMMAND}\n```",
        f"{provenance()}.",
        table(("must not happen", "found"), checks),
        table(("played", ""), played),
    )
    return "\n".join(f"{part}\n" for part in parts).strip() + "\n"
