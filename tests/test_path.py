"""The path of a request, as docs/architecture.md lists it: traced through a real socket, hop by hop."""

import re
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from tests import ROOT
from tests.support import http_client
from tests.support.agent import reading
from tests.support.gateway_in_process import GatewayInProcess, Listening
from tests.support.messages import body, user
from tests.support.proxy_client import request
from tests.support.scripted_upstream import Upstream, text_turn

PACKAGE = ROOT / "proxy"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
HOPS = [(path, name) for path, name in re.findall(r"^\d+\. `([^`]+)` `([^`]+)`", PAGE, re.MULTILINE)]
MORE_HOPS = [(path, name) for path, name in re.findall(r"^- \d+[a-z] `([^`]+)` `([^`]+)`", PAGE, re.MULTILINE)]
STATED = re.search(
    r"runs code of (\d+) files, one with a block applied of (\d+), one that\s+makes a block of (\d+)", PAGE
)


@contextmanager
def trace_calls():
    """Each call of a function of the package, as its file and name, in order."""
    calls = []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            calls.append((str(Path(frame.f_code.co_filename).relative_to(PACKAGE)), frame.f_code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def ask(origin, messages):
    sent = request(headers={"authorization": "Bearer sk-a"}, body=body(messages, stream=True))
    return await http_client.send(origin, sent)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calls(tmp_path_factory):
    """What ran for a request that is left alone, one that makes a block, and one under that block."""
    found = {}
    async with (
        Upstream(text_turn("Hi").using(prompt=100)) as up,
        GatewayInProcess(up, tmp_path_factory.mktemp("state")) as served,
    ):
        listening = Listening(served)
        async with listening.listening() as origin:
            await ask(origin, user("Hello?"))  # policies are compiled and names looked up once
            for name, messages in {
                "untouched": user("Hello?"),
                "created": reading(60, size=2_000),
                "applied": reading(61, size=2_000),
            }.items():
                with trace_calls() as ran:
                    assert (await ask(origin, messages)).status == 200
                    await served.notes.wait_idle()
                found[name] = ran
    return found


def files(ran):
    return {path for path, _ in ran}


@pytest.mark.parametrize(("hops", "kind"), [(HOPS, "untouched"), (HOPS, "applied"), (MORE_HOPS, "applied")])
async def test_a_request_takes_the_hops_of_the_page_in_their_order(calls, hops, kind):
    ran = calls[kind]
    assert len(hops) > 5
    assert [hop for hop in hops if hop not in ran] == []
    places = [ran.index(hop) for hop in hops]
    assert places == sorted(places)


async def test_a_request_runs_code_of_as_few_files_as_the_page_says(calls):
    for name, stated in zip(("untouched", "applied", "created"), STATED.groups(), strict=True):
        assert len(files(calls[name])) == int(stated), sorted(files(calls[name]))


async def test_a_request_that_is_left_alone_runs_no_decision(calls):
    assert [path for path in files(calls["untouched"]) if path.startswith(("shorten/", "store/"))] == []
