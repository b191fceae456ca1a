"""What serves loads nothing of the lab: seen in the modules that a real worker imported."""

import re

import pytest

from tests.support.admin_client import AdminClient
from tests.support.proxy_client import ask, chat
from tests.support.running_proxy import serving
from tests.support.scripted_upstream import Upstream, echo

IMPORTED = re.compile(r"^import time: +\d+ \| +\d+ \| +(\S+)$", re.MULTILINE)


@pytest.mark.seconds
@pytest.mark.parametrize("workers", [pytest.param("1", marks=pytest.mark.slow), "2"])
async def test_a_worker_does_not_load_the_lab(tmp_path, workers):
    environment = {"PYTHONPROFILEIMPORTTIME": "1"}  # Python writes down each module that it imports
    async with (
        Upstream(echo) as up,
        serving(up.url, "--workers", workers, place=tmp_path, environment=environment) as proxy,
    ):
        await ask(proxy, chat())
        await AdminClient(proxy).read("/overview")
    loaded = set(IMPORTED.findall(proxy.output))
    assert {"proxy.server.worker", "proxy.admin.teams"} <= loaded
    assert sorted(module for module in loaded if module.startswith("proxy.lab")) == []
