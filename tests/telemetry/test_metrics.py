"""Numbers that are added up over the workers of a port, and are there before anything has happened."""

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy import __version__
from proxy.events import SummaryEnded, TurnEnded
from proxy.telemetry.metrics import PREFIX, Metrics, WorkerSnapshots


def read_samples(metrics, *others):
    families = text_string_to_metric_families(metrics.render_page(others).decode())
    return {
        (sample.name.removeprefix(PREFIX), *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


COSTS = {
    "team": "red",
    "prompt_tokens": 100,
    "cached_tokens": 90,
    "paid_dollars": 0.01,
    "plain_dollars": 0.04,
    "would_be_dollars": None,
}


def turn(**more):
    nothing = dict.fromkeys(TurnEnded.__struct_fields__, "")
    return TurnEnded(**{**nothing, **COSTS, **more})


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
    both = read_samples(one, other.to_snapshot())
    assert both["workers", __version__] == 2
    assert both["inflight",] == 5
    assert read_samples(one)["workers", __version__] == 1


def test_a_worker_that_is_started_again_counts_on_but_is_empty(tmp_path):
    dead, fresh = Metrics(), Metrics()
    dead.store_faults.add()
    dead.in_flight.add(by=7)
    WorkerSnapshots(tmp_path, 0, print).write(dead.to_snapshot())
    WorkerSnapshots(tmp_path, 0, print).restore(fresh)
    assert read_samples(fresh)["store_faults_total",] == 1
    assert read_samples(fresh)["inflight",] == 0
    assert read_samples(fresh)["workers", __version__] == 1


def test_an_unwritable_metrics_file_does_not_stop_the_proxy_and_is_reported_once(tmp_path):
    warnings = []
    folder = tmp_path / "state" / "workers"
    one, other = (WorkerSnapshots(folder, slot, warnings.append) for slot in (0, 1))
    (tmp_path / "state").touch()  # a file where the directory should be
    for _ in range(3):
        one.write(Metrics().to_snapshot())
    assert [str(folder) in text and "Not a directory" in text for text in warnings] == [True]
    assert other.read_others() == []
    (tmp_path / "state").unlink()
    one.write(Metrics().to_snapshot())
    assert len(other.read_others()) == 1
    (folder / "0.json").unlink()
    folder.rmdir()
    folder.touch()
    one.write(Metrics().to_snapshot())
    assert len(warnings) == 2


def test_a_snapshot_that_vanishes_while_it_is_looked_for_is_left_out(tmp_path):
    (tmp_path / "1.json").symlink_to(tmp_path / "gone")
    assert WorkerSnapshots(tmp_path, 0, print).read_others() == []


def test_cached_tokens_and_cost_are_counted_by_team():
    metrics = Metrics({"red"}.__contains__)
    for each in (turn(), turn(), turn(cached_tokens=None, paid_dollars=None, plain_dollars=None), turn(team="")):
        metrics(each)
    counted = read_samples(metrics)
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


def test_only_teams_of_the_configuration_become_labels():
    metrics = Metrics({"red"}.__contains__)
    for number in range(300):
        metrics(turn(team=f"tenant-{number}"))
    metrics(turn())
    counted = read_samples(metrics)
    assert {key[2] for key in counted if key[0] in ("prompt_tokens_total", "prompt_dollars_total")} == {"red", ""}
    assert counted["prompt_tokens_total", "read", ""] == 30_000


def test_only_known_models_become_labels_and_never_more_than_a_hundred():
    metrics = Metrics(is_known_model=lambda name: name.startswith("gpt-"))
    for number in range(200):
        metrics(turn(model=f"gpt-{number}"))
    metrics(turn(model="whatever a client sends"))
    models = {key[-1] for key in read_samples(metrics) if key[0] == "model_prompt_tokens_total"}
    assert len(models) == 101
    assert read_samples(metrics)["model_prompt_tokens_total", "read", "gpt-7"] == 100
    assert read_samples(metrics)["model_prompt_dollars_total", "paid", "other"] == pytest.approx(1.01)
