"""Files people deploy with: they parse, their configurations are good, their probes lead somewhere, and the balancer's
does what the documents say, with a real nginx.
"""

import asyncio
import re
from contextlib import asynccontextmanager

import pytest
import yaml

from proxy import __version__
from proxy.config.loading import load
from tests import ROOT
from tests.end_to_end.servers.nginx import PORT, PROGRAM, TEMPORARY, running_nginx
from tests.support import http_client
from tests.support.proxy_client import request
from tests.support.running_proxy import free_port
from tests.support.scripted_upstream import Upstream, answer, cut, delta, hang, stream

COMPOSE = ROOT / "deploy" / "compose"
MANIFESTS = ROOT / "deploy" / "kubernetes" / "compaction-proxy.yaml"
ENVIRONMENT = {
    "OPENAI_API_KEY": "sk-a",
    "REDIS_URL": "redis://:p@redis:6379/0",
    "S3_KEY": "k",
    "S3_SECRET": "s",
    "ADMIN_KEY": "v9Qw3kZr7LpX2mTb4hYd",
}
CHAT = request("POST", "/v1/chat/completions", {}, b"{}")


def manifests(kind):
    return [text for text in yaml.safe_load_all(MANIFESTS.read_text()) if text["kind"] == kind]


def pod():
    (replicas,) = manifests("StatefulSet")
    return replicas["spec"]["template"]["spec"]


def test_the_configuration_of_the_compose_file_is_good():
    config = load(COMPOSE / "proxy.yaml", ENVIRONMENT).config
    assert config.teams
    assert config.state.url


def test_the_compose_file_names_only_files_that_are_there():
    text = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    assert all((COMPOSE / each["file"]).is_file() for each in text["configs"].values())
    used = {config["source"] for service in text["services"].values() for config in service.get("configs", ())}
    assert used == set(text["configs"])
    ports = [port for service in text["services"].values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_every_secret_of_the_compose_file_is_in_its_example():
    text = (COMPOSE / ".env.example").read_text()
    needed = set(re.findall(r"(?<!\$)\$\{(\w+)", (COMPOSE / "compose.yaml").read_text()))
    assert needed == set(re.findall(r"^(\w+)=", text, re.MULTILINE))


def test_pulled_images_have_one_version():
    text = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"].values()
    assert [image for service in text if ":" not in (image := service.get("image", ":")) or "latest" in image] == []


def test_the_configuration_of_the_manifests_is_good(tmp_path):
    (found,) = manifests("ConfigMap")
    file = tmp_path / "proxy.yaml"
    file.write_text(found["data"]["proxy.yaml"])
    assert load(file, ENVIRONMENT).config.state.url


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_the_probes_lead_to_pages_that_there_are(probe):
    (container,) = pod()["containers"]
    assert container[probe]["httpGet"]["path"] in (ROOT / "docs" / "operations.md").read_text()


def test_the_drain_fits_into_the_grace_period():
    assert pod()["terminationGracePeriodSeconds"] > load(None, {}).config.listen.drain_seconds + 5


def test_every_service_leads_to_the_replicas_and_the_replicas_have_one_of_their_own():
    (replicas,) = manifests("StatefulSet")
    services = {found["metadata"]["name"]: found["spec"] for found in manifests("Service")}
    labels = replicas["spec"]["template"]["metadata"]["labels"]
    assert all(spec["selector"].items() <= labels.items() for spec in services.values())
    assert services[replicas["spec"]["serviceName"]]["clusterIP"] == "None"


@asynccontextmanager
async def balancer(place, *replicas):
    """The shipped configuration, but for the addresses, and where it may write."""
    text = (COMPOSE / "nginx.conf").read_text()
    servers = "".join(f"server {origin.removeprefix('http://')} max_fails=0;" for origin in replicas)
    for shipped, here in (
        ("server proxy:8800 resolve max_fails=0;", servers),
        ("resolver 127.0.0.11 valid=2s;", TEMPORARY),
        ("listen 8800;", f"listen 127.0.0.1:{PORT};"),
    ):
        assert shipped in text
        text = text.replace(shipped, here)
    async with running_nginx(text, place) as nginx:
        yield nginx.origin


@pytest.mark.skipif(PROGRAM is None, reason="there is no nginx here")
class TestBalancer:
    async def test_a_replica_that_is_away_is_passed_over(self, tmp_path):
        async with Upstream(answer({"by": "the one that is left"})) as left:
            away = f"http://127.0.0.1:{free_port()}"
            async with balancer(tmp_path, away, left.origin) as origin:
                replies = [await http_client.send(origin, CHAT, method="POST") for _ in range(6)]
        assert {reply.status for reply in replies} == {200}
        assert len(left.requests) == 6

    async def test_a_replica_is_used_as_soon_as_it_is_back(self, tmp_path):
        """When replicas are replaced one after the other, it may be the only one by then."""
        ports = [free_port(), free_port()]
        async with balancer(tmp_path, *(f"http://127.0.0.1:{port}" for port in ports)) as origin:
            for port in ports * 2:
                async with Upstream(answer({"by": "the only one"}), port=port):
                    replies = [await http_client.send(origin, CHAT, method="POST") for _ in range(4)]
                assert {reply.status for reply in replies} == {200}

    @pytest.mark.parametrize("reply", [answer({"error": {}}, status=503), cut()])
    async def test_a_request_sent_to_a_replica_is_never_sent_again(self, tmp_path, reply):
        """The 503 may be the upstream's, and a connection that breaks may break after the upstream was called."""
        async with Upstream(reply) as one, Upstream(reply) as other:
            async with balancer(tmp_path, one.origin, other.origin) as origin:
                assert (await http_client.send(origin, CHAT, method="POST")).status in (502, 503)
            assert len(one.requests) + len(other.requests) == 1

    async def test_a_stream_passes_as_it_comes(self, tmp_path):
        async with Upstream(stream(delta(content="Hi"), hang())) as up, balancer(tmp_path, up.origin) as origin:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(origin.rpartition(":")[2]))
            writer.write(CHAT)
            assert b"Hi" in await asyncio.wait_for(reader.readuntil(b"Hi"), 60)
            writer.close()
            await up.requests[0].end()

    async def test_the_metrics_of_the_replicas_are_not_public(self, tmp_path):
        async with Upstream(answer(b"")) as up, balancer(tmp_path, up.origin) as origin:
            assert (await http_client.send(origin, request("GET", "/metrics", {}), method="GET")).status == 404
        assert not up.requests


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_actions_are_pinned_by_the_digest_of_a_commit(file):
    """A tag can be moved to other code; the digest of a commit cannot."""
    jobs = yaml.safe_load(file.read_text())["jobs"].values()
    used = [step["uses"] for job in jobs for step in job["steps"] if "uses" in step]
    assert [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)] == []


def test_a_release_names_one_version_everywhere():
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "compaction-proxy" / "Chart.yaml").read_text())
    image = pod()["containers"][0]["image"]
    assert {chart["version"], chart["appVersion"], image.partition(":")[2]} == {__version__}
