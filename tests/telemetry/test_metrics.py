"""Numbers that are added up over the workers of a port, and are there before anything has happened."""

import itertools
import json
import multiprocessing
import os

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from proxy import __version__
from proxy.events import SummaryEnded
from proxy.telemetry.metrics import PREFIX, SNAPSHOT_BYTES_MAX, Metrics, SnapshotArea, WorkerSnapshots
from tests.support.admin_client import TURN


def read_samples(metrics, snapshots=None):
    families = text_string_to_metric_families(metrics.render_page(snapshots).decode())
    return {
        (sample.name.removeprefix(PREFIX), *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


COSTS = {"prompt_tokens": 100, "cached_tokens": 90, "paid_dollars": 0.01, "plain_dollars": 0.04}


def turn(**more):
    return replace(TURN, **{"team": "red", "would_be_dollars": None, **COSTS, **more})


def test_series_that_are_known_beforehand_start_at_0():
    """Else the first fault would be no growth."""
    first = read_samples(Metrics())
    assert first["store_faults_total",] == 0
    assert first["tokens_before_total",] == 0
    assert first["summary_seconds_count",] == 0
    assert first["config_reloads_total", "refused"] == 0


def test_workers_are_counted_by_version_and_what_is_inside_is_added_up():
    one, other = Metrics(), Metrics()
    one.in_flight.add(by=2)
    other.in_flight.add(by=3)
    areas = [SnapshotArea(), SnapshotArea()]
    WorkerSnapshots(areas, 1).write(other.to_snapshot())
    both = read_samples(one, WorkerSnapshots(areas, 0))
    assert both["workers", __version__] == 2
    assert both["inflight",] == 5
    assert read_samples(one)["workers", __version__] == 1


def test_a_worker_that_is_started_again_counts_on_but_is_empty():
    snapshots = WorkerSnapshots([SnapshotArea()], 0)
    dead, fresh = Metrics(), Metrics()
    assert snapshots.read_own() == b""
    dead.store_faults.add()
    dead.in_flight.add(by=7)
    snapshots.write(dead.to_snapshot())
    fresh.add_snapshot(snapshots.read_own(), gauges=False)
    assert read_samples(fresh)["store_faults_total",] == 1
    assert read_samples(fresh)["inflight",] == 0
    assert read_samples(fresh)["workers", __version__] == 1


def test_a_page_holds_only_what_outlives_the_worker_that_answers():
    """Else the counters would fall when it dies, and Prometheus would add all of them once more."""
    areas = [SnapshotArea(), SnapshotArea()]
    shown = Metrics()
    shown.store_faults.add(by=5)
    read_samples(shown, WorkerSnapshots(areas, 0))
    again, neighbour = Metrics(), Metrics()
    again.add_snapshot(areas[0].read(), gauges=False)
    assert read_samples(neighbour, WorkerSnapshots(areas, 1))["store_faults_total",] == 5
    assert read_samples(again, WorkerSnapshots(areas, 0))["store_faults_total",] == 5


def test_a_snapshot_that_is_too_large_leaves_the_one_before():
    area = SnapshotArea()
    area.write(b"before")
    area.write(os.urandom(SNAPSHOT_BYTES_MAX))  # which cannot be compressed
    assert area.read() == b"before"


def test_a_snapshot_is_read_whole_while_another_process_replaces_it():
    area = SnapshotArea()
    area.write(b"0")
    texts = {str(number).encode() * 50_000 for number in range(10)}
    writer = multiprocessing.get_context("fork").Process(target=write_without_end, args=(area, texts))
    writer.start()
    found = set()
    while len(found) < 5:
        found.add(area.read())
    found |= {area.read() for _ in range(2_000)}
    writer.kill()
    writer.join()
    assert found <= {b"0", *texts}
    assert area.read() in texts, "also one that was killed while it wrote"


def write_without_end(area, texts):
    for text in itertools.cycle(texts):
        area.write(text)


def test_prompts_to_which_something_was_added_are_counted_apart():
    metrics = Metrics(is_listed_team=lambda team: team == "red")
    metrics(turn())
    metrics(turn(placed="cache-marks", prompt_tokens=50, cached_tokens=40))
    counted = read_samples(metrics)
    kinds = ("read", "cached", "placed-read", "placed-cached")
    assert [counted["prompt_tokens_total", kind, "red"] for kind in kinds] == [150, 130, 50, 40]


def test_cached_tokens_and_cost_are_counted_by_teams_of_the_configuration():
    metrics = Metrics({"red"}.__contains__)
    unknown = {"cached_tokens": None, "paid_dollars": None, "plain_dollars": None}
    for event in (turn(), turn(), turn(**unknown), turn(team="made up by a gateway")):
        metrics(event)
    counted = read_samples(metrics)
    assert {key[2] for key in counted if key[0] in ("prompt_tokens_total", "prompt_dollars_total")} == {"red", ""}
    assert counted["prompt_tokens_total", "read", "red"] == 200
    assert counted["prompt_tokens_total", "cached", "red"] == 180
    assert counted["prompt_tokens_total", "read", ""] == 100
    assert counted["prompt_dollars_total", "paid", "red"] == 0.02
    assert counted["prompt_dollars_total", "plain", "red"] == 0.08


def test_a_snapshot_holds_all_metrics():
    metrics = Metrics()
    metrics(turn())
    metrics(SummaryEnded("c", "default", "up", "m", "made", 1, 100, 90, 10, 3.0))
    again = Metrics()
    again.workers.values.clear()
    again.add_snapshot(metrics.to_snapshot())
    assert again.render_page() == metrics.render_page()
    assert json.loads(metrics.to_snapshot())


def test_only_known_models_become_labels_and_never_more_than_a_hundred():
    metrics = Metrics(is_known_model=lambda name: name.startswith("gpt-"))
    for number in range(200):
        metrics(turn(model=f"gpt-{number}"))
    metrics(turn(model="whatever a client sends"))
    models = {key[-1] for key in read_samples(metrics) if key[0] == "model_prompt_tokens_total"}
    assert len(models) == 101
    assert read_samples(metrics)["model_prompt_tokens_total", "read", "gpt-7"] == 100
    assert read_samples(metrics)["model_prompt_dollars_total", "paid", "other"] == pytest.approx(1.01)
