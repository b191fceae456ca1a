"""What is kept of each event, in a golden file: a line of the log, the payload of a hook, a row of the activity log.

An event may get fields that none of them should hold.
"""

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from proxy import events
from proxy.config.settings import HookConfig
from proxy.telemetry.activity import find_incident
from proxy.telemetry.hooks import make_payload
from proxy.telemetry.log import make_line
from tests import ROOT
from tests.support.written_steps import assert_case, list_cases

GOLDEN = Path(__file__).parent / "golden"
DOCUMENTED = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
HOOK_EVENTS = {
    name for annotation in get_args(HookConfig.model_fields["events"].annotation) for name in get_args(annotation)
}


def read_event(case):
    name, fields = case.split("\n")[0].split(" ", 1)
    return msgspec.json.decode(fields, type=getattr(events, name))


def tell(case):
    event = read_event(case)
    told = [case.split("\n")[0]]
    if line := make_line(event):
        severity, name, fields = line
        told.append(f"= log: {severity} {name} {json.dumps(fields)}")
        if name in HOOK_EVENTS:
            told.append(f"= hook: {json.dumps(make_payload(event))}")
    if incident := find_incident(event):
        price = f" for {incident.dollars} dollars" if incident.dollars else ""
        place = f" in {incident.conversation}" if incident.conversation else ""
        told.append(f"= incident{place}{price}: {', '.join(incident.details) or 'no details'}")
    return "\n".join(told)


CASES = list_cases(GOLDEN)


@pytest.mark.parametrize(("sentence", "case"), CASES)
def test_of_an_event_is_kept_what_its_golden_file_shows(sentence, case):
    assert_case(GOLDEN, case, tell(case))


def test_every_event_is_shown_with_all_of_its_fields_and_every_name_is_documented():
    shown, names = defaultdict(set), set()
    for _, case in CASES:
        name, fields = case.split("\n")[0].split(" ", 1)
        shown[name] |= set(json.loads(fields))
        names |= {found[1] for found in re.finditer("(?m)^= log: [a-z]+ ([a-z-]+)", case)}
    assert shown == {kind.__name__: set(kind.__struct_fields__) for kind in events.Event.__subclasses__()}
    assert {name for name in names if f"`{name}`" not in DOCUMENTED} == set()
    assert names >= HOOK_EVENTS
