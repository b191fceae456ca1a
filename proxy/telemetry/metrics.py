"""Metrics for Prometheus, summed over all workers of a port.

A scrape reaches one worker by chance, so each writes a snapshot of its numbers into memory that all of them share.
Labels come from closed sets, never from clients. Counters with known labels begin at 0, because Prometheus sees growth
only: https://prometheus.io/docs/practices/instrumentation/#avoid-missing-metrics.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from mmap import mmap
from typing import Any, Literal
from zlib import compress, decompress

from msgspec import Struct, field
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from proxy import __version__, events
from proxy.wire.formats import REQUEST_FORMATS
from proxy.wire.http_head import ApiPath

PREFIX = "compaction_proxy_"
CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

SNAPSHOT_BYTES_MAX = 4 * 1024 * 1024
"""Size of a compressed snapshot at most: hundreds of thousands of series."""
_HEADER_BYTES = 8
Labels = tuple[str, ...]


class Series(Struct, frozen=True):
    """A counter, a gauge or a histogram: its numbers, by the values of its labels."""

    name: str
    help: str
    labels: Labels = ()
    buckets: tuple[float, ...] = ()
    kind: Literal["counter", "gauge"] = "counter"
    values: dict[Labels, list[float]] = field(default_factory=dict)
    """One number, or for a histogram the count of each bucket and the sum."""

    def __post_init__(self) -> None:
        if not self.labels:
            self._start(())

    def add(self, *labels: str, by: float = 1) -> None:
        (self.values.get(labels) or self._start(labels))[0] += by

    def observe(self, value: float, *labels: str) -> None:
        numbers = self.values.get(labels) or self._start(labels)
        numbers[bisect_left(self.buckets, value)] += 1
        numbers[-1] += value

    def _start(self, labels: Labels) -> list[float]:
        size = len(self.buckets) + 2 if self.buckets else 1
        numbers = self.values[labels] = [0.0] * size
        return numbers

    def to_family(self) -> Metric:
        name = PREFIX + self.name
        if self.buckets:
            histogram = HistogramMetricFamily(name, self.help, labels=self.labels)
            bounds = (*map(str, self.buckets), "+Inf")
            for labels, (*counts, total) in sorted(self.values.items()):
                histogram.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
            return histogram
        kind = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        family = kind(name, self.help, labels=self.labels)
        for labels, (number,) in sorted(self.values.items()):
            family.add_metric(labels, number)
        return family


_OTHER_PATHS = ApiPath.RESPONSES_COMPACT, ApiPath.INPUT_TOKENS
_WIRES = {f"/v1{path}": form.name or "chat" for path, form in REQUEST_FORMATS.items() if path not in _OTHER_PATHS}


class SnapshotArea:
    """Memory shared with child processes: one snapshot, replaced as a whole.

    The new one is written into the free slot of two and takes effect when the header names it.
    """

    def __init__(self) -> None:
        self._memory = mmap(-1, _HEADER_BYTES + 2 * SNAPSHOT_BYTES_MAX)  # pages that are not written to take no memory
        # The number of snapshots so far (upper 32 bits) and the size of the last one, written by one instruction:
        # `struct.pack_into` clears the bytes first, and a reader would see no snapshot.
        self._header = memoryview(self._memory)[:_HEADER_BYTES].cast("Q")

    def write(self, snapshot: bytes) -> None:
        data = compress(snapshot, 1)  # the fastest level, for it is done every second
        # Counters that stand still for a while do less harm than counters that fall.
        if len(data) > SNAPSHOT_BYTES_MAX:
            return
        sequence = ((self._header[0] >> 32) + 1) & 0xFFFF_FFFF
        start = self._find_start(sequence)
        self._memory[start : start + len(data)] = data
        self._header[0] = sequence << 32 | len(data)

    def read(self) -> bytes:
        while True:
            header = self._header[0]
            start, size = self._find_start(header >> 32), header & 0xFFFF_FFFF
            data = self._memory[start : start + size]
            if self._header[0] == header:  # or else the slot was written to during the copy
                return decompress(data) if data else b""

    @staticmethod
    def _find_start(sequence: int) -> int:
        return _HEADER_BYTES + sequence % 2 * SNAPSHOT_BYTES_MAX


class WorkerSnapshots(Struct, frozen=True):
    """The snapshots of the workers of one port, and the slot of this one.

    Prometheus takes each fall of a counter for a restart and adds the whole number once more. So a page holds only
    written snapshots, which outlive a worker.
    """

    areas: Sequence[SnapshotArea]
    slot: int

    def write(self, snapshot: bytes) -> None:
        self.areas[self.slot].write(snapshot)

    def read_own(self) -> bytes:
        return self.areas[self.slot].read()


class Metrics(Collector):
    def __init__(
        self, is_listed_team: Callable[[str], bool] = bool, is_known_model: Callable[[str], bool] = bool
    ) -> None:
        self._is_listed_team = is_listed_team
        self._is_known_model = is_known_model
        self._models = set[str]()
        short_seconds = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
        long_seconds = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
        self.requests = Series("requests_total", "Requests that left, by outcome.", ("route", "status", "outcome"))
        self.team_requests = Series("team_requests_total", "Requests by team, by outcome.", ("team", "outcome"))
        self.team_tokens = Series("team_tokens_total", "Tokens by team, as sent and as forwarded.", ("team", "kind"))
        self.prompts = Series("prompt_tokens_total", "Prompts, as upstreams counted them.", ("team", "kind"))
        self.model_requests = Series("model_requests_total", "Requests by model, by outcome.", ("model", "outcome"))
        self.model_prompts = Series("model_prompt_tokens_total", "Prompts by model, as counted.", ("model", "kind"))
        self.model_dollars = Series("model_prompt_dollars_total", "Cost of prompts by model.", ("model", "kind"))
        self.dollars = Series("prompt_dollars_total", "Cost of prompts.", ("team", "kind"))
        self.refetches = Series(
            "refetches_total", "Results that bring again what had been shortened.", ("team", "policy", "model")
        )
        self.overhead = Series("overhead_seconds", "Time in the proxy before a byte.", ("route",), short_seconds)
        self.first_byte = Series("time_to_first_byte_seconds", "Arrival to first byte.", ("route",), long_seconds)
        self.duration = Series("request_seconds", "Arrival to last byte.", ("route",), long_seconds)
        self.bytes_in = Series("request_bytes_total", "Bytes of request bodies.", ("route",))
        self.bytes_out = Series("response_bytes_total", "Bytes of response bodies.", ("route",))
        self.upstream = Series("upstream_answers_total", "Answers of upstreams.", ("upstream", "status"))
        self.retries = Series("upstream_retries_total", "Requests sent again.", ("upstream", "why"))
        self.reloads = Series("config_reloads_total", "Times the configuration was read again.", ("outcome",))
        self.faults = Series("faults_total", "Faults of the proxy's own.", ("kind",))
        self.compactions = Series("compactions_total", "Blocks made.", ("policy", "reason", "kind"))
        self.summaries = Series("summaries_total", "Summaries asked of a model, by what came of it.", ("outcome",))
        self.summary_seconds = Series("summary_seconds", "How long a summary took.", (), long_seconds)
        self.summary_tokens = Series("summary_tokens_total", "Tokens of summary calls, as reported.", ("kind",))
        self.answered = Series("compacted_requests_total", "Requests, by what compaction did.", ("compaction", "wire"))
        self.tokens_in = Series("tokens_before_total", "Tokens of histories as clients sent them, where counted.")
        self.tokens_out = Series("tokens_after_total", "Tokens of what was forwarded of them.")
        self.tokens_would_be = Series("tokens_would_be_total", "The same if nothing was only observed.")
        self.refused = Series(
            "refused_for_size_total",
            "Requests too long for an upstream, or (kind `signature`) with reasoning that it does not take back.",
            ("kind", "outcome"),
        )
        self.views_refused = Series(
            "refused_as_shortened_total",
            "Shortened histories that an upstream called invalid.",
            ("upstream", "outcome"),
        )
        self.cut = Series("prompts_cut_silently_total", "Prompts an upstream did not read whole.", ("upstream",))
        self.failed_open = Series("failed_open_total", "Faults of compaction, which then stood aside.", ("kind",))
        self.store_faults = Series("store_faults_total", "Times the store or the disk did not answer.")
        self.hook_faults = Series("hook_faults_total", "Times a hook could not be told, or was slow.")
        self.loop_lag = Series("loop_lag_seconds", "How late the event loop woke up.", (), short_seconds)
        self.listener_errors = Series("listener_errors_total", "Faults of what listens to events.", ("listener",))
        self.log_lines_dropped = Series("log_lines_dropped_total", "Log lines that could not be written.")
        self.telemetry_dropped = Series("telemetry_dropped_total", "Events that no collector has received.")
        self.activity_dropped = Series("activity_dropped_total", "Records that the admin pages miss.")
        self.in_flight = Series("inflight", "Requests on their way.", kind="gauge")
        self.workers = Series("workers", "Processes that answer, by version.", ("version",), kind="gauge")
        self.workers.add(__version__)
        for outcome in ("applied", "refused"):
            self.reloads.add(outcome, by=0)
        self._tracked: list[tuple[Series, Callable[[], float], float]] = []
        outcomes = {True: "helped", False: "handed-on"}
        # By type and not by `match`: this runs for every event.
        self._count: dict[type, Callable[[Any], None]] = {
            events.LoopLagged: lambda event: self.loop_lag.observe(event.seconds),
            events.RequestFinished: self._count_request,
            events.TurnEnded: self._count_turn,
            events.UpstreamRetried: lambda event: self.retries.add(event.upstream, event.why),
            events.ConfigReloaded: lambda event: self.reloads.add("refused" if event.refused_because else "applied"),
            events.InternalFault: lambda event: self.faults.add(event.kind, by=event.times),
            events.FailedOpen: lambda event: self.failed_open.add(event.kind),
            events.SizeRefused: lambda event: self.refused.add(event.kind, outcomes[event.helped]),
            events.ViewRefused: lambda event: self.views_refused.add(event.upstream, outcomes[event.helped]),
            events.PromptTruncated: lambda event: self.cut.add(event.upstream),
            events.StoreFailed: lambda _: self.store_faults.add(),
            events.HookFailed: lambda _: self.hook_faults.add(),
            events.SummaryEnded: self._count_summary,
            events.CompactionEnded: lambda event: self.compactions.add(
                event.policy, event.reason, "observed" if event.is_observed else "created"
            ),
        }

    def __call__(self, event: events.Event) -> None:
        if (count := self._count.get(type(event))) is not None:
            count(event)

    def track(self, series: Series, read: Callable[[], float]) -> None:
        """Show a number that is counted elsewhere: `read` returns it."""
        self._tracked.append((series, read, 0.0))

    def _count_request(self, event: events.RequestFinished) -> None:
        status = str(event.status)
        self.requests.add(event.route, status, event.outcome)
        if event.team:
            self.team_requests.add(event.team, event.outcome)
            self.team_tokens.add(event.team, "before", by=event.tokens_before)
            self.team_tokens.add(event.team, "after", by=event.tokens_after)
            self.team_tokens.add(event.team, "would-be", by=event.tokens_would_be)
        if event.model:
            self.model_requests.add(self._label_model(event.model), event.outcome)
        self.bytes_in.add(event.route, by=event.bytes_in)
        self.bytes_out.add(event.route, by=event.bytes_out)
        self.duration.observe(event.seconds, event.route)
        if event.compaction is not None:
            self.answered.add(event.compaction, _WIRES.get(event.route, "other"))
            self.tokens_in.add(by=event.tokens_before)
            self.tokens_out.add(by=event.tokens_after)
            self.tokens_would_be.add(by=event.tokens_would_be)
        if event.first_byte_seconds is not None:
            self.first_byte.observe(event.first_byte_seconds, event.route)
        if event.overhead_seconds is not None:
            self.overhead.observe(event.overhead_seconds, event.route)
        if event.upstream is not None:
            self.upstream.add(event.upstream, status)

    def _count_turn(self, event: events.TurnEnded) -> None:
        # A gateway may send any name of a team; only those of the configuration become a label.
        team = event.team if self._is_listed_team(event.team) else ""
        model = self._label_model(event.model)
        if event.action in ("applied", "created"):
            self.refetches.add(team, event.policy, model, by=event.refetches)
        if event.cached_tokens is not None:
            for prompts, label in ((self.prompts, team), (self.model_prompts, model)):
                prompts.add(label, "read", by=event.prompt_tokens)
                prompts.add(label, "cached", by=event.cached_tokens)
                if event.placed:
                    prompts.add(label, "placed-read", by=event.prompt_tokens)
                    prompts.add(label, "placed-cached", by=event.cached_tokens)
        if event.paid_dollars is not None and event.plain_dollars is not None:
            would_be = event.paid_dollars if event.would_be_dollars is None else event.would_be_dollars
            for dollars, label in ((self.dollars, team), (self.model_dollars, model)):
                dollars.add(label, "paid", by=event.paid_dollars)
                dollars.add(label, "plain", by=event.plain_dollars)
                dollars.add(label, "would-be", by=would_be)

    def _label_model(self, model: str) -> str:
        """Return "other" for an unknown model: clients may send any name."""
        if model in self._models:
            return model
        max_labels = 100
        if len(self._models) >= max_labels or not self._is_known_model(model):
            return "other"
        self._models.add(model)
        return model

    def _count_summary(self, event: events.SummaryEnded) -> None:
        self.summaries.add(event.outcome)
        self.summary_seconds.observe(event.seconds)
        self.summary_tokens.add("read", by=event.tokens_read)
        self.summary_tokens.add("cached", by=event.tokens_cached)
        self.summary_tokens.add("written", by=event.tokens_written)

    def update_tracked(self) -> None:
        for index, (series, read, before) in enumerate(self._tracked):
            now = read()
            # The difference, because the series also holds the counts of the replaced worker.
            series.add(by=now - before)
            self._tracked[index] = (series, read, now)

    @property
    def series(self) -> tuple[Series, ...]:
        return tuple(value for value in vars(self).values() if isinstance(value, Series))

    def collect(self) -> Iterator[Metric]:
        self.update_tracked()
        for series in self.series:
            yield series.to_family()

    def to_snapshot(self) -> bytes:
        self.update_tracked()
        values_by_name = {}
        for series in self.series:
            values_by_name[series.name] = list(series.values.items())
        return json.dumps(values_by_name).encode()

    def add_snapshot(self, snapshot: bytes, *, gauges: bool = True) -> None:
        """Continue the counters of the worker that this one replaces, but not its gauges."""
        values_by_name = json.loads(snapshot)
        for series in self.series:
            if series.kind == "gauge" and not gauges:
                continue
            for labels, numbers in values_by_name.get(series.name, ()):
                own = series.values.setdefault(tuple(labels), [0.0] * len(numbers))
                own[:] = [first + second for first, second in zip(own, numbers, strict=True)]

    def render_page(self, snapshots: WorkerSnapshots | None = None) -> bytes:
        """Sum up all workers' snapshots; without any, render this worker's own numbers."""
        if snapshots is None:
            return generate_latest(self)
        snapshots.write(self.to_snapshot())
        total = Metrics()
        # It is no worker itself, and serves only to add up.
        total.workers.values.clear()
        for area in snapshots.areas:
            if snapshot := area.read():
                total.add_snapshot(snapshot)
        return generate_latest(total)
