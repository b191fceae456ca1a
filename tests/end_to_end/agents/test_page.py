"""The page tells what the suite runs and found, of every agent, at the version that is pinned."""

from tests.end_to_end.agents.errands.roster import OPERATORS
from tests.end_to_end.agents.page import PAGE, between, recipes
from tests.end_to_end.agents.roster import AGENTS


def test_the_commands_of_the_page_are_those_of_the_suite():
    assert between(PAGE.read_text(), "recipes") == recipes(), "write it anew: python -m tests.end_to_end.agents.page"


def test_every_agent_has_its_row_at_the_version_that_is_pinned():
    rows = [line.split(" | ")[:2] for line in between(PAGE.read_text(), "figures").splitlines()[2:]]

    assert rows == [[f"| {agent.name}", agent.version] for agent in AGENTS]


def test_every_agent_of_the_errands_has_its_row_at_the_version_that_is_pinned():
    rows = [line.split(" | ")[:2] for line in between(PAGE.read_text(), "errands").splitlines()[2:]]

    assert rows == [[f"| {operator.agent.name}", operator.agent.version] for operator in OPERATORS]
