"""The path of a request and the stages of its life, as docs/architecture.md lists them."""

import re

import pytest
import pytest_asyncio

from proxy.decide.actions import Deliver, Delivered, Finished, Forwarding, Opening, Send, SendAgain, Stage, follow
from tests import ROOT
from tests.support.trace import trace_requests

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
HOPS = [(path, name) for path, name in re.findall(r"^\d+\. `([^`]+)` `([^`]+)`", PAGE, re.MULTILINE)]
MORE_HOPS = [(path, name) for path, name in re.findall(r"^- \d+[a-z] `([^`]+)` `([^`]+)`", PAGE, re.MULTILINE)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calls(tmp_path_factory):
    return await trace_requests(tmp_path_factory.mktemp("state"))


def files(ran):
    return {path for path, _ in ran}


@pytest.mark.parametrize(("hops", "kind"), [(HOPS, "untouched"), (HOPS, "applied"), (MORE_HOPS, "applied")])
async def test_a_request_takes_the_hops_of_the_page_in_their_order(calls, hops, kind):
    ran = calls[kind]
    assert len(hops) > 5
    assert [hop for hop in hops if hop not in ran] == []
    places = [ran.index(hop) for hop in hops]
    assert places == sorted(places)


FOLLOWED = re.findall(r"^([A-Za-z._]+) +(\w+/\w+\.py) ", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("name", "path"), FOLLOWED)
def test_what_the_page_follows_stands_where_it_says(name, path):
    code = (ROOT / "proxy" / path).read_text()
    for part in name.split("."):
        assert re.search(rf"^ *(?:class|(?:async )?def) {part}\b", code, re.MULTILINE)


async def test_a_request_that_is_left_alone_runs_no_decision(calls):
    assert [path for path in files(calls["untouched"]) if path.startswith(("shorten/", "store/"))] == []


STEPS = {
    "Send": Send(Forwarding()),
    "SendAgain": SendAgain(Forwarding()),
    "Deliver": Deliver(Forwarding(), Opening()),
    "Finished": Finished(Delivered(0.0)),
}
ROWS = re.findall(r"^\| `(\w+)` \| `(\w+)`:.*\| `(\w+)` \|$", PAGE, re.MULTILINE)
SHOWN = {(stage, step): following for stage, step, following in ROWS}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("stage", Stage)
def test_a_turn_takes_the_steps_that_the_page_shows_and_no_other(stage, step):
    following = SHOWN.get((stage.name, step))
    if following is not None:
        assert follow(stage, STEPS[step]) is Stage[following]
    else:
        with pytest.raises(ValueError, match=f"{step} may not follow"):
            follow(stage, STEPS[step])
