"""The figures of bench/relay.py as tables, and the targets beside what was found."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from bodies import TURN_BYTES
from contestants import BARE, DIRECT, EARLIER, OURS, RELAYING
from scores import Round, Scenario, Scores, compare_growth, cpu, p50
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
in which the contestants took turns while the others were idle. `bypass` is `compaction-proxy` asked to leave the
history alone (`x-compaction: bypass`). `LiteLLM` gets a tenth of the requests and `CliffCompaction` a quarter, and
neither gets those of 10 MB. Ratios carry from machine to machine, times do not.

- **A size**: the same history again and again; `compaction-proxy` has counted and shortened it before.
- **growing**: each request is the one before with one more call and its result, about {new_bytes:,} bytes. Results are
  lists of names, as large as recorded ones.
- **day**: the requests of whole conversations, first requests and rewrites included. `sample` conversations are
  simulated; `make bench TRACES=DIR` adds a day of those recorded in DIR.
{absent}
`make -C bench flames` draws flame graphs of the same work into `build/flames`.
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

    def row(self) -> tuple[str, str, str]:
        return self.promise, f"{self.limit:g}", figure(self.found, 2)


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
    return Target(f"CPU, times the bare relay's (bypass): {scenario.title}", limit, times)


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
    return Target(
        f"ms added to the median ({_shorten_name(name)}): {scenario.title}", ADDED_MS[name][scenario.name], added
    )


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
    names = [name for name in _list_contestants(scores) if name != DIRECT]
    parts = [
        INTRO.format(provenance=provenance(), rounds=rounds, new_bytes=TURN_BYTES, absent=missing),
        "## Processor time\n\nOf the bare relay in µs; of the others in times the bare relay's.",
        _cpu_table(asked, scores, names),
        "## Delay\n\nMilliseconds added to the median; of streams, to the p99 of a chunk.",
        _delay_table(asked, scores, names),
        f"## Memory and start\n\n{_idle_table(beside)}",
        _describe_targets(promised),
    ]
    return "\n".join(f"{part}\n" for part in parts).strip() + "\n"


def report_briefly(asked: Sequence[Scenario], scores: Scores) -> str:
    """Report processor time and delay alone."""
    names = [name for name in _list_contestants(scores) if name != DIRECT]
    return f"{_cpu_table(asked, scores, names)}\n\n{_delay_table(asked, scores, names)}"


def _describe_targets(promised: Sequence[Target]) -> str:
    missed = [target.row() for target in promised if not target.is_met]
    text = f"## Targets\n\n{len(promised) - len(missed)} of {len(promised)} targets are met."
    if not missed:
        return text
    return f"{text} Missed:\n\n{table(('target', 'at most', 'found'), missed)}"


def _list_contestants(scores: Scores) -> list[str]:
    return list(dict.fromkeys(name for found in scores.values() for name in found))


def _cpu_table(asked: Sequence[Scenario], scores: Scores, names: Sequence[str]) -> str:
    others = [name for name in names if name != BARE.name]
    rows = []
    for scenario in asked:
        found = scores[scenario.title]
        bare = found[BARE.name]
        ratios = [figure(found[name].over(bare, cpu), 2) if name in found else "-" for name in others]
        rows.append((scenario.title, figure(bare.of(cpu) * US, 0), *ratios))
    return table(("", f"{BARE.name}, µs", *map(_shorten_name, others)), rows)


def _delay_table(asked: Sequence[Scenario], scores: Scores, names: Sequence[str]) -> str:
    rows = []
    for scenario in asked:
        found = scores[scenario.title]
        measure = _lag_p99 if scenario.streams else p50
        added = [figure(found[name].beyond(found[DIRECT], measure) * MS, 2) if name in found else "-" for name in names]
        rows.append((scenario.title, *added))
    return table(("", *map(_shorten_name, names)), rows)


def _lag_p99(taken: Round) -> float:
    return taken.lag_p99


def _shorten_name(name: str) -> str:
    return "bypass" if name == RELAYING else name


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
