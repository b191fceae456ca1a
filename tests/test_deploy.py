"""Files people deploy with: they parse, their configurations are good, their probes lead somewhere."""

from pathlib import Path

import pytest
import yaml

from proxy.config import load

ROOT = Path(__file__).parent.parent
COMPOSE = ROOT / "deploy" / "compose"
MANIFESTS = ROOT / "deploy" / "kubernetes" / "compaction-proxy.yaml"
ENVIRONMENT = {
    "OPENAI_API_KEY": "sk-a",
    "REDIS_URL": "redis://:p@redis:6379/0",
    "S3_KEY": "k",
    "S3_SECRET": "s",
    "ADMIN_KEY": "v9Qw3kZr7LpX2mTb4hYd",
}


def manifests():
    return {told["kind"]: told for told in yaml.safe_load_all(MANIFESTS.read_text())}


def test_the_configuration_of_the_compose_file_is_good():
    config = load(COMPOSE / "proxy.yaml", ENVIRONMENT).config
    assert config.teams
    assert config.state.url


def test_the_compose_file_names_only_files_that_are_there():
    told = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    assert all((COMPOSE / each["file"]).is_file() for each in told["configs"].values())
    used = {config["source"] for service in told["services"].values() for config in service.get("configs", ())}
    assert used == set(told["configs"])
    ports = [port for service in told["services"].values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_every_secret_of_the_compose_file_is_in_its_example():
    told = (COMPOSE / ".env.example").read_text()
    text = (COMPOSE / "compose.yaml").read_text()
    assert all(f"{name}=" in told for name in ENVIRONMENT if f"${{{name}" in text)


def test_the_configuration_of_the_manifests_is_good(tmp_path):
    file = tmp_path / "proxy.yaml"
    file.write_text(manifests()["ConfigMap"]["data"]["proxy.yaml"])
    assert load(file, ENVIRONMENT).config.state.url


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_the_probes_lead_to_pages_that_there_are(probe):
    (container,) = manifests()["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert container[probe]["httpGet"]["path"] in (ROOT / "docs" / "operations.md").read_text()


def test_the_drain_fits_into_the_grace_period():
    pod = manifests()["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > load(None, {}).config.listen.drain_seconds + 5
