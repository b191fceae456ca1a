"""What is recorded of a request if transcripts keep everything."""

import json

import pytest
from msgspec.structs import replace

from proxy.serve.services import Keeper
from proxy.store.transcripts.writer import OriginalsWriter
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


@pytest.mark.parametrize("streamed", [True, False])
async def test_the_answer_is_recorded_behind_the_history_that_it_ends(up, tmp_path, streamed):
    up.script = text_turn("Well.")
    async with GatewayInProcess(up, tmp_path / "state") as served:
        served.services.keeper = Keeper(OriginalsWriter(tmp_path / "originals"), everything=True)
        call = served.call(reading(1))
        if not streamed:
            call = replace(call, body=call.body.replace(b'"stream": true', b'"stream": false'))
        await served.relay(call)
    (file,) = (tmp_path / "originals").rglob("*.jsonl")
    *_, newest = map(json.loads, file.read_text().splitlines())
    assert newest["message"] == {"role": "assistant", "content": "Well."}
