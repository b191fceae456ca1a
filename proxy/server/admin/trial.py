"""What if? Conversations of the last days, as they are kept, turn by turn through a policy and through today's.

It is the same replay as the command's, on this machine's originals, in a thread, one at a time and within bounds: how
many conversations, how large, and how long altogether. What it says is of those it got through.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy.access.registry import Published
from proxy.config import Config, InvalidConfig
from proxy.errors import NotFound, Overloaded
from proxy.replay.cache import PROVIDER
from proxy.replay.heart import Trial
from proxy.replay.prices import PRICES, share
from proxy.replay.run import Job, replayed
from proxy.replay.scoring import Upstream, total
from proxy.replay.sessions import transcripts
from proxy.replay.sessions.files import Sheet
from proxy.replay.sessions.history import conversation
from proxy.replay.summaries import StandIn
from proxy.replay.values import PICO, Conversation, Scores
from proxy.server.admin import shelf
from proxy.server.admin.faults import Invalid
from proxy.server.admin.policies import Values, out_of_reach
from proxy.server.admin.routes import Asked, Desk, Originals, Route
from proxy.store.transcripts.retention import Stored
from proxy.windows import resolve
from proxy.wire.caller import Caller

DAY_SECONDS = 24 * 3600.0
WINDOW = 128_000
"""Of models that tell none."""
LARGEST = 8 * 1024 * 1024
"""Of one conversation, on disk."""
_PRICES = PRICES[".1/1.25"]


class TrialWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    policy: str = "default"
    values: Values | None = None
    """Values to try under this name, as they would be published; none: the policy as it is."""
    against: str = "default"
    """What it is held against: the policy of today."""
    team: Annotated[str, Meta(max_length=200)] = ""
    """Whose conversations; empty: everybody's."""
    days: Annotated[float, Meta(gt=0, le=366)] = 7.0
    conversations: Annotated[int, Meta(ge=1, le=200)] = 25
    seconds: Annotated[float, Meta(gt=0, le=60)] = 20.0
    window: Annotated[int, Meta(ge=1_000, le=100_000_000)] | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy comes to. Dollars at the models' own prices, where they are known."""

    policy: str
    requests: int
    tokens_sent: int
    tokens_forwarded: int
    cached_share: float | None
    cost_share: float
    """Of doing nothing, at a tenth for what is cached and one and a quarter for what is not; summaries included."""
    dollars: float
    dollars_without: float
    priced: int
    rewrites: int
    peak: int
    over_window: int
    summaries: int
    retention: float | None
    """Of the words the next action needed, the share in a line that still stands there."""


class Trials(msgspec.Struct, frozen=True, kw_only=True):
    conversations: int
    left_out: int
    """For want of time, or because they are too large or hold no request."""
    tried: Outcome
    today: Outcome


@dataclass(frozen=True, slots=True)
class _Setting:
    """The two policies, by the configuration that has them."""

    names: tuple[str, str]
    configs: tuple[Config, Config]

    def trials(self, window: int) -> list[Trial]:
        both = zip(self.names, self.configs, strict=True)
        return [_trial(place, name, config, window) for place, (name, config) in enumerate(both)]


_RUNNING = asyncio.Lock()


async def what_if(desk: Desk, asked: Asked) -> Trials:
    wanted: TrialWanted = asked.body
    setting = await asyncio.to_thread(_setting, desk, wanted)
    if _RUNNING.locked():
        raise Overloaded("another trial is running: they are made one at a time", headers=(("retry-after", "10"),))
    async with _RUNNING:
        return await asyncio.to_thread(_tried, desk.originals, wanted, setting)


def _setting(desk: Desk, wanted: TrialWanted) -> _Setting:
    today = tried = desk.config()
    if wanted.values is not None:
        if flaws := out_of_reach(wanted.values):
            raise Invalid("what would reach out of the proxy cannot be tried here", flaws)
        if desk.tried is None:
            raise Invalid("this proxy's configuration is not to be changed, nor tried otherwise")
        known = desk.records.current.published
        published = Published({**known.policies, wanted.policy: wanted.values}, known.attachments, time.time())
        try:
            tried = desk.tried(published).config
        except InvalidConfig as refused:
            raise Invalid.of(refused) from None
    for given, name, config in (("policy", wanted.policy, tried), ("against", wanted.against, today)):
        if name not in config.all_policies:
            raise NotFound(f"there is no policy of the name that was given as `{given}`; /policies lists them")
    return _Setting((wanted.policy, wanted.against), (tried, today))


def _tried(originals: Originals, wanted: TrialWanted, setting: _Setting) -> Trials:
    since, until = time.time() - wanted.days * DAY_SECONDS, time.monotonic() + wanted.seconds
    stored = [one for one in shelf.newest(originals, Caller(wanted.team).tenant) if one.written >= since]
    rows: tuple[list[Scores], list[Scores]] = ([], [])
    done = 0
    for one in stored[: wanted.conversations]:
        if time.monotonic() > until:
            break
        found = list(_conversations(one))
        for each in found:
            window = wanted.window or resolve(each.model).total or WINDOW
            results = replayed(Job(each, setting.trials(window), Upstream(window, PROVIDER)))
            for scores, result in zip(rows, results, strict=True):
                scores.append(result.scores)
        done += bool(found)
    outcomes = [_outcome(name, total(scores)) for name, scores in zip(setting.names, rows, strict=True)]
    return Trials(conversations=done, left_out=len(stored) - done, tried=outcomes[0], today=outcomes[1])


def _conversations(one: Stored) -> Iterator[Conversation]:
    """Each branch of what is kept."""
    if one.bytes > LARGEST:
        return
    values = tuple(filter(None, map(_json, one.lines())))
    for chapter in transcripts.chapters(Sheet(Path(one.name), values)):
        made, _ = conversation(chapter, one.name, transcripts.NAME)
        if made is not None:
            yield made


def _json(line: bytes) -> Any:  # noqa: ANN401 (JSON)
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _trial(place: int, name: str, config: Config, window: int) -> Trial:
    policy = config.policy(name)
    rules = policy.rules(name)
    return Trial(
        name=f"{place} {name}",
        rules=rules,
        window=window,
        prices=None,
        summarizer=StandIn() if rules.summary.enabled else None,
        patience=policy.summary.wait,
    )


def _outcome(name: str, scores: Scores) -> Outcome:
    old = scores.kept_of(("recent", "old", "ancient"))
    return Outcome(
        policy=name,
        requests=scores.requests,
        tokens_sent=scores.raw.read,
        tokens_forwarded=scores.forwarded.read,
        cached_share=round(scores.forwarded.cached / scores.forwarded.read, 4) if scores.forwarded.read else None,
        cost_share=round(share(scores, _PRICES), 4),
        dollars=scores.bill / PICO,
        dollars_without=scores.raw_bill / PICO,
        priced=scores.priced,
        rewrites=scores.rewrites,
        peak=scores.peak,
        over_window=scores.over,
        summaries=scores.summary_calls,
        retention=round(old.in_context / old.asked, 4) if old.asked else None,
    )


_DOES = "What a policy would have made of the conversations that are kept, beside today's"
_FAULTS = (HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE)
ROUTES = (Route("POST", "/what-if", _DOES, what_if, Trials, body=TrialWanted, faults=_FAULTS),)
