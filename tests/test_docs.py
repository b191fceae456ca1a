"""The documents say what the code does: every setting, command, header, metric and error has its word in them."""

import argparse
import ast
import re
from importlib import import_module
from importlib.metadata import distribution
from itertools import pairwise

import pytest
from packaging.requirements import Requirement

from proxy import __version__, errors
from proxy.cli import COMMANDS
from proxy.config import as_yaml
from proxy.telemetry.metrics import PREFIX, Metrics
from tests import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
# What stands in code marks: there a name is the name, not a word of English.
NAMED = re.findall(r"```.*?```|`[^`\n]+`", TEXT, re.DOTALL)


def is_named(name):
    return any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", mark) for mark in NAMED)


def test_the_shipped_configuration_is_what_the_code_says():
    assert (ROOT / "proxy.yaml").read_text(encoding="utf-8") == as_yaml(), "write it anew with `make config`"


def test_every_setting_is_described_above_it():
    lines = [line for line in (ROOT / "proxy.yaml").read_text(encoding="utf-8").splitlines() if line.strip()]
    settings = [(above.strip(), line) for above, line in pairwise(lines) if re.match(r"\s*(- )?[a-z_]+:", line)]
    assert len(settings) > 100
    bare = [line for above, line in settings if not above.startswith("#")]
    assert bare == ["upstreams:", "policies:"], "whose entries are described"


def parsers():
    commands = argparse.ArgumentParser().add_subparsers()
    for module in dict.fromkeys(COMMANDS.values()):
        import_module(module).add(commands)
    return commands.choices


@pytest.mark.parametrize("command", list(parsers()))
def test_every_command_and_option_is_explained(command):
    options = [option for action in parsers()[command]._actions for option in action.option_strings]
    assert [name for name in (command, *options) if name not in ("-h", "--help") and not is_named(name)] == []


def headers():
    """The headers that the code speaks of, of those that are the proxy's own."""
    literals = {
        node.value
        for path in (ROOT / "proxy").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return sorted(text for text in literals if re.fullmatch(r"x-(compaction|conversation|request)[a-z-]*", text))


@pytest.mark.parametrize("header", headers())
def test_every_header_is_explained(header):
    assert is_named(header)


@pytest.mark.parametrize("name", [PREFIX + series.name for series in Metrics().series])
def test_every_metric_is_explained(name):
    assert is_named(name)


def codes():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ProxyError)]
    return sorted({(kind.status, kind.code) for kind in kinds})


@pytest.mark.parametrize(("status", "code"), codes())
def test_every_error_is_explained_beside_its_status(status, code):
    rows = [line for line in TEXT.splitlines() if line.startswith(f"| {status} |")]
    assert [row for row in rows if f"`{code}`" in row]


# --- promises --------------------------------------------------------------------------------------------------------


def brought(name, found):
    """A package with all that it brings, for a machine like this one and without extras."""
    if name not in found:
        found.add(name)
        for line in distribution(name).requires or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                brought(re.sub(r"[-_.]+", "-", needed.name).lower(), found)
    return found


def test_it_brings_no_more_than_twenty_six_packages():
    packages = brought("compaction-proxy", set()) - {"compaction-proxy"}
    assert len(packages) <= 26, sorted(packages)


def test_the_changelog_knows_this_version():
    headings = re.findall(r"^## .*?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == __version__


# --- links and commands ----------------------------------------------------------------------------------------------


def written():
    folders = [ROOT, *(ROOT / name for name in ("docs", "docs/decisions", "bench", "tests"))]
    return sorted(page for folder in folders for page in folder.glob("*.md"))


def anchors(page):
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", written(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_within_the_project_leads_somewhere(page):
    links = re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", page.read_text(encoding="utf-8"))
    for link in links:
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def linked_pages(page):
    found = re.findall(r"\]\((?!https?:|mailto:)([^)#\s]+\.md)[^)]*\)", page.read_text(encoding="utf-8"))
    return {(page.parent / link).resolve() for link in found}


def test_every_page_can_be_reached_from_the_readme_in_two_steps():
    first = linked_pages(ROOT / "README.md")
    second = {target for page in first for target in linked_pages(page)}
    pages = {page.resolve() for page in (ROOT / "docs").rglob("*.md")}
    assert {str(page.relative_to(ROOT)) for page in pages - first - second} == set()


def test_every_make_target_that_is_spoken_of_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    spoken = {word for page in written() for word in re.findall(r"`?make ([a-z-]+)(?=[`\s]|$)", _code_of(page))}
    assert spoken - targets == set()


def _code_of(page):
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", page.read_text(encoding="utf-8"), re.DOTALL))


def test_the_readme_begins_with_how_to_use_it():
    beginning = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:30])
    for word in ("make run", "OPENAI_BASE_URL", "OPENAI_UPSTREAM"):
        assert word in beginning
