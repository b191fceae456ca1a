"""What is shipped for Prometheus and Grafana, tried with a real Prometheus: the page of metrics is good, every question
of the dashboard finds an answer, and every alert goes off when it should, at the first fault.

It needs `prometheus` and `promtool` (Debian's package `prometheus`), and is passed over without them.
"""

import asyncio
import json
import math
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from proxy import events
from proxy.telemetry.metrics import Metrics
from tests import ROOT
from tests.support.admin_client import TURN
from tests.support.proxy_client import until
from tests.support.running_proxy import free_port
from tests.support.scripted_upstream import Upstream, answer

ALERTS = ROOT / "deploy" / "alerts.yaml"
CONFIG = ROOT / "deploy" / "compose" / "prometheus.yaml"
BOARD = ROOT / "docs" / "grafana" / "compaction-proxy.json"
EXPRESSIONS = [target["expr"] for panel in json.loads(BOARD.read_text())["panels"] for target in panel["targets"]]
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (PROMETHEUS and PROMTOOL), reason="there is no Prometheus here"),
]


def everything() -> Iterator[events.Event]:
    """One of each of what is counted."""
    for outcome in ("completed", "failed"):
        yield events.RequestFinished(
            "r", "POST", "/v1/chat/completions", 200, outcome, "red", "openai", "gpt-4o", "c", None, "applied",
            100, 40, 40, 1, 9, 9, 0.2, 0.1, 0.01,
        )  # fmt: skip
    yield events.UpstreamRetried("openai", "503", 1)
    yield events.ConfigReloaded("no good")
    yield events.InternalFault("r", "KeyError", "a.py:1")
    yield events.FailedOpen("r", "ValueError", "a.py:1")
    yield events.StoreFailed("away")
    yield events.HookFailed("a hook")
    yield events.CompactionEnded("c", "default", "stride", 100, 40, (), is_observed=False)
    yield events.SummaryEnded("c", "default", "openai", "m", "made", 1, 100, 90, 10, 3.0)
    yield events.SizeRefused("r", "openai", "overflow", 100, helped=False)
    yield events.ViewRefused("r", "openai", helped=True)
    yield events.PromptTruncated("c", "openai", 100, 50, is_repeated=False)
    yield events.LoopLagged(0.01)
    yield replace(TURN, refetches=1)


def happening(metrics: Metrics) -> Metrics:
    for event in everything():
        metrics(event)
    metrics.listener_errors.add("log")
    metrics.log_lines_dropped.add()
    metrics.telemetry_dropped.add()
    metrics.activity_dropped.add()
    return metrics


def test_the_page_of_metrics_is_good():
    page = happening(Metrics()).render_page().decode()
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=page, capture_output=True, text=True, check=False)
    # It takes "summaries" in the name of a metric for its type.
    assert [line for line in done.stderr.splitlines() if "should not include type 'summary'" not in line] == []
    assert not done.stdout


@asynccontextmanager
async def prometheus(place: Path, origin: str):
    """The shipped configuration, but for where the proxy is, how often it is asked, and where the rules are."""
    found = yaml.safe_load(CONFIG.read_text())
    (scrape,) = found["scrape_configs"]
    assert scrape.pop("dns_sd_configs")
    scrape |= {"scrape_interval": "200ms", "static_configs": [{"targets": [urllib.parse.urlsplit(origin).netloc]}]}
    (place / "prometheus.yaml").write_text(yaml.safe_dump({**found, "rule_files": [str(ALERTS)]}))
    port = free_port()
    command = [PROMETHEUS, f"--web.listen-address=127.0.0.1:{port}", f"--config.file={place}/prometheus.yaml"]
    with (place / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, f"--storage.tsdb.path={place}/data", stderr=log)
    try:
        yield lambda question: query_values(port, question)
    finally:
        process.terminate()
        await process.wait()


async def query_values(port: int, question: str) -> list[float]:
    """The values that come to a question; none while Prometheus is still starting."""

    def ask() -> list[float]:
        query = urllib.parse.urlencode({"query": question})
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=5) as reply:
                return [float(each["value"][1]) for each in json.load(reply)["data"]["result"]]
        except OSError:
            return []

    return await asyncio.to_thread(ask)


async def test_every_question_of_the_dashboard_finds_an_answer(tmp_path):
    """Of a page on which everything happens once more whenever it is read."""
    metrics = Metrics()

    def page(_request):
        return answer(happening(metrics).render_page(), headers=[("content-type", "text/plain; version=0.0.4")])

    async with Upstream(page) as proxy, prometheus(tmp_path, proxy.origin) as ask:
        await until(lambda: len(proxy.requests) >= 8)
        answers = {each: await ask(re.sub(r"\$__(rate_interval|range)", "1s", each)) for each in EXPRESSIONS}
    assert [question for question, values in answers.items() if not values or any(map(math.isnan, values))] == []
    grows = [each for each in answers if "workers" not in each and "inflight" not in each]
    assert [question for question in grows if not max(answers[question]) > 0] == []


def test_each_alert_goes_off_when_it_should_and_not_when_all_is_well():
    cases = Path(__file__).parent / "alerts.yaml"
    assert {rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]} == {
        case["name"] for case in yaml.safe_load(cases.read_text())["tests"]
    } - {"all is well"}
    done = subprocess.run([PROMTOOL, "test", "rules", cases], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
