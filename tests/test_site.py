"""The documentation site: every page is in its menu, no link is dead, and nothing is fetched from elsewhere."""

import re
import subprocess
import sys

import pytest

from tests import ROOT


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
