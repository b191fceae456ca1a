"""A release as its users get it: the wheel that is built, in an environment of its own, and never the checkout."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from proxy import __version__
from tests import ROOT
from tests.release.installed import install, run, running_command
from tests.support import http_client
from tests.support.agent import reading
from tests.support.messages import body
from tests.support.proxy_client import request
from tests.support.scripted_upstream import Upstream, text_turn

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PACKAGES_MAX, MEGABYTES_MAX = 26, 80
IDLE_MEGABYTES_MAX = 80


def copy_checkout(place):
    """The tracked files of the checkout, as a clone has them; what is only built or written stays behind."""
    files = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", place=ROOT).split("\0")
    for name in filter(None, files):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, place / name)  # with another time
    shutil.copymode(ROOT / "deploy" / "release.sh", place / "deploy" / "release.sh")
    return place


def build_release(place, **environment):
    command = ["env", "SOURCE_DATE_EPOCH=1763769600", *(f"{name}={value}" for name, value in environment.items())]
    run(*command, f"PYTHON={sys.executable}", "deploy/release.sh", place=copy_checkout(place))
    return place / "dist"


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    return build_release(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def wheel(dist):
    return dist / f"compaction_proxy-{__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def program(wheel, tmp_path_factory):
    """The command, installed from the wheel."""
    return install(wheel, tmp_path_factory.mktemp("installed")) / "compaction-proxy"


def test_the_same_sources_give_the_same_bytes(dist, tmp_path):
    other = build_release(tmp_path, WITHOUT_SBOM=1)
    names = [f"compaction_proxy-{__version__}-py3-none-any.whl", f"compaction_proxy-{__version__}.tar.gz"]
    assert [(dist / name).read_bytes() == (other / name).read_bytes() for name in names] == [True, True]
    run("sha256sum", "--check", "--strict", "SHA256SUMS", place=dist)


def test_the_sbom_lists_every_package_of_the_lock_with_its_licence(dist):
    bom = json.loads((dist / "compaction-proxy.cdx.json").read_text())
    listed = {re.sub(r"[-_.]+", "-", part["name"]).lower(): part for part in bom["components"]}
    locked = re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert [(name, version) for name, version in locked if listed[name]["version"] != version] == []
    assert "/tmp" not in json.dumps(bom)
    without = {name for name, part in listed.items() if not part.get("licenses")}
    assert without <= {"protobuf", "tiktoken"}, "what these write in their metadata is no name of a licence"


def test_it_is_small(program):
    site = next(program.parent.parent.glob("lib/python*/site-packages"))
    own = [path for path in site.glob("*.dist-info") if not path.name.startswith(("pip-", "setuptools-", "compaction"))]
    assert len(own) <= PACKAGES_MAX
    tools = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
    files = (path for path in site.rglob("*") if path.relative_to(site).parts[0].partition("-")[0] not in tools)
    size = sum(path.stat().st_size for path in files if path.is_file() and path.suffix != ".pyc")
    assert size <= MEGABYTES_MAX * 1_000_000


def resident_megabytes(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1_000_000


def cpu_seconds(pid):
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


async def compact_one(origin, up):
    sent = request(headers={"authorization": "Bearer sk-a"}, body=body(reading(120, size=3_000)))
    reply = await http_client.send(origin, sent)
    assert (reply.status, reply.head.all("x-compaction")) == (200, [b"created"])
    assert len(up.requests[-1].body) < len(sent) / 2


async def test_it_compacts_a_request(program, tmp_path):
    async with (
        Upstream(text_turn("Go on.")) as up,
        running_command([program], "--upstream", up.url, place=tmp_path) as (origin, seconds, process),
    ):
        memory, work = resident_megabytes(process.pid), cpu_seconds(process.pid)
        await compact_one(origin, up)
        page = await http_client.send(origin, request("GET", "/admin/", {"host": "localhost"}), method="GET")
        assert (page.status, b"admin.key" in page.body.data) == (401, True), "the pages are in the wheel"
    print(f"ready after {seconds:.2f} s ({work:.2f} s of work), {memory:.0f} MB")  # noqa: T201
    assert memory <= IDLE_MEGABYTES_MAX  # how soon it is ready depends on the machine: bench/relay.py judges that


def test_the_demo_and_the_sample_are_in_it(program, tmp_path):
    output = run(program, "demo", "--fast", "--turns", "40", place=tmp_path)
    (listing,) = [line.split() for line in output.splitlines() if "transcripts list" in line]
    assert listing[0] == str(program), "the command as it was invoked"
    assert "CONVERSATION" in run(*listing, place=tmp_path)
    assert "default" in run(program, "replay", "--sample", "--part", "1/3", place=tmp_path)
    assert not (tmp_path / "state").exists(), "the demo writes nothing into the folder where one stands"


@pytest.mark.parametrize("tool", ["uv", "pipx"])
async def test_it_runs_by_tools_that_bring_their_own_environment(wheel, tool, tmp_path):
    (tmp_path / "tools").mkdir()
    found = install(tool, tmp_path / "tools", "--no-compile")
    if tool == "uv":
        own = ["--cache-dir", tmp_path / "cache", "--no-config"]
        command = [found / "uvx", *own, "--python", sys.executable, "--from", wheel, "compaction-proxy"]
    else:
        command = [found / "pipx", "run", "--python", sys.executable, "--spec", wheel, "compaction-proxy"]
    assert run(*command, "--version", place=tmp_path) == f"compaction-proxy {__version__}\n"
    async with (
        Upstream(text_turn("Go on.")) as up,
        running_command(command, "--upstream", up.url, place=tmp_path) as (origin, _, _),
    ):
        await compact_one(origin, up)
