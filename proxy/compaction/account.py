"""What is told of a request once its answer is through: figures and names, no word of what anybody said.

What it would have cost without us is told cautiously: everything the client had sent before, within the lifetime of a
cache, counts as read from the cache.
"""

import time
from collections.abc import Mapping
from typing import Any

from proxy.compaction.ground import Decided
from proxy.core import economics
from proxy.core.calibration import prompt_tokens_of
from proxy.core.groups import last_assistant
from proxy.core.window import Window
from proxy.events import TurnEnded
from proxy.wire.headers import find

MILLION = 1_000_000
MOST_TOKENS = 10**9
"""A larger figure in a usage is a mistake of the upstream, and would spoil every sum it enters."""


def account(decided: Decided, usage: Mapping[str, Any] | None) -> TurnEnded:
    case, ready, caller = decided.case, decided.ready, decided.case.call.caller
    notes, told = decided.notes, dict(usage or {})
    after = ready.before if decided.rehearsed else ready.after
    prompt, cached = _number(prompt_tokens_of(told)) or 0, _cached(told)
    paid = None if cached is None or not prompt else _dollars(case.window, prompt, cached)
    changed = paid is not None and after != ready.before
    return TurnEnded(
        conversation=decided.identity.conversation,
        tenant=decided.identity.tenant,
        link=decided.identity.links[-1].hex(),
        team=caller.team,
        key=caller.key_id,
        tag=caller.tag[:64],
        model=case.request.model[:128],
        upstream=case.upstream,
        policy=case.rules.policy,
        policy_version=case.rules.version,
        action=find(notes, "x-compaction") or "",
        reason=find(notes, "x-compaction-reason") or "",
        messages=len(case.request.body),
        tokens_before=ready.before,
        tokens_after=after,
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=_number(told.get("completion_tokens")) or 0,
        paid_dollars=paid,
        plain_dollars=_dollars(case.window, ready.before, _warm(decided)) if changed else paid,
    )


def _warm(decided: Decided) -> int:
    """How many tokens of the history, had it gone out as it came, the upstream would have had in its cache."""
    case, last = decided.case, decided.memory.last
    if last is not None and economics.cold(time.time() - last.forwarded_at, case.facts().prices):
        return 0
    links, body = decided.identity.links, case.request.body
    known = last is not None and last.anchor.link in links
    place = links.index(last.anchor.link) if last is not None and known else last_assistant(body) or 0
    count = case.count(decided.memory.calibration)
    return decided.ready.before - sum(count(message.raw) for message in body[place:])


def _cached(usage: Mapping[str, Any]) -> int | None:
    """Cached tokens of the prompt; None where the upstream does not say."""
    details = usage.get("prompt_tokens_details")
    return _number(details.get("cached_tokens")) if isinstance(details, Mapping) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS else None


def _dollars(window: Window, size: int, cached: int) -> float | None:
    """What a prompt of this size costs, at the price of the cliff it is over; None where prices are unknown."""
    prices = window.prices_at(size)
    if prices is None:
        return None
    warm = min(max(0, cached), size)
    return (warm * prices.cached + (size - warm) * prices.fresh) / MILLION
