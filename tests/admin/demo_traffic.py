"""A day of made-up traffic in an activity log: three teams, four models, errors, summaries. For tests and pictures."""

import math
import random
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from proxy.events import RequestFinished
from proxy.store.activity_log import ActivityLog, Incident
from proxy.store.usage_sums import UsageDelta, UsageNames
from proxy.telemetry.activity import ActivityListener
from tests.support.admin_client import TURN
from tests.support.clocks import even_clock

HOURS = 24
TEAMS = {
    "platform": ("gpt-5.1", "claude-sonnet-4-5"),
    "search": ("gpt-5.1-codex", "gpt-5-mini"),
    "research": ("claude-sonnet-4-5",),
}
PRICES = {"gpt-5.1": 1.25, "gpt-5.1-codex": 1.25, "gpt-5-mini": 0.25, "claude-sonnet-4-5": 3.0}
REQUEST = RequestFinished(
    "cp-0", "POST", "/v1/chat/completions", 200, "completed", upstream="default", compaction="none",
    seconds=1.0, first_byte_seconds=0.5, overhead_seconds=0.004,
)  # fmt: skip
FAILURES = (
    (429, "completed", None),
    (400, "completed", None),
    (502, "failed", "upstream_unreachable"),
    (401, "refused", "unauthorized"),
    (200, "client-left", None),
)


def fill(folder: Path, now: float, per_hour: int = 60) -> None:
    """Write the day that ends now."""
    folder.mkdir(mode=0o700)
    dice, clock = random.Random(7), {"now": now}
    log = ActivityLog(folder, clock=even_clock(lambda: clock["now"]))
    for number in range(HOURS * per_hour):
        at = now - HOURS * 3600 + number * 3600 / per_hour
        hour = (at / 3600) % 24
        if dice.random() > 0.35 + 0.6 * math.exp(-(((hour - 14) / 5) ** 2)):
            continue
        clock["now"] = at + dice.random() * 40
        _write(log, dice, number)
    clock["now"] = now
    log.close(seconds=30)


def fill_with_sessions(folder: Path, count: int) -> None:
    """Write one request of each of so many sessions, each larger than the one before."""
    folder.mkdir(mode=0o700)
    log = ActivityLog(folder)
    for number in range(count):
        log.record(replace(TURN, session=f"session-{number}", tokens_before=1_000 + number))
    log.close(seconds=30)


def fill_with_arms(folder: Path, policies: Sequence[str]) -> None:
    """Write a conversation under each policy, and one that its holdout left alone."""
    folder.mkdir(mode=0o700)
    log = ActivityLog(folder)
    for policy in policies:
        for arm in ("treated", "left-alone"):
            log.record(replace(TURN, conversation=f"{policy} {arm}", policy=policy, arm=arm))
    log.close(seconds=30)


def _write(log, dice, number):
    team = dice.choices(list(TEAMS), (5, 3, 1))[0]
    model = dice.choice(TEAMS[team])
    raw = int(12_000 + 110_000 * dice.random() ** 1.5)
    sent = int(raw * (0.35 + 0.3 * dice.random())) if raw > 26_000 else raw
    price, conversation = PRICES[model] / 1e6, f"{team[:2]}{number // 40:014x}"
    created = raw > 26_000 and dice.random() < 0.05
    plain, paid = raw * price * 0.16, sent * price * (0.9 if created else 0.14)
    shared = {"team": team, "model": model, "conversation": conversation}
    path = "/v1/messages" if model.startswith("claude") else "/v1/chat/completions"
    seconds = math.exp(dice.gauss(1.6, 0.7))
    request = replace(
        REQUEST,
        request_id=f"cp-{number:016x}",
        route="/v1/responses" if "codex" in model else path,
        upstream="anthropic" if model.startswith("claude") else "openai",
        compaction="created" if created else "applied" if sent < raw else "none",
        tokens_before=raw,
        tokens_after=sent,
        tokens_would_be=sent,
        bytes_in=raw * 4,
        bytes_out=int(400 + 6_000 * dice.random()),
        seconds=seconds,
        first_byte_seconds=seconds * 0.3,
        overhead_seconds=0.002 + raw / 2e7,
        **shared,
    )
    if dice.random() < 0.035:
        status, outcome, reason = dice.choice(FAILURES)
        request = replace(request, status=status, outcome=outcome, reason=reason, compaction="none")
        events, created = [request], False
    else:
        turn = replace(
            TURN,
            tenant=f"team.{team}",
            key=f"{team[:2]}9d308beb",
            user=f"{team[0]}.person@corp.test",
            session=f"ses_{number // 40:04d}",
            upstream=request.upstream,
            policy="default" if team != "research" else "patient",
            arm=("treated", "left-alone")[number // 40 % 2],
            action=request.compaction,
            tokens_before=raw,
            tokens_after=sent,
            tokens_would_be=sent,
            tokens_unshortened=raw,
            prompt_tokens=sent,
            cached_tokens=int(sent * (0.3 if created else 0.93)),
            output_tokens=int(100 + 900 * dice.random()),
            plain_dollars=plain,
            paid_dollars=paid,
            would_be_dollars=paid,
            placed="cache-key" if number % 3 == 0 else "",
            request_id=request.request_id,
            **shared,
        )
        events = [turn, request]
    for event in events:
        ActivityListener(log)(event)
    if created and dice.random() < 0.5:
        cost = sent * price * 0.3
        details = {"outcome": "made", "model": model, "tries": 1, "seconds": 9.1}
        tokens = {"tokens_read": sent, "tokens_cached": int(sent * 0.9), "tokens_written": 900}
        log.record(Incident("info", "summary-ended", conversation, {**details, **tokens}, cost))
        groups = UsageNames(team, turn.policy, model, turn.key, turn.upstream)
        log.record(UsageDelta({"summaries": 1, "spent": cost}, groups))
