"""Metrics in the text form that Prometheus reads, summed over all workers of a port.

Three kinds of series are all that is needed, and each is a dictionary of numbers: cheap to count (this runs
for every request), trivial to add up. A scrape reaches one worker by chance, so each of them leaves a
snapshot where the others find it. Labels come from closed sets (routes, outcomes, configured names), never from what
a client sends. What can be known before it happens begins at 0: a counter whose first value is 1 has not grown, for
Prometheus, and its first fault would be seen by no one.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from proxy import __version__, events

PREFIX = "compaction_proxy_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_FINE = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_COARSE = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """One name with its help text. With `buckets` a histogram, else a counter or a gauge."""

    name: str
    help: str
    labels: Labels = ()
    buckets: tuple[float, ...] = ()
    kind: str = "counter"
    # Per label set: one number, or the count of each bucket followed by the sum.
    values: dict[Labels, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.labels:
            self._begun(())

    def add(self, *labels: str, by: float = 1) -> None:
        (self.values.get(labels) or self._begun(labels))[0] += by

    def observe(self, value: float, *labels: str) -> None:
        numbers = self.values.get(labels) or self._begun(labels)
        numbers[bisect_left(self.buckets, value)] += 1
        numbers[-1] += value

    def _begun(self, labels: Labels) -> list[float]:
        numbers = self.values[labels] = [0.0] * (len(self.buckets) + 2 if self.buckets else 1)
        return numbers

    def lines(self) -> Iterable[str]:
        yield f"# HELP {PREFIX}{self.name} {self.help}"
        yield f"# TYPE {PREFIX}{self.name} {'histogram' if self.buckets else self.kind}"
        for values, numbers in sorted(self.values.items()):
            labels = [f'{name}="{_escaped(value)}"' for name, value in zip(self.labels, values, strict=True)]
            yield from self._histogram(labels, numbers) if self.buckets else (_line(self.name, labels, numbers[0]),)

    def _histogram(self, labels: list[str], numbers: list[float]) -> Iterable[str]:
        total = 0.0
        for edge, count in zip((*map(str, self.buckets), "+Inf"), numbers, strict=False):
            total += count
            yield _line(self.name + "_bucket", [*labels, f'le="{edge}"'], total)
        yield _line(self.name + "_sum", labels, numbers[-1])
        yield _line(self.name + "_count", labels, total)


class Metrics:
    """Counts what the events tell."""

    def __init__(self, is_listed_team: Callable[[str], bool] = bool) -> None:
        self._is_listed_team = is_listed_team
        self.requests = Series("requests_total", "Requests that left, by outcome.", ("route", "status", "outcome"))
        self.teams = Series("team_requests_total", "Requests by team, by outcome.", ("team", "outcome"))
        self.team_tokens = Series("team_tokens_total", "Tokens by team, as sent and as forwarded.", ("team", "kind"))
        self.prompts = Series("prompt_tokens_total", "Prompts, as upstreams counted them.", ("team", "kind"))
        self.dollars = Series("prompt_dollars_total", "Prompts, at list prices.", ("team", "kind"))
        self.overhead = Series("overhead_seconds", "Time in the proxy before the first byte.", ("route",), _FINE)
        self.first_byte = Series("time_to_first_byte_seconds", "From arrival to first byte out.", ("route",), _COARSE)
        self.duration = Series("request_seconds", "From arrival to the last byte out.", ("route",), _COARSE)
        self.bytes_in = Series("request_bytes_total", "Bytes of request bodies.", ("route",))
        self.bytes_out = Series("response_bytes_total", "Bytes of response bodies.", ("route",))
        self.upstream = Series("upstream_answers_total", "Answers of upstreams.", ("upstream", "status"))
        self.retries = Series("upstream_retries_total", "Requests sent again.", ("upstream", "why"))
        self.reloads = Series("config_reloads_total", "Times the configuration was read again.", ("outcome",))
        self.faults = Series("faults_total", "Faults of the proxy's own.", ("kind",))
        self.compactions = Series("compactions_total", "Blocks made.", ("policy", "reason", "kind"))
        self.summaries = Series("summaries_total", "Summaries asked of a model, by what came of it.", ("outcome",))
        self.summary_seconds = Series("summary_seconds", "How long a summary took.", (), _COARSE)
        self.summary_tokens = Series("summary_tokens_total", "Tokens of summary calls, as reported.", ("kind",))
        self.breakers = Series("breakers_opened_total", "Conversations that blocks did not help.", ("policy",))
        self.answered = Series("compacted_requests_total", "Chat requests, by what compaction did.", ("compaction",))
        self.tokens_in = Series("tokens_before_total", "Tokens of histories as clients sent them, where counted.")
        self.tokens_out = Series("tokens_after_total", "Tokens of what was forwarded of them.")
        self.refused = Series("refused_for_size_total", "Requests too long for an upstream.", ("kind", "outcome"))
        self.cut = Series("prompts_cut_silently_total", "Prompts an upstream did not read whole.", ("upstream",))
        self.failed_open = Series("failed_open_total", "Faults of compaction, which then stood aside.", ("kind",))
        self.store_faults = Series("store_faults_total", "Times the store or the disk did not answer.")
        self.hook_faults = Series("hook_faults_total", "Times a hook could not be told, or was slow.")
        self.loop_lag = Series("loop_lag_seconds", "How late the event loop woke up.", (), _FINE)
        self.listener_errors = Series("listener_errors_total", "Faults of what listens to events.", ("listener",))
        self.log_lines_dropped = Series("log_lines_dropped_total", "Log lines that could not be written.")
        self.in_flight = Series("inflight", "Requests on their way.", kind="gauge")
        self.workers = Series("workers", "Processes that answer, by version.", ("version",), kind="gauge")
        self.workers.add(__version__)
        for outcome in ("applied", "refused"):
            self.reloads.add(outcome, by=0)
        self._tracked: list[tuple[Series, Callable[[], float], float]] = []

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.LoopLagged(seconds):
                self.loop_lag.observe(seconds)
            case events.RequestFinished():
                self._finished(event)
            case events.UpstreamRetried(upstream, why):
                self.retries.add(upstream, why)
            case events.ConfigReloaded(refused):
                self.reloads.add("refused" if refused else "applied")
            case events.OurFault(_, kind):
                self.faults.add(kind)
            case _:
                self._compaction(event)

    def _compaction(self, event: events.Event) -> None:
        match event:
            case events.Refused(_, _, kind, _, helped):
                self.refused.add(kind, "helped" if helped else "handed-on")
            case events.CutSilently(_, upstream):
                self.cut.add(upstream)
            case events.FailedOpen(_, kind):
                self.failed_open.add(kind)
            case events.TurnEnded():
                self._turn(event)
            case events.StoreFailed():
                self.store_faults.add()
            case events.HookFailed():
                self.hook_faults.add()
            case events.SummaryEnded():
                self._summary(event)
            case events.BreakerOpened(_, policy):
                self.breakers.add(policy)
            case events.CompactionEnded():
                self.compactions.add(event.policy, event.reason, "rehearsed" if event.rehearsed else "created")
            case _:
                pass

    def _summary(self, event: events.SummaryEnded) -> None:
        self.summaries.add(event.outcome)
        self.summary_seconds.observe(event.seconds)
        self.summary_tokens.add("read", by=event.tokens_read)
        self.summary_tokens.add("cached", by=event.tokens_cached)
        self.summary_tokens.add("written", by=event.tokens_written)

    def _turn(self, event: events.TurnEnded) -> None:
        """Only what the upstream has told, and only where both sides of a comparison are known."""
        # Where a gateway in front names the teams, any name may come; only those of the configuration become a label.
        team = event.team if self._is_listed_team(event.team) else ""
        if event.cached is not None:
            self.prompts.add(team, "read", by=event.prompt)
            self.prompts.add(team, "cached", by=event.cached)
        if event.paid is not None and event.plain is not None:
            self.dollars.add(team, "paid", by=event.paid)
            self.dollars.add(team, "plain", by=event.plain)

    def _finished(self, event: events.RequestFinished) -> None:
        status = str(event.status)
        self.requests.add(event.route, status, event.outcome)
        if event.team:
            self.teams.add(event.team, event.outcome)
            self.team_tokens.add(event.team, "before", by=event.tokens_before)
            self.team_tokens.add(event.team, "after", by=event.tokens_after)
        self.bytes_in.add(event.route, by=event.bytes_in)
        self.bytes_out.add(event.route, by=event.bytes_out)
        self.duration.observe(event.seconds, event.route)
        if event.compaction is not None:
            self.answered.add(event.compaction)
            self.tokens_in.add(by=event.tokens_before)
            self.tokens_out.add(by=event.tokens_after)
        if event.first_byte_seconds is not None:
            self.first_byte.observe(event.first_byte_seconds, event.route)
        if event.overhead_seconds is not None:
            self.overhead.observe(event.overhead_seconds, event.route)
        if event.upstream is not None:
            self.upstream.add(event.upstream, status)

    def track(self, series: Series, read: Callable[[], float]) -> None:
        """Take a number from where it is counted, whenever the metrics are looked at."""
        self._tracked.append((series, read, 0.0))

    def _update_tracked(self) -> None:
        for index, (series, read, before) in enumerate(self._tracked):
            now = read()
            # The difference, because the series also holds what the worker before this one had counted.
            series.add(by=now - before)
            self._tracked[index] = (series, read, now)

    @property
    def series(self) -> tuple[Series, ...]:
        return tuple(value for value in vars(self).values() if isinstance(value, Series))

    def snapshot(self) -> bytes:
        self._update_tracked()
        return json.dumps({s.name: [[k, v] for k, v in s.values.items()] for s in self.series}).encode()

    def add_snapshot(self, snapshot: bytes, *, gauges: bool = True) -> None:
        """Add the numbers of a worker: another one, or this one's life before, which holds nothing any more."""
        told = json.loads(snapshot)
        for series in self.series:
            for labels, numbers in told.get(series.name, ()) if gauges or series.kind != "gauge" else ():
                mine = series.values.setdefault(tuple(labels), [0.0] * len(numbers))
                mine[:] = [a + b for a, b in zip(mine, numbers, strict=True)]

    def render(self, others: Iterable[bytes] = ()) -> str:
        self._update_tracked()
        total = self
        for index, snapshot in enumerate(others):
            if not index:
                total = Metrics()
                total.workers.values.clear()
                total.add_snapshot(self.snapshot())
            total.add_snapshot(snapshot)
        return "".join(f"{line}\n" for series in total.series for line in series.lines())


class Board:
    """Where the workers of one port leave their snapshots for one another."""

    def __init__(self, folder: Path, slot: int) -> None:
        self._folder = folder
        self._mine = folder / f"{slot}.json"

    def leave(self, metrics: Metrics) -> None:
        """A full disk leaves the last one standing: the store tells of it, and there is a next time."""
        written = self._mine.with_suffix(".new")
        with suppress(OSError):
            written.write_bytes(metrics.snapshot())
            written.replace(self._mine)

    def take_up(self, metrics: Metrics) -> None:
        """A worker that was started again goes on counting where its slot had stopped."""
        if self._mine.exists():
            metrics.add_snapshot(self._mine.read_bytes(), gauges=False)

    def others(self) -> list[bytes]:
        return [path.read_bytes() for path in sorted(self._folder.glob("*.json")) if path != self._mine]


def _line(name: str, labels: Iterable[str], value: float) -> str:
    among = ",".join(labels)
    return f"{PREFIX}{name}{{{among}}} {value!r}" if among else f"{PREFIX}{name} {value!r}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
