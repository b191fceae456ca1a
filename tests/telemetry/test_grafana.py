"""The Grafana dashboard speaks of metrics that there are, by labels that they have, and leaves none out."""

import json
import re

from proxy.telemetry.metrics import PREFIX, Metrics
from tests import ROOT

BOARD = json.loads((ROOT / "docs/grafana/compaction-proxy.json").read_text(encoding="utf-8"))
EXPRESSIONS = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
SERIES = {series.name: series for series in Metrics().series}


def asked_for(expression):
    """Each metric of an expression, with the labels it is asked for by."""
    by = set(",".join(re.findall(r"by \(([^)]*)\)", expression)).replace(" ", "").split(",")) - {"", "le"}
    for name, chosen in re.findall(rf"{PREFIX}(\w+)(?:\{{([^}}]*)\}})?", expression):
        series = SERIES[re.sub(r"_(bucket|sum|count)$", "", name) if name not in SERIES else name]
        yield series, by | set(re.findall(r"(\w+)=", chosen))


def test_every_metric_it_asks_for_is_there_with_these_labels():
    wrong = [
        (series.name, labels - set(series.labels))
        for expression in EXPRESSIONS
        for series, labels in asked_for(expression)
        if labels - set(series.labels)
    ]
    assert wrong == []


def test_every_metric_is_on_it():
    shown = {series.name for expression in EXPRESSIONS for series, _ in asked_for(expression)}
    assert SERIES.keys() - shown == set()
