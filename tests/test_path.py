"""The path of a request, as docs/architecture.md lists it: traced through a real socket, hop by hop."""

import re
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import ROOT
from tests.server.test_interrupted import Listening
from tests.support import http_client
from tests.support.agent import reading
from tests.support.gateway_in_process import Served
from tests.support.messages import body, user
from tests.support.proxy_client import request
from tests.support.scripted_upstream import Upstream, says

PACKAGE = ROOT / "proxy"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
HOPS = [(path, name) for path, name in re.findall(r"^\d+\. `([^`]+)` `([^`]+)`", PAGE, re.MULTILINE)]
STATED = re.search(
    r"runs code of (\d+) files, one with a block applied of (\d+), one that\s+makes a block of (\d+)", PAGE
)


@contextmanager
def traced():
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


@pytest.fixture
async def calls(tmp_path):
    """What ran for a request that is left alone, one that makes a block, and one under that block."""
    found = {}
    async with Upstream(says("Hi").using(prompt=100)) as up, Served(up, tmp_path) as served:
        listening = Listening(served)
        async with listening.listening() as origin:
            await ask(origin, user("Hello?"))  # policies are compiled and names looked up once
            for name, messages in {
                "untouched": user("Hello?"),
                "created": reading(60, size=2_000),
                "applied": reading(61, size=2_000),
            }.items():
                with traced() as ran:
                    assert (await ask(origin, messages)).status == 200
                    await served.notes.wait_idle()
                found[name] = ran
    return found


def files(ran):
    return {path for path, _ in ran}


async def test_a_request_takes_the_hops_of_the_page_in_their_order_and_few_files(calls):
    untouched = calls["untouched"]
    assert len(HOPS) > 10
    assert [hop for hop in HOPS if hop not in untouched] == []
    places = [untouched.index(hop) for hop in HOPS]
    assert places == sorted(places)
    for name, stated in zip(("untouched", "applied", "created"), STATED.groups(), strict=True):
        # A few less where something had been looked up before; never more than the page says.
        assert int(stated) - 5 <= len(files(calls[name])) <= int(stated), sorted(files(calls[name]))
