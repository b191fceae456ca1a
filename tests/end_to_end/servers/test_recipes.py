"""What docs/upstreams.md shows is accepted, what doctor names is in it, and the versions are those that run."""

import pytest
import yaml

from proxy.cli.doctor import KINDS
from proxy.config.loading import load
from tests.end_to_end.servers.recipes import PAGE, headings, recipe
from tests.end_to_end.servers.roster import LITELLM, SERVERS

SECRETS = dict.fromkeys(("AZURE_OPENAI_API_KEY", "LITELLM_MASTER_KEY"), "made-up")
OURS = [heading for heading in headings() if heading != "LiteLLM in front" and not heading.startswith("nginx")]


@pytest.mark.parametrize("heading", OURS)
def test_a_recipe_is_a_configuration(heading, tmp_path):
    (tmp_path / "proxy.yaml").write_text(recipe(heading))
    assert load(tmp_path / "proxy.yaml", SECRETS).config.upstreams


def test_every_server_that_doctor_names_has_its_recipe():
    assert {*KINDS} - {"LiteLLM"} <= set(headings())
    assert {"LiteLLM behind", "LiteLLM in front"} <= set(headings())


@pytest.mark.parametrize("server", [*SERVERS, LITELLM], ids=lambda server: server.name)
def test_the_versions_are_those_that_are_run(server):
    assert f"{server.package} {server.version}" in PAGE.read_text()


def test_litellm_is_given_what_it_can_read():
    for heading, place in (("LiteLLM behind", 1), ("LiteLLM in front", 0)):
        assert yaml.safe_load(recipe(heading, place=place))["model_list"]
