"""Arms: conversations under an attachment's policy, compared with those that its `holdout` left alone.

    treated      12.1  9.8  30.5 ...    dollars of each conversation
    left alone   15.0  22.4 ...         -> -23 % (-35 % to -9 %)

Which arm a conversation is in follows from its first message, so both arms have work of the same kinds. A conversation
counts once it is so long that the policy might act, by the highest guess of its size: before that both arms are the
same. So some of those under the policy were never shortened. One with a request under an operator's switch counts in no
arm, since its arm was suspended for a while.

Nothing is claimed before there are as many conversations as a difference of `DETECTABLE_SHARE` needs, since a look a
day at a growing sample would find a difference sooner or later. All measures together claim a difference that is not
there in at most 5 of 100 comparisons: each is tested at a share of 0.05. Few conversations are tested by permutation,
which holds for any distribution, many by the normal approximation of it.
"""

import math
import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean, pvariance, quantiles
from typing import Annotated, Any

from msgspec import Meta, Struct, field, to_builtins

from proxy.admin.routes import AdminContext, AdminRequest, Json, Query
from proxy.store.activity_log import ActivityLog
from proxy.store.usage_sums import DAY_SECONDS

DETECTABLE_SHARE = 0.2
"""The sample is large enough for a difference of this share of the mean."""
CONVERSATIONS_MIN = 20
"""Fewer of an arm do not tell how much conversations vary: they have no interval."""
RESAMPLE_COUNT = 1_000
GROUP_COUNT = 200
"""If there are more conversations, they are put into this many groups whose means are drawn, which bounds the time."""


class Difference(Struct, frozen=True):
    """The treated arm's mean against that of the arm that was left alone."""

    treated: float
    left_alone: float
    share: float | None
    """The relative difference: -0.2 is a fifth less than left alone. None if that is 0 or there are few of an arm."""
    low: float | None
    high: float | None
    """The interval of `share`."""
    is_claimed: bool
    missing: int
    """Conversations that are still needed, of both arms together."""


def compare(treated: Mapping[str, Sequence[float]], left_alone: Mapping[str, Sequence[float]]) -> dict[str, Difference]:
    """Compare the arms by each measure. Each value is that of one conversation."""
    level = 0.05 / max(1, len(treated))  # 0.05: the share of comparisons that may claim too much
    differences = {}
    for name, values in treated.items():
        base_values = left_alone[name]
        means = fmean(values) if values else 0.0, fmean(base_values) if base_values else 0.0
        missing = count_missing(values, base_values, level)
        if min(len(values), len(base_values)) < CONVERSATIONS_MIN or not means[1]:
            differences[name] = Difference(*means, None, None, None, is_claimed=False, missing=missing)
            continue
        dice = random.Random(1)  # noqa: S311 (the same values have the same interval)
        low, high = _find_interval(values, base_values, level, dice)
        is_claimed = not missing and not low <= 0 <= high and _is_significant(values, base_values, level, dice)
        share = means[0] / means[1] - 1
        differences[name] = Difference(*means, share, low, high, is_claimed=is_claimed, missing=missing)
    return differences


def count_missing(treated: Sequence[float], left_alone: Sequence[float], level: float) -> int:
    """Return how many conversations more, of both arms, a difference of `DETECTABLE_SHARE` needs."""
    sizes = len(treated), len(left_alone)
    total = sum(sizes)
    if min(sizes) < CONVERSATIONS_MIN:
        share = max(min(sizes), 1) / max(total, 1)
        return max(2 * CONVERSATIONS_MIN, math.ceil(CONVERSATIONS_MIN / share)) - total
    mean = fmean(left_alone)
    if not mean:
        return 0
    normal = NormalDist()
    deviations = normal.inv_cdf(1 - level / 2) + normal.inv_cdf(0.8)  # 0.8: the share of differences to be found
    # Divided by the number of all conversations, this is the variance of the difference of the means.
    variance = pvariance(treated) * total / sizes[0] + pvariance(left_alone) * total / sizes[1]
    needed_conversations = math.ceil(variance * (deviations / (DETECTABLE_SHARE * mean)) ** 2)
    return max(0, needed_conversations - total)


def _find_interval(
    treated: Sequence[float], left_alone: Sequence[float], level: float, dice: random.Random
) -> tuple[float, float]:
    # The bootstrap: what the difference would be in other samples of the same conversations.
    treated_means, base_means = _gather(treated), _gather(left_alone)
    shares = []
    for _ in range(RESAMPLE_COUNT):
        base = fmean(dice.choices(base_means, k=len(base_means)))
        if base:
            shares.append(fmean(dice.choices(treated_means, k=len(treated_means))) / base - 1)
    shares.sort()
    edge = int(level / 2 * len(shares))
    return shares[edge], shares[-1 - edge]


def _gather(values: Sequence[float]) -> Sequence[float]:
    if len(values) <= GROUP_COUNT:
        return values
    return [fmean(values[number::GROUP_COUNT]) for number in range(GROUP_COUNT)]


def _is_significant(treated: Sequence[float], left_alone: Sequence[float], level: float, dice: random.Random) -> bool:
    values = [*treated, *left_alone]
    difference = abs(fmean(treated) - fmean(left_alone))
    size, rest = len(left_alone), len(treated)
    if size >= GROUP_COUNT and rest >= GROUP_COUNT:
        error = math.sqrt(pvariance(values) * (1 / size + 1 / rest))
        return difference > error * NormalDist().inv_cdf(1 - level / 2)
    total, extreme = sum(values), 0
    for _ in range(RESAMPLE_COUNT):
        part = sum(dice.sample(values, size))
        extreme += abs(part / size - (total - part) / rest) >= difference
    return extreme / RESAMPLE_COUNT < level


TREATED, LEFT_ALONE = "treated", "left-alone"
MEASURES = {
    "dollars": "cost, with answers and summaries, in dollars",
    "tokens": "tokens of prompts",
    "requests": "requests to the end",
    "errors": "requests that failed or were refused",
    "returns": "messages of the user",
}
"""The compared figures of a conversation, by name. More messages of the user may be corrections."""


class ArmsQuery(Query, frozen=True):
    days: Annotated[float, Meta(gt=0, le=31)] = 31.0
    team: str = ""


class ComparedConversation(Struct):
    policy: str
    arm: str
    newest: float
    dollars: float
    tokens: int
    refetches: int
    returns: int
    was_shortened: bool
    errors: int = 0
    seconds: list[float] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return len(self.seconds)


def show_arms(context: AdminContext, request: AdminRequest) -> Json:
    query: ArmsQuery = request.query
    now = time.time()
    return describe_arms(context.activity_log, now - query.days * DAY_SECONDS, now, query.team)


def describe_arms(log: ActivityLog, since: float, now: float, team: str = "") -> Json:
    by_policy = defaultdict[str, list[ComparedConversation]](list)
    for conversation in read_conversations(log, since, team):
        by_policy[conversation.policy].append(conversation)
    policies = [_describe_policy(name, conversations, now) for name, conversations in sorted(by_policy.items())]
    return {"since": since, "policies": policies}


def read_conversations(log: ActivityLog, since: float, team: str) -> list[ComparedConversation]:
    """Read the conversations that were in one arm from the start: a reload may have set the holdout later."""
    conversations: dict[str, ComparedConversation] = {}
    values = {"since": since, "team": team}
    turns_query = """
        select conversation, min(arm) as arm, max(policy) as policy, max(at) as newest, sum(refetches) as refetches,
               sum(case when prompt_tokens > 0 then prompt_tokens else tokens_after end) as tokens,
               total(paid_dollars + coalesce(answer_dollars, 0)) + (
                   select total(dollars) from incidents where incidents.conversation = turns.conversation
                   and name = 'summary-ended' and at >= :since) as dollars,
               sum(asked_by_user) as returns, max(action in ('applied', 'created')) as was_shortened
        from turns where at >= :since and (:team = '' or team = :team) group by conversation
        having min(arm) = max(arm) and min(arm) != ''
               and (min(arm) = 'treated' or sum(action in ('applied', 'created')) = 0)
    """
    for row in log.query(turns_query, values):
        name = row.pop("conversation")
        conversations[name] = ComparedConversation(**row)
    requests_query = """
        select conversation, seconds, status >= 400 or outcome in ('failed', 'upstream-broke') as has_failed
        from requests where at >= :since
              and conversation in (select conversation from turns where arm != '' and at >= :since)
    """
    for row in log.query(requests_query, values):
        if row["conversation"] in conversations:
            conversation = conversations[row["conversation"]]
            conversation.seconds.append(row["seconds"])
            conversation.errors += row["has_failed"]
    return list(conversations.values())


def _describe_policy(name: str, conversations: Sequence[ComparedConversation], now: float) -> Json:
    # A conversation that was quiet for half an hour has ended. An open one would count as short and cheap.
    ended_conversations = [conversation for conversation in conversations if conversation.newest < now - 1_800]
    arms, values = {}, {}
    seconds: Json = {}
    for arm in (TREATED, LEFT_ALONE):
        arms[arm] = [conversation for conversation in ended_conversations if conversation.arm == arm]
        values[arm] = {name: [getattr(conversation, name) for conversation in arms[arm]] for name in MEASURES}
        durations = [value for conversation in arms[arm] for value in conversation.seconds]
        seconds[arm] = {"p50": None, "p95": None}
        if len(durations) > 1:  # of one value there are no quantiles
            steps = quantiles(durations, n=20, method="inclusive")
            seconds[arm] = {"p50": steps[9], "p95": steps[18]}
    differences = compare(values[TREATED], values[LEFT_ALONE])
    return {
        "policy": name,
        "conversations": {arm: len(arms[arm]) for arm in arms},
        "shortened": sum(conversation.was_shortened for conversation in arms[TREATED]),
        "open": len(conversations) - len(ended_conversations),
        "detectable": DETECTABLE_SHARE,
        "measures": [
            {"name": measure, "meaning": meaning, **to_builtins(differences[measure])}
            for measure, meaning in MEASURES.items()
        ],
        "fetched_again": sum(conversation.refetches for conversation in arms[TREATED]),
        "seconds": seconds,
        "conclusion": conclude(differences),
    }


def conclude(differences: Mapping[str, Difference]) -> str:
    """Return the certain differences, or the number of conversations that a claim about cost still needs."""
    certain = []
    for name, difference in differences.items():
        share = difference.share
        if difference.is_claimed and share is not None:
            amount = f"{abs(share):.0%} {'less' if share < 0 else 'more'}"
            certain.append(f"{name}: {amount} than left alone ({difference.low:+.0%} to {difference.high:+.0%})")
    if certain:
        return "; ".join(certain)
    # Without prices there is no cost.
    name = "dollars" if differences["dollars"].left_alone else "tokens"
    if differences[name].missing:
        count = differences[name].missing
        return f"{count:,} more conversations until a difference of {DETECTABLE_SHARE:.0%} in {name} can be told"
    return f"no difference is certain; one of {DETECTABLE_SHARE:.0%} in {name} would most likely have been seen"


def format_arms(figures: Mapping[str, Any]) -> str:
    """Write the result of `describe_arms` as text."""
    texts = []
    for policy in figures["policies"]:
        counts, seconds = policy["conversations"], policy["seconds"]
        counted = f"{counts[TREATED]:,}", f"{counts[LEFT_ALONE]:,}", f"{policy['open']:,} are open"
        rows = [
            ("of each conversation", "under the policy", "left alone", "difference"),
            ("conversations that ended", *counted),
            ("of these shortened", f"{policy['shortened']:,}", "0", ""),
        ]
        for measure in policy["measures"]:
            difference, verdict = "-", "not certain"
            if measure["is_claimed"]:
                verdict = "certain"
            elif measure["missing"]:
                difference = verdict = f"{measure['missing']:,} more conversations needed"
            if measure["share"] is not None:
                difference = f"{measure['share']:+.0%} ({measure['low']:+.0%} to {measure['high']:+.0%}), {verdict}"
            values = _format_figure(measure["treated"]), _format_figure(measure["left_alone"])
            rows.append((measure["name"], *values, difference))
        for quantile in ("p50", "p95"):
            values = _format_figure(seconds[TREATED][quantile]), _format_figure(seconds[LEFT_ALONE][quantile])
            rows.append((f"seconds of a request, {quantile}", *values, ""))
        rows.append(("results fetched again, in all", f"{policy['fetched_again']:,}", "0", ""))
        lines = [
            f"{name:30}{treated:>18}{left_alone:>12}   {rest}".rstrip() for name, treated, left_alone, rest in rows
        ]
        texts.append("\n".join([f"{policy['policy']}: {policy['conclusion']}", "", *lines]))
    return "\n\n".join(texts)


def _format_figure(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 100:  # noqa: PLR2004 (decimals say nothing then)
        return f"{value:,.0f}"
    return f"{value:.3g}"
