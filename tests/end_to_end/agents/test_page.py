"""The pages tell what the suite runs and found, of every agent, at the version that is pinned."""

import pytest

from tests.end_to_end.agents.page import PAGE, README, between, recipes
from tests.end_to_end.agents.roster import AGENTS


def test_the_commands_of_the_page_are_those_of_the_suite():
    assert between(PAGE.read_text(), "recipes") == recipes(), "write it anew: python -m tests.end_to_end.agents.page"


@pytest.mark.parametrize(("page", "name"), [(PAGE, "figures"), (README, "agents")], ids=["clients.md", "README.md"])
def test_every_agent_has_its_row_at_the_version_that_is_pinned(page, name):
    rows = [line.split(" | ")[:2] for line in between(page.read_text(), name).splitlines()[2:]]

    assert rows == [[f"| {agent.name}", agent.version] for agent in AGENTS]


def test_the_readme_counts_the_agents_of_its_table_and_those_that_finish_without_the_proxy():
    rows = between(README.read_text(), "agents").splitlines()[2:]
    without = sum(" yes / yes " in row.split("|")[5] for row in rows)
    text = f"| {len(rows)} agents, unmodified, on a task that overflows their model"
    assert f"{text} | all finish with the proxy, {without} without |" in README.read_text()
