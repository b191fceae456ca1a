"""What can be set, and what a setting refuses to be."""

import re
from typing import Literal, get_args, get_origin

import pytest
import trustme
from pydantic import ValidationError

from proxy.config.defaults import as_yaml, read_descriptions
from proxy.config.faults import InvalidConfig
from proxy.config.loading import load
from proxy.config.settings import Config, State, Upstream
from proxy.config.values import ConfigModel
from tests import ROOT


def test_a_configuration_cannot_be_changed():
    with pytest.raises(ValidationError):
        Config().listen.port = 1


def test_models_are_globs():
    models = ("gpt-4o", "o3", "o5", "GPT-4o", "")
    assert list(filter(Upstream(models=("gpt-*", "o[34]")).serves, models)) == ["gpt-4o", "o3"]


def test_the_first_upstream_that_matches_serves_a_model_and_the_first_serves_no_model():
    config = Config(upstreams=(Upstream(name="a", models=("a-*",)), Upstream(name="b", models=("*-1",))))
    assert [config.upstream_for(model).name for model in ("a-1", "b-1", None)] == ["a", "b", "a"]
    assert config.upstream_for("c-2") is None


@pytest.fixture(scope="module")
def pems(tmp_path_factory):
    """Files: an authority's certificate, a certificate without its key, a key, both together, and a text."""
    folder = tmp_path_factory.mktemp("pems")
    authority = trustme.CA()
    leaf = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(folder / "authority")
    leaf.cert_chain_pems[0].write_to_path(folder / "certificate")
    leaf.private_key_pem.write_to_path(folder / "key")
    leaf.private_key_and_cert_chain_pem.write_to_path(folder / "both")
    (folder / "text").write_text("not a certificate")
    return {file.name: str(file) for file in folder.iterdir()}


def test_good_certificates_are_good(pems):
    Upstream(ca_file=pems["authority"], client_cert=pems["both"])
    Config(listen={"tls_cert": pems["certificate"], "tls_key": pems["key"]})


@pytest.mark.parametrize(
    "spoiled",
    [
        {"upstreams": [{"ca_file": "text"}]},
        {"upstreams": [{"ca_file": "key"}]},
        {"upstreams": [{"client_cert": "certificate"}]},
        {"upstreams": [{"client_cert": "nowhere"}]},
        {"listen": {"tls_cert": "certificate"}},
        {"listen": {"tls_key": "key"}},
        {"listen": {"client_ca": "authority"}},
        {"listen": {"tls_cert": "text", "tls_key": "key"}},
        {"listen": {"tls_cert": "authority", "tls_key": "key"}},
    ],
)
def test_a_certificate_that_cannot_be_used_is_a_fault_of_the_configuration(pems, spoiled):
    """Else it would be found at start by a traceback, and at a reload not at all."""
    ((block, value),) = spoiled.items()
    (path, given) = ((block,), value) if block == "listen" else ((block, 0), value[0])
    options = {(*path, name): pems.get(file, file) for name, file in given.items()}
    with pytest.raises(InvalidConfig) as raised:
        load(None, {}, options)
    assert all(fault.origin == "command line" for fault in raised.value.faults)


def test_the_shipped_file_is_a_configuration_and_says_what_the_code_says(tmp_path):
    (tmp_path / "proxy.yaml").write_text(as_yaml())
    loaded = load(tmp_path / "proxy.yaml", {}, {("state", "dir"): State().dir})
    assert loaded.config == Config()


def choices(annotation):
    """The texts that a setting of this type can have, if they are a list of few."""
    if get_origin(annotation) is Literal:
        yield from filter(None, get_args(annotation))
    for inner in get_args(annotation):
        yield from choices(inner)


def groups(model):
    yield model
    for field in model.model_fields.values():
        yield from groups_in(field.annotation)


def groups_in(annotation):
    if isinstance(annotation, type) and issubclass(annotation, ConfigModel):
        yield from groups(annotation)
    for inner in get_args(annotation):
        yield from groups_in(inner)


def list_settings(model):
    """The paths of all settings that hold a value, those of tools among them."""
    for name, field in model.model_fields.items():
        group = next(groups_in(field.annotation), None)
        if group is None:
            yield name
        else:
            yield from (f"{name}.{path}" for path in list_settings(group))


def test_the_description_of_a_setting_names_every_value_that_it_can_have():
    unnamed = [
        f"{group.__name__}.{name}: {choice}"
        for group in groups(Config)
        for name, field in group.model_fields.items()
        for choice in choices(field.annotation)
        if f"`{choice}`" not in read_descriptions(group)[name]
    ]
    assert unnamed == []


def test_the_recipe_for_clients_without_tools_is_a_policy_that_knows_their_output(tmp_path):
    page = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
    recipe = next(text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "observations" in text)
    (tmp_path / "proxy.yaml").write_text(recipe)
    policy = load(tmp_path / "proxy.yaml", {}).config.policy("mine")
    for words in ("Shell said: ok", "Done in 3 s"):
        assert any(re.search(pattern, words) for pattern in policy.observations)
