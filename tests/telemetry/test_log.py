"""Every line of the log is in the documents under its name."""

import re

import pytest

from proxy import events
from proxy.telemetry.log import make_line
from tests import ROOT

TABLE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
VALUES = {"seconds": 1.0, "status": 200, "steps": (), "details": (), "stage": "listening", "outcome": "completed"}
VALUES |= {"turns": (1, 2), "share": 0.25}
ALL = events.Event.__subclasses__()


def one(kind, **more):
    fields = {
        name: VALUES.get(name, None if name.endswith("_seconds") or name == "trace" else "")
        for name in kind.__struct_fields__
    }
    return kind(**{**fields, **more})


NAMES = {
    line[1]
    for event in (
        *map(one, ALL),
        one(events.CompactionEnded, is_observed=True),
        events.ConfigReloaded(),
        *(events.Lifecycle(stage) for stage in ("supervisor-lost", "draining", "stopped")),
    )
    if (line := make_line(event)) is not None
}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_line_of_the_log_is_explained(name):
    assert re.search(rf"`{name}`", TABLE)


def test_an_event_that_is_only_counted_has_no_log_line():
    assert make_line(events.LoopLagged(1.0)) is None
