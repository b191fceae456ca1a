"""The documentation site: every page is in its menu, no link is dead, and its search finds what people look for."""

import functools
import http.server
import json
import re
import subprocess
import sys
import threading

import pytest

from tests import ROOT
from tests.admin import install

WORDS = {
    "timeout": "Timeouts",
    "rate limit": "Rate limits and quotas",
    "disconnect": "Disconnects",
    "RBAC": "Access control (RBAC)",
    "quota": "Rate limits and quotas",
    "Claude": "claude-code",
}
"""Words of the trade, and the heading that must be among the first results for each."""


def test_every_page_is_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r": (\S+\.md)$", menu, re.MULTILINE)
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} | {"index.md", "CHANGELOG.md", "CONTRIBUTING.md"}
    assert sorted(listed) == sorted(pages)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, env={"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, check=False)
    assert built.returncode == 0, built.stderr.decode()  # strict: a dead link is an error
    return folder


@pytest.mark.slow
def test_the_site_asks_no_other_site_for_anything(site):
    asked = [
        link
        for page in site.glob("*.html")
        for link in re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', page.read_text("utf-8"))
    ]
    assert asked == []


@pytest.mark.slow
def test_the_index_has_a_heading_for_each_word(site):
    sections = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
    titles = {re.sub("<[^>]+>", "", section["title"]) for section in sections}
    assert set(WORDS.values()) <= titles


@pytest.mark.slow
@pytest.mark.skipif(not install.is_installed(), reason="python -m tests.admin.install puts a browser's driver here")
def test_a_reader_finds_the_words_of_the_trade(site):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=site)
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        script = ROOT / "tests" / "admin" / "site_search.py"
        command = [str(install.PYTHON), str(script), url, str(site), *WORDS]
        seen = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=120).stdout)
        server.shutdown()
    assert seen["foreign"] == []
    for word, heading in WORDS.items():
        titles = [title for title, _ in seen["found"][word]]
        assert heading in titles, (word, titles)
