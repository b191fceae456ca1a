"""Log lines, hook payloads and rows of the activity log: which fields of an event each of them holds."""

from typing import get_args

import pytest

from proxy import events
from proxy.config.settings import HookConfig
from proxy.telemetry.activity import find_incident
from proxy.telemetry.hooks import make_payload
from proxy.telemetry.log import make_line

COMPACTION = events.CompactionEnded("c", "default", "stride", 100, 40, (("clear_results", 3, 60),), is_observed=False)
SUMMARY = events.SummaryEnded("c", "default", "up", "gpt-4o", "made", 1, 1_000_000, 0, 0, 3.14159, 2.5)
REFUSAL = events.SizeRefused("cp-1", "up", "overflow", 100, helped=False)
HOOK_EVENTS = {
    name for annotation in get_args(HookConfig.model_fields["events"].annotation) for name in get_args(annotation)
}


def test_payloads_of_hooks_are_what_the_documents_say():
    assert make_payload(COMPACTION) == {
        "event": "compaction-ended", "request_id": "", "conversation": "c", "policy": "default", "reason": "stride",
        "tokens_before": 100, "tokens_after": 40, "turns": None,
        "steps": [{"step": "clear_results", "messages": 3, "saved": 60}],
    }  # fmt: skip
    assert make_payload(REFUSAL) == {
        "event": "refused-for-size", "request_id": "cp-1", "upstream": "up", "kind": "overflow", "limit": 100,
        "helped": False,
    }  # fmt: skip
    assert make_payload(SUMMARY)["seconds"] == 3.142


def test_every_event_that_a_hook_can_ask_for_has_a_payload():
    started = events.CompactionStarted("c", "default", "stride", 100)
    saved = events.OriginalKept("c", "/originals/c")
    asked = (started, saved, COMPACTION, SUMMARY, REFUSAL)
    assert {make_payload(event)["event"] for event in asked} == HOOK_EVENTS


def test_an_observed_compaction_reaches_no_hook():
    """Hooks ask for events by their names, and no hook can ask for this one."""
    observed = events.CompactionEnded("c", "default", "stride", 100, 40, (), is_observed=True)
    assert make_payload(observed)["event"] == find_incident(observed).name == "compaction-observed"
    assert "compaction-observed" not in HOOK_EVENTS


def test_an_incident_carries_its_price_as_a_figure_of_its_own():
    incident = find_incident(SUMMARY)
    assert incident.dollars == pytest.approx(2.5, rel=0.5)
    assert "dollars" not in incident.details
    assert (incident.name, incident.conversation, incident.details["outcome"]) == ("summary-ended", "c", "made")


@pytest.mark.parametrize(("helped", "severity"), [(True, "warning"), (False, "info")])
def test_a_refused_view_is_a_warning_where_the_clients_own_history_was_accepted(helped, severity):
    line = make_line(events.ViewRefused("cp-1", "up", helped=helped))
    assert line[:2] == (severity, "shortened-refused")
    assert ("please report" in line[2]["effect"]) is helped


def test_wrong_keys_and_repetitions_make_no_incident():
    assert find_incident(events.AdminActed("somebody", "1.2.3.4", "log in", "", "refused")) is None
    assert find_incident(events.PromptTruncated("c", "up", 100, 50, is_repeated=True)) is None


def test_a_log_line_holds_the_named_fields_of_its_event_only():
    """An event may get fields that no log should hold."""
    fields = make_line(events.FailedOpen("cp-1", "KeyError", "a.py:1"))[2]
    assert set(fields) == {"request_id", "kind", "where", "effect"}
