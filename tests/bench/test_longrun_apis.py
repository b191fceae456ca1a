"""The long run is the same work in each API."""

import longrun_apis
import pytest

from proxy.lab.replay.replay_history import ReplayHistory


@pytest.mark.parametrize("path", longrun_apis.APIS.values())
def test_each_answer_of_the_run_is_a_request(path):
    history = ReplayHistory(longrun_apis.make_conversation(path, 12))
    calls = [call.name for message in history.messages for call in message.calls]
    made = [call["function"]["name"] for each in longrun_apis.list_messages(12) for call in each.get("tool_calls", ())]
    assert len(history.places) == 12
    assert calls == made
    assert sum(message.is_result for message in history.messages) == len(made)


@pytest.mark.parametrize("path", longrun_apis.APIS.values())
def test_a_small_window_is_never_exceeded(path):
    scores = longrun_apis.play(path, 40, "default", 32_000)
    assert (scores.over, scores.invalid) == (0, {})
    assert scores.rewrites > 0
