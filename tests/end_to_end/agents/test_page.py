"""The page tells what the suite runs and found, of every agent, at the version that is pinned."""

import pytest

from tests.end_to_end.agents.errands.roster import OPERATORS
from tests.end_to_end.agents.page import PAGE, between, recipes
from tests.end_to_end.agents.roster import AGENTS


def test_the_commands_of_the_page_are_those_of_the_suite():
    assert between(PAGE.read_text(), "recipes") == recipes(), "write it anew: python -m tests.end_to_end.agents.page"


@pytest.mark.parametrize(("table", "agents"), [("figures", AGENTS), ("errands", [each.agent for each in OPERATORS])])
def test_every_agent_has_its_row_at_the_version_that_is_pinned(table, agents):
    rows = [line.split(" | ")[:2] for line in between(PAGE.read_text(), table).splitlines()[2:]]

    assert rows == [[f"| {agent.name}", agent.version] for agent in agents]
