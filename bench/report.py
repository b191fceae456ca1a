"""The figures of bench/relay.py as tables, and the targets beside what was found."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from bodies import TURN_BYTES
from contestants import BARE, DIRECT, EARLIER, OURS, RELAYING
from scores import Scenario, Score, Scores, compare_growth, cpu, p50
from tables import figure, provenance, table

US, MS = 1e6, 1e3
# What may be added to the median: by the way through the proxy, and by the way with all that it does for a history.
ADDED_MS = {RELAYING: {"1 kB": 1.0, "100 kB": 2.0, "1 MB": 6.0}, OURS.name: {"1 kB": 2.0, "100 kB": 5.0, "1 MB": 25.0}}

WARM_RATIO = 1.4
"""Times the bare relay's processor time that a request of 1 kB may take, with all that is done for it."""
EARLIER_SHARE = 0.25
"""Of the processor time of version 0.1 that a request with a history of 100 kB may take."""
SLOPE_RATIO = 1.3
"""Times what a further byte of history costs the bare relay that it may cost the proxy: reading and sending it."""
ADDED_MS_GROWING = 2.0
"""May be added to the median at 1 MB, where the history goes on, and on a day, where it is shorter."""
_OF_A_SIZE = re.compile(r"\d+ [kM]B, growing")

INTRO = """\
# What the proxy costs

{provenance}.

The relay has one core for itself; clients and upstream, both raw asyncio, share the other. Medians of {rounds} rounds
in which the contestants took turns, the others idle. `direct` is the upstream without a relay: what clients
and upstream spend themselves, and so the ceiling of every figure per second. `compaction-proxy` does what it does by
default; `the same, bypass` is the same process asked to leave the history alone (`x-compaction: bypass`): the way
through without what it is for. `LiteLLM` gets a tenth of the requests, and none of 10 MB, which take it seconds each.
`compaction-proxy, earlier`, where it is listed, is version 0.1.0 (`--earlier DIR`), which relays Messages and Responses
without compacting them. Ratios carry from machine to machine, times do not.

- **A size**: one history sent again and again, so `compaction-proxy` has counted and shortened it before.
- **growing**: each request is the one before and one more call with its result, as agents send them; about
  {new_bytes:,} bytes are new in it. Agents ask for a stream with its usage (`stream_options`, behind the messages), as
  `1 MB, streamed, growing` does; the others ask for an answer in one piece, to be compared with those of earlier pages.
- **day**: the requests of conversations from their first one on, first sights and rewrites included, in turn by chance
  and as fast as they are answered. `sample` conversations are the simulated ones of `make -C bench scorecard`;
  `make bench TRACES=DIR` adds a day of those recorded in DIR. Each is chat, streamed, with a key of its own.
- **ns a new byte**: processor time of a request beyond the bare relay's, for each byte that is new in it.
- **CPU of a further byte of history**, a target: what a turn costs more with the longest history than with the
  shortest, divided by the same difference of the bare relay, which only reads and sends it.
{absent}
`make bench ARGS="--markdown docs/benchmarks.md"` writes this page. `make -C bench flames` draws where the time goes:
[1 kB](flames/1-kb.svg), growing from [10 kB](flames/growing-10-kb.svg), [100 kB](flames/growing-100-kb.svg) and
[1 MB](flames/growing-1-mb.svg), [first sight of 1 MB](flames/first-sight-of-1-mb.svg), [stream](flames/stream.svg).
[Parts of a turn](bench-parts.md): what one costs at least.
"""


@dataclass(frozen=True, slots=True)
class IdleFigures:
    """What a relay needs without requests, and how it answers a health check beside many."""

    name: str
    ready: float
    idle_rss: float
    busy_rss: float
    live_p99: float


@dataclass(frozen=True, slots=True)
class Target:
    """The targets, and what was found."""

    promise: str
    limit: float
    found: float

    @property
    def is_met(self) -> bool:
        return self.found <= self.limit

    def row(self) -> tuple[str, str, str, str]:
        return self.promise, f"{self.limit:g}", figure(self.found, 2), "met" if self.is_met else "MISSED"


def targets(asked: Sequence[Scenario], scores: Scores, ours: IdleFigures) -> list[Target]:
    return [
        *(_cpu_target(scenario, scores) for scenario in asked if not scenario.new_bytes),
        *_small_target(asked, scores),
        *(_growth_target(scenario, scores, limit) for scenario in asked if (limit := scenario.limit) is not None),
        *_slope_target(asked, scores),
        *_earlier_target(asked, scores),
        *(
            _added_target(name, scenario, scores)
            for name in ADDED_MS
            for scenario in asked
            if scenario.clients == 1 and not (scenario.streams or scenario.new_bytes)
        ),
        Target("seconds until ready", 1.0, ours.ready),
        Target("MB of memory when idle", 80.0, ours.idle_rss),
        Target("ms for /health/live (p99) beside eight requests of 1 MB", 50.0, ours.live_p99 * MS),
    ]


def _cpu_target(scenario: Scenario, scores: Scores) -> Target:
    found = scores[scenario.title]
    limit = 1.3 if scenario.streams else 1.4
    times = found[RELAYING].over(found[BARE.name], cpu)
    return Target(f"CPU, times the bare relay's ({RELAYING}): {scenario.title}", limit, times)


def _growth_target(scenario: Scenario, scores: Scores, limit: float) -> Target:
    found = scores[scenario.title]
    times = found[OURS.name].over(found[BARE.name], cpu)
    return Target(f"CPU, times the bare relay's ({OURS.name}): {scenario.title}", limit, times)


def _small_target(asked: Sequence[Scenario], scores: Scores) -> Iterator[Target]:
    smallest = asked[0]
    yield _growth_target(smallest, scores, WARM_RATIO)
    for scenario in asked:
        if scenario.name == "1 MB, growing" or scenario.replay:
            found = scores[scenario.title]
            added = found[OURS.name].beyond(found[DIRECT], p50) * MS
            yield Target(f"ms added to the median ({OURS.name}): {scenario.title}", ADDED_MS_GROWING, added)


def _slope_target(asked: Sequence[Scenario], scores: Scores) -> Iterator[Target]:
    """What a further byte of history costs a turn, against the bare relay: from the shortest history to the longest."""
    grown = [scenario for scenario in asked if _OF_A_SIZE.fullmatch(scenario.name)]
    short, long = (scores[scenario.title] for scenario in (grown[0], grown[-1]))
    ours, bare = ((short[name], long[name]) for name in (OURS.name, BARE.name))
    sizes = f"{grown[0].name.partition(',')[0]} to {grown[-1].name}"
    what = f"CPU of a further byte of history, times the bare relay's ({OURS.name}): {sizes}"
    yield Target(what, SLOPE_RATIO, compare_growth(ours, bare, cpu))


def _earlier_target(asked: Sequence[Scenario], scores: Scores) -> Iterator[Target]:
    """Processor time against an earlier version, where one is compared: a quarter is four requests in place of one."""
    for scenario in asked:
        found = scores[scenario.title]
        if scenario.name.startswith("100 kB") and EARLIER in found:
            share = found[OURS.name].over(found[EARLIER], cpu)
            yield Target(f"CPU, times that of the earlier version: {scenario.title}", EARLIER_SHARE, share)


def _added_target(name: str, scenario: Scenario, scores: Scores) -> Target:
    found = scores[scenario.title]
    added = found[name].beyond(found[DIRECT], p50) * MS
    return Target(f"ms added to the median ({name}): {scenario.title}", ADDED_MS[name][scenario.name], added)


def report(
    rounds: int,
    asked: Sequence[Scenario],
    scores: Scores,
    beside: Sequence[IdleFigures],
    promised: Sequence[Target],
    *,
    absent: Collection[str] = (),
) -> str:
    missing = f"\nNot installed where this was measured: {', '.join(sorted(absent))}.\n" if absent else ""
    parts = [
        INTRO.format(provenance=provenance(), rounds=rounds, new_bytes=TURN_BYTES, absent=missing),
        *(_whole(scenario, scores[scenario.title]) for scenario in asked if not scenario.streams),
        *(_stream_table(scenario, scores[scenario.title]) for scenario in asked if scenario.streams),
        _idle_table(beside),
        table(("target", "at most", "found", ""), [target.row() for target in promised]),
    ]
    return "\n".join(f"{part}\n" for part in parts).strip() + "\n"


def _whole(scenario: Scenario, found: dict[str, Score]) -> str:
    rows = [
        (
            name,
            *_cpu(name, score, found),
            figure(score.of(p50) * MS, 2),
            figure(score.of(lambda it: it.p99) * MS, 2),
            "" if name == DIRECT else figure(score.beyond(found[DIRECT], p50) * MS, 2),
            figure(score.of(lambda it: it.per_second), 0),
            *((_per_new_byte(scenario, name, score, found),) if scenario.new_bytes else ()),
        )
        for name, score in found.items()
    ]
    names = (scenario.title, "CPU µs", "x bare", "p50 ms", "p99 ms", "added p50", "per second")
    return table((*names, "ns a new byte") if scenario.new_bytes else names, rows)


def _per_new_byte(scenario: Scenario, name: str, score: Score, found: dict[str, Score]) -> str:
    if name in (DIRECT, BARE.name):
        return ""
    return figure(score.beyond(found[BARE.name], cpu) / scenario.new_bytes * 1e9, 0)


def _stream_table(scenario: Scenario, found: dict[str, Score]) -> str:
    rows = [
        (
            name,
            *_cpu(name, score, found),
            "" if name == DIRECT else figure(score.of(lambda it: it.cpu_of_chunk) * US, 1),
            figure(score.of(lambda it: it.lag_p50) * MS, 2),
            figure(score.of(lambda it: it.lag_p99) * MS, 2),
        )
        for name, score in found.items()
    ]
    return table((scenario.title, "CPU µs", "x bare", "µs a chunk", "chunk lag p50 ms", "p99 ms"), rows)


def _cpu(name: str, score: Score, found: dict[str, Score]) -> tuple[str, str]:
    if name == DIRECT:
        return "", ""
    return figure(score.of(cpu) * US, 0), figure(score.over(found[BARE.name], cpu), 2)


def _idle_table(relays: Sequence[IdleFigures]) -> str:
    rows = [
        (
            it.name,
            figure(it.ready, 2),
            figure(it.idle_rss, 0),
            figure(it.busy_rss, 0),
            figure(it.live_p99 * MS, 1),
        )
        for it in relays
    ]
    return table(("", "ready s", "idle MB", "MB afterwards", "/health/live p99 ms"), rows)
