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
from proxy.config import Config, as_yaml
from proxy.lab.replay import sample
from proxy.store.activity_log import DAY_SECONDS, RetentionLimits
from proxy.telemetry.metrics import PREFIX, Metrics
from proxy.wire import http
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


# --- claims of the README --------------------------------------------------------------------------------------------

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_says_the_defaults_of_the_code():
    config = Config()
    policy = config.policy("default")
    clip = {name: value for step in policy.always for name, value in step.items()}["clip_output"]
    for claim in (
        f"{policy.clear_at_least:,} tokens",
        f"({policy.clear_cold_at_least:,} once the provider's cache has expired)",
        f"Over {policy.trigger:.0%}".replace("%", " %"),
        f"{clip.get('least_bytes', 20_000):,} bytes",
        f"{config.transcripts.days:.0f} days after the last message, {config.transcripts.mib // 1024} GiB in all",
        f"{config.state.days:.0f} days after the last use, {config.state.mib} MiB in all",
        f"{RetentionLimits().seconds / DAY_SECONDS:.0f} days, {RetentionLimits().requests:,} requests",
        f"default: `{config.state.dir}`",
        f"listens on {config.listen.host}:{config.listen.port}",
    ):
        assert claim in README, claim


def test_the_readme_lists_the_apis_that_are_compacted():
    listed = set(re.findall(r"`(?:POST )?/v1(/[a-z_/]+)`[^|]*\| \*\*compacted\*\*", README))
    listed |= set(re.findall(r"`/v1(/messages/count_tokens)` \| \*\*compacted", README))
    assert listed >= {http.CHAT, http.RESPONSES, http.MESSAGES}
    rows = [line for line in README.splitlines() if "**compacted**" in line]
    named = {path for row in rows for path in re.findall(r"/v1(/[a-z_/]+)", row)}
    assert named == set(http.COMPACTED)


def test_the_readme_counts_the_agents_of_its_table():
    table = README.partition("<!-- agents")[2]
    results = re.findall(r"^\| \S+ \| [^|]+ \|[^|]+\|[^|]+\| (yes|no) / (yes|no) \|", table, re.MULTILINE)
    (claim,) = re.findall(
        r"^\| (\d+) agents, unmodified.*\| all finish with the proxy, (\d+) without \|", README, re.MULTILINE
    )
    assert {with_proxy for _, with_proxy in results} == {"yes"}
    assert claim == (str(len(results)), str(sum(without == "yes" for without, _ in results)))


def test_the_example_of_the_readme_is_what_the_code_makes():
    """Its second half: `docs/what-the-model-reads.md` is written by the code, and another test compares it."""
    before, after = re.findall(r"```\n(.*?)```", README.partition("## What the model sees")[2], re.DOTALL)[:2]
    made = (ROOT / "docs" / "what-the-model-reads.md").read_text(encoding="utf-8")
    shown = after.replace("gaps.\n Call", "gaps. Call").splitlines()
    assert [line for line in shown if line not in made.splitlines() and not line.startswith("        (")] == []
    originals = "\n".join(
        message["content"]
        for conversation in sample.conversations()
        for message in conversation.messages
        if message["role"] == "tool" and isinstance(message["content"], str)
    )
    lines = before.splitlines()
    assert "\n".join(lines[:-1]) in originals


def test_the_readme_is_read_in_a_few_minutes():
    prose = re.sub(r"```.*?```", "", README.partition("## Measured")[0], flags=re.DOTALL)
    assert len(prose.split()) <= 1_000


FIRST_PERSON = re.compile(r"\b(we|us|our|ours|my|I(?!/O))\b")
QUOTED = re.compile(r"```.*?```|`[^`\n]+`|\"[^\"\n]*\"|<[^>]+>|\[[^\]]*\]\([^)]*\)", re.DOTALL)
MEASUREMENTS = ("benchmarks.md", "bench-compact.md", "peers.md")
"""Pages that benchmarks write, in whose tables the proxy is called `ours`."""


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in MEASUREMENTS], ids=lambda page: page.name)
def test_no_page_speaks_in_the_first_person(page):
    """Programs, examples and quotations aside."""
    text = QUOTED.sub("", page.read_text(encoding="utf-8"))
    assert [found[0] for found in FIRST_PERSON.finditer(text)] == []
