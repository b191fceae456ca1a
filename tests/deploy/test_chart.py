"""The Helm chart: Helm renders it, Kubernetes' schemas accept it, and the proxy understands its values."""

import subprocess

import pytest
import yaml

from proxy.config.loading import load
from tests import ROOT
from tests.support import environments

MISSING = environments.missing("deploy")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

CHART = ROOT / "deploy" / "helm" / "compaction-proxy"
HELM = environments.program_of("deploy", "helm")
SECRETS = dict.fromkeys(("OPENAI_API_KEY", "S3_KEY", "S3_SECRET", "ADMIN_KEY"), "v9Qw3kZr7LpX2mTb4hYd")
SECRETS["REDIS_URL"] = "rediss://:p@redis:6379/0"
NOT_IN_KUBERNETES = {"ServiceMonitor"}  # of the Prometheus operator

EVERYTHING = {
    "image": {"digest": f"sha256:{'0' * 64}", "pullSecrets": [{"name": "registry"}]},
    "secrets": {"values": SECRETS},
    "env": [{"name": "AWS_REGION", "value": "eu-central-1"}],
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/proxy"}},
    "ingress": {"enabled": True, "tlsSecret": "proxy-tls"},
    "persistence": {"storageClass": "fast"},
    "autoscaling": {"enabled": True},
    "networkPolicy": {
        "enabled": True,
        "clients": [{"namespaceSelector": {"matchLabels": {"team": "agents"}}}],
        "prometheus": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "egress": [{"ports": [{"port": 443}], "to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}],
    },
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "podAnnotations": {"a": "b"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "llm", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}
CASES = {
    "defaults": {},
    "existing secret": {"secrets": {"existing": "mine"}, "serviceAccount": {"create": False}},
    "everything": EVERYTHING,
    "own tls": {"tls": {"secret": "proxy-tls"}, "networkPolicy": {"enabled": True}},
    "mutual tls": {"tls": {"secret": "proxy-tls", "clientCA": "ca.crt"}, "serviceMonitor": {"enabled": True}},
}


def run_helm(*arguments, home):
    """What Helm prints; its own files stay below `home`."""
    settings = {f"HELM_{kind}_HOME": str(home / kind) for kind in ("CACHE", "CONFIG", "DATA")} | {"HOME": str(home)}
    command = [str(one) for one in (HELM, *arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def render_chart(values, place):
    """The manifests, each as it would be applied."""
    (place / "values.yaml").write_text(yaml.safe_dump(values))
    text = run_helm("template", "one", CHART, "--namespace", "ns", "--values", place / "values.yaml", home=place)
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


@pytest.fixture(params=CASES.values(), ids=CASES)
def manifests(request, tmp_path):
    return render_chart(request.param, tmp_path)


def find_manifest(manifests, kind):
    (found,) = [manifest for manifest in manifests if manifest["kind"] == kind]
    return found


def test_the_schemas_of_kubernetes_accept_it(manifests, tmp_path):
    files = []
    for index, manifest in enumerate(manifests):
        if manifest["kind"] not in NOT_IN_KUBERNETES:
            files.append(tmp_path / f"{index}.yaml")
            files[-1].write_text(yaml.safe_dump(manifest))
    program = environments.program_of("deploy", "kubernetes-validate")
    done = subprocess.run([program, "--strict", *files], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_manifests_without_helm_are_accepted_too(tmp_path):
    program = environments.program_of("deploy", "kubernetes-validate")
    command = [program, "--strict", ROOT / "deploy" / "kubernetes" / "compaction-proxy.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_fault_would_be_found(tmp_path):
    broken = find_manifest(render_chart({}, tmp_path), "StatefulSet")
    broken["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    (tmp_path / "broken.yaml").write_text(yaml.safe_dump(broken))
    program = environments.program_of("deploy", "kubernetes-validate")
    done = subprocess.run([program, "--strict", tmp_path / "broken.yaml"], capture_output=True, check=False)
    assert done.returncode != 0


def test_selectors_find_the_replicas(manifests):
    replicas = find_manifest(manifests, "StatefulSet")
    labels = replicas["spec"]["template"]["metadata"]["labels"]
    selectors = [replicas["spec"]["selector"]["matchLabels"]]
    selectors += [one["spec"]["selector"] for one in manifests if one["kind"] == "Service"]
    selectors += [one["spec"]["selector"]["matchLabels"] for one in manifests if one["kind"] == "PodDisruptionBudget"]
    selectors += [one["spec"]["podSelector"]["matchLabels"] for one in manifests if one["kind"] == "NetworkPolicy"]
    assert [selector for selector in selectors if not selector.items() <= labels.items()] == []
    services = {one["metadata"]["name"]: one for one in manifests if one["kind"] == "Service"}
    assert services[replicas["spec"]["serviceName"]]["spec"]["clusterIP"] == "None"
    for monitor in (one for one in manifests if one["kind"] == "ServiceMonitor"):
        asked = monitor["spec"]["selector"]["matchLabels"].items()
        (found,) = [name for name, one in services.items() if asked <= one["metadata"]["labels"].items()]
        assert found == replicas["spec"]["serviceName"], "each replica is asked, and each once"


def test_its_configuration_and_its_drain_are_good(manifests, tmp_path):
    (tmp_path / "proxy.yaml").write_text(find_manifest(manifests, "ConfigMap")["data"]["proxy.yaml"])
    config = load(tmp_path / "proxy.yaml", SECRETS).config
    pod = find_manifest(manifests, "StatefulSet")["spec"]["template"]["spec"]
    assert config.state.url
    assert pod["terminationGracePeriodSeconds"] >= config.listen.drain_seconds + 10
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_environment_of_the_container_is_understood(manifests, tmp_path):
    """Variables of the chart are settings; the files that they name are there in the pod only."""
    (container,) = find_manifest(manifests, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    for variable in container["env"]:
        if variable["value"].startswith("/"):
            assert any(variable["value"].startswith(f"{mount}/") for mount in mounts)
        elif variable["name"].startswith("COMPACTION_PROXY_"):
            load(None, {variable["name"]: variable["value"]})


def test_probes_fit_the_listener(tmp_path):
    def probe(**values):
        (container,) = find_manifest(render_chart(values, tmp_path), "StatefulSet")["spec"]["template"]["spec"][
            "containers"
        ]
        return container["readinessProbe"]

    assert probe()["httpGet"] == {"path": "/health/ready", "port": "http", "scheme": "HTTP"}
    assert probe(**CASES["own tls"])["httpGet"]["scheme"] == "HTTPS"
    assert probe(**CASES["mutual tls"])["tcpSocket"] == {"port": "http"}


def test_replicas_are_scaled_by_requests_in_progress(tmp_path):
    manifests = render_chart(EVERYTHING, tmp_path)
    (metric,) = find_manifest(manifests, "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == "compaction_proxy_inflight"
    assert "replicas" not in find_manifest(manifests, "StatefulSet")["spec"], "it would undo what the autoscaler does"


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_helm_finds_nothing_to_complain_of(values, tmp_path):
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    run_helm("lint", "--strict", "--values", tmp_path / "values.yaml", CHART, home=tmp_path)
