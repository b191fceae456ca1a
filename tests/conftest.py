"""What every test may ask for: a scripted upstream, and the real proxy in front of it."""

import gc
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import cache
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.scheduler import LoadGroupScheduling

from tests import ROOT
from tests.support import written_steps
from tests.support.parent_death import die_with_parent
from tests.support.process_template import close_template
from tests.support.running_proxy import Proxy, serving
from tests.support.scripted_upstream import Upstream

# A busy machine is no finding. CI asks for more examples with --hypothesis-profile=ci, the same ones each time: what a
# change broke is distinct from what chance found. Chance looks for more in `make soak` (profile `search`).
settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1_000)
settings.register_profile("default", deadline=None, max_examples=8)
settings.load_profile("default")


@cache
def _group_of(file: str) -> str:
    found = re.search(r'xdist_group\("([\w-]+)"\)', (ROOT / file).read_text())
    return found[1] if found else ""


class GroupScheduling(LoadGroupScheduling):
    """Keeps a file, and the files of an `xdist_group`, on one worker: what their tests share is made once.

    xdist 3.8 does not find the marks under pytest 9.2, and with thousands of groups it mostly counts them.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return _group_of(file) or file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return GroupScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_addoption(parser):
    parser.addoption("--golden", action="store_true", help="write the golden files of these tests anew")


def pytest_configure(config):
    written_steps.is_writing = config.getoption("golden")
    if hasattr(config, "workerinput"):  # a worker of xdist would go on with its test if the run is killed
        die_with_parent()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Files whose tests may take longest begin first: at the end all workers would wait for the one that has them."""
    longest: dict[Path, float] = defaultdict(float)
    for item in items:
        mark = item.get_closest_marker("timeout")
        longest[item.path] = max(longest[item.path], mark.args[0] if mark else 0)
    items.sort(key=lambda item: -longest[item.path])


def pytest_collection_finish(session):
    gc.freeze()  # nine thousand tests stay until the end: no collection needs to look at them


Serve = Callable[..., AbstractAsyncContextManager[Proxy]]


@pytest.fixture(scope="session")
def proxy_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that any proxy of this run writes is below this directory."""
    return tmp_path_factory.mktemp("proxies")


@pytest.fixture(scope="session")
def serve(proxy_files: Path) -> Serve:
    """`serve(up.url, "--workers", "2", config={…})` runs a proxy for as long as the block lasts."""
    numbers = count()

    def start(upstream: str | None, *arguments: str, **more: object) -> AbstractAsyncContextManager[Proxy]:
        place = proxy_files / str(next(numbers))
        place.mkdir()
        return serving(upstream, *arguments, place=place, **more)

    return start


@pytest.fixture(scope="session", autouse=True)
def _process_template() -> Iterator[None]:
    """What proxies were forked from ends with the tests."""
    yield
    close_template()


@pytest.fixture
async def up() -> AsyncIterator[Upstream]:
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def proxy(serve: Serve, up: Upstream) -> AsyncIterator[Proxy]:
    """A proxy with no settings in front of `up`."""
    async with serve(up.url) as running:
        yield running
