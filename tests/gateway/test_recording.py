"""What is recorded of a request if transcripts keep everything."""

import pytest

from proxy.serve.services import Keeper
from tests.support.agent import reading
from tests.support.gateway_in_process import GatewayInProcess
from tests.support.scripted_upstream import text_turn


@pytest.mark.parametrize("fails", [False, True])
async def test_a_request_that_failed_open_is_not_recorded_for_its_policy_is_not_known(up, tmp_path, monkeypatch, fails):
    async def fail(*_):
        raise KeyError("a bug")

    recorded = []

    async def record(*given):
        recorded.append(given)

    up.script = text_turn("Well.")
    async with GatewayInProcess(up, tmp_path) as served:
        served.services.keeper = Keeper(everything=True)
        monkeypatch.setattr(served.compactor, "start_recording", record)
        if fails:
            monkeypatch.setattr(served.compactor, "prepare", fail)
        await served.relay(served.call(reading(1)))
        assert bool(served.faults) == fails
    assert bool(recorded) != fails
