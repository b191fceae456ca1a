"""The life of a turn: the table of its stages, and the page that shows it."""

import re

import pytest

from proxy.decide.actions import Deliver, Delivered, Finished, Forwarding, Opening, Send, SendAgain, Stage, follow
from tests import ROOT

STEPS = {
    "Send": Send(Forwarding()),
    "SendAgain": SendAgain(Forwarding()),
    "Deliver": Deliver(Forwarding(), Opening()),
    "Finished": Finished(Delivered(0.0)),
}
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
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
