"""The dispatcher of events: a listener that fails costs neither the other listeners nor the emitter."""

from collections import Counter

import pytest

from proxy.events import Dispatcher, HookFailed, InternalFault, StoreFailed

EVENT = StoreFailed("disk full")


def fail(_event):
    raise OSError(28, "secret in the message")


@pytest.mark.parametrize("place", [0, 1])
def test_a_listener_that_raises_is_counted_and_the_others_get_the_event(place):
    received, errors = [], Counter()
    listeners = [("log", fail)]
    listeners.insert(place, ("other", received.append))
    emit = Dispatcher(dict(listeners), lambda name: errors.update([name]))
    for _ in range(3):
        emit(EVENT)
    assert received.count(EVENT) == 3
    assert errors["log"] >= 3
    assert errors.keys() == {"log"}


def test_where_a_listener_fails_is_reported_once_without_its_message():
    received = []
    emit = Dispatcher({"log": fail, "other": received.append}, lambda _name: None)
    for _ in range(3):
        emit(EVENT)
    faults = [event for event in received if isinstance(event, InternalFault)]
    assert [(fault.kind, fault.where.partition(":")[0]) for fault in faults] == [("OSError", "test_events.py")]
    assert "secret" not in repr(received)


def test_listeners_that_all_fail_end_the_reports():
    emit = Dispatcher({"a": fail, "b": fail}, lambda _name: None)
    emit(EVENT)


def test_an_end_of_the_process_is_not_a_fault_of_a_listener():
    def leave(_event):
        raise SystemExit

    with pytest.raises(SystemExit):
        Dispatcher({"a": leave}, pytest.fail)(HookFailed("x"))
