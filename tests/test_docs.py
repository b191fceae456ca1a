"""The documents say what the code does: every setting, command, header, metric and error has its word in them."""

import argparse
import ast
import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from importlib.metadata import distribution
from itertools import pairwise
from typing import get_args

import pytest
import yaml
from packaging.requirements import Requirement
from pydantic import ValidationError

from proxy import __version__
from proxy.cli import COMMANDS
from proxy.config.defaults import as_yaml
from proxy.config.policies import SMALL_WINDOW_TOKENS
from proxy.config.settings import Config
from proxy.foundation import errors
from proxy.shorten.block import Reason
from proxy.shorten.clear_results import ClipOutput
from proxy.shorten.rules import AUTO_TRIGGER, AUTO_TRIGGER_TOKENS, DEAR_TRIGGER_TOKENS
from proxy.shorten.steps import STEPS
from proxy.store.activity_log import DAY_SECONDS, RetentionLimits
from proxy.telemetry.metrics import PREFIX, Metrics
from proxy.wire.http_head import ApiPath
from tests import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
# Text in code marks: there a name is the name, not a word of English.
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


def test_every_reason_is_explained_in_the_table_of_reasons():
    page = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    _, _, table = page.partition("| reason | meaning |\n")
    cells = [line.split("|")[1] for line in table.partition("\n\n")[0].splitlines()[1:]]
    explained = {reason for cell in cells for reason in re.findall(r"`([\w-]+)`", cell)}
    assert explained | {"", "signature"} == set(get_args(Reason))  # a block's own reason, shown as `reasoning-removed`


def rows_of_policies(heading):
    """The rows of a table of the page on policies, as lists of cells."""
    page = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    table = page.partition(heading)[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_the_defaults_of_steps_are_those_of_the_code():
    wrong, compared = [], 0
    for name, _, settings in rows_of_policies("| step | what it does "):
        step = STEPS[name.strip("`")]()
        for setting, value in re.findall(r"`(\w+)`[^`()]*\((false|true|[\d,.]*\d)", settings):
            compared += 1
            if yaml.safe_load(value.replace(",", "")) != getattr(step, setting):
                wrong.append((name, setting, value, getattr(step, setting)))
    assert wrong == []
    assert compared == 20


def numbers_of_policies():
    """The numbers that the table of policies must name, by policy, in the order of its sentences."""

    def find(name):
        return Config().policy(name).rules(name)

    default, thrifty, jcli, blocks = map(find, ("default", "thrifty", "j-cli", "blocks"))
    (clear,) = jcli.when_full
    return {
        "default": [AUTO_TRIGGER_TOKENS, AUTO_TRIGGER, default.target, default.keep.tokens],
        "thrifty": [thrifty.trigger_tokens, thrifty.target],
        "small-window": [SMALL_WINDOW_TOKENS],
        "j-cli": [clear.keep_recent],
        "middleware": [find("middleware").trigger_tokens + 1],
        "jp": [find("jp").trigger],
        "blocks": [blocks.trigger, blocks.keep.first, blocks.keep.groups],
    }


NUMBER_WORDS = {"a quarter": "0.25", "three quarters": "0.75", "85 %": "0.85", "two": "2", "ten": "10"}


@pytest.mark.parametrize(("policy", "numbers"), numbers_of_policies().items())
def test_the_numbers_of_a_policy_are_those_of_the_code(policy, numbers):
    (text,) = [text for name, text in rows_of_policies("| policy | what it is ") if name == f"`{policy}`"]
    for word, digits in NUMBER_WORDS.items():
        text = re.sub(rf"\b{word}(?!\w)", digits, text)
    assert [float(number.replace(",", "")) for number in re.findall(r"\d[\d,.]*", text)] == numbers


def test_the_automatic_trigger_is_that_of_the_code():
    page = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    text = page.partition("**`trigger: auto`**")[2].partition("`explain")[0]
    told = [float(number.replace(",", "")) for number in re.findall(r"(?<!-)\d[\d,.]*", text)]
    assert told == [AUTO_TRIGGER, AUTO_TRIGGER_TOKENS, DEAR_TRIGGER_TOKENS]


def parsers():
    commands = argparse.ArgumentParser().add_subparsers()
    for module in dict.fromkeys(COMMANDS.values()):
        import_module(module).add(commands)
    return commands.choices


def test_every_command_and_option_is_explained():
    for command, parser in parsers().items():
        shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]
        options = [option for action in shown for option in action.option_strings]
        unnamed = [name for name in (command, *options) if name not in ("-h", "--help") and not is_named(name)]
        assert unnamed == [], command


@cache
def literals():
    """All texts in the code."""
    return {
        node.value
        for path in (ROOT / "proxy").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_every_header_of_the_proxys_own_is_explained():
    headers = {text for text in literals() if re.fullmatch(r"x-(compaction|conversation|request)[a-z-]*", text)}
    assert len(headers) > 10
    assert [header for header in headers if not is_named(header)] == []


def test_every_error_is_explained_beside_its_status():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ProxyError)]
    for status, code in sorted({(kind.status, kind.code) for kind in kinds}):
        rows = [line for line in TEXT.splitlines() if line.startswith(f"| {status} |")]
        assert [row for row in rows if f"`{code}`" in row], (status, code)


def test_every_metric_is_explained_and_every_one_that_is_named_exists():
    series = {PREFIX + series.name for series in Metrics().series}
    assert [name for name in series if not is_named(name)] == []
    named = {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(rf"{PREFIX}[a-z_]+", TEXT)}
    assert named - series == set()


def test_every_header_that_is_named_exists():
    named = set(re.findall(r"\bx-compaction(?:-[a-z]+)*", TEXT))
    assert named - literals() == set()


def rows_below(page, heading):
    """The first cells of a table, as the names in code marks that they hold."""
    table = (ROOT / "docs" / page).read_text(encoding="utf-8").partition(heading)[2].partition("\n\n")[2]
    rows = re.findall(r"^\| (.*?) \|", table.partition("\n\n")[0], re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_every_reason_and_outcome_that_is_named_exists():
    reasons = rows_below("policies.md", "`x-compaction-reason` | why, see the next table |")
    outcomes = rows_below("summaries.md", "## When it fails")
    assert len(reasons) >= 20
    assert len(outcomes) >= 12
    assert [name for name in (*reasons, *outcomes) if name not in literals()] == []


def test_every_line_of_the_log_that_is_named_exists():
    section = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    table = section.partition("\n## Log\n")[2].partition("\nA thread writes")[0]
    assert set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", table)) - literals() == set()


def command_lines():
    """Each `compaction-proxy COMMAND ...` in code marks, without comments and what a shell does with it."""
    for mark in NAMED:
        for line in mark.strip("`").replace("\\\n", " ").splitlines():
            found = re.match(r"\s*\$? ?compaction-proxy ([a-z]+\b.*)", line)
            if found:
                yield re.split(r"\s{2,}|\s[>|&#]", found[1])[0]


def options_of(parser):
    found = set()
    for action in parser._actions:
        found |= set(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            found |= {option for each in action.choices.values() for option in options_of(each)}
    return found


def test_every_command_line_that_is_shown_can_be_typed():
    known = {name: options_of(parser) for name, parser in parsers().items()}
    lines = list(command_lines())
    assert len(lines) > 40
    for line in lines:
        command, *_ = line.split()
        assert command in known, line
        assert set(re.findall(r"(?<!\S)--[a-z-]+", line)) <= known[command], line


def test_every_example_of_a_configuration_is_valid():
    """But for secrets, files and modules that only the reader has."""
    examples = 0
    for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL):
        values = yaml.safe_load(block)
        if set(values) <= set(Config.model_fields):
            examples += 1
            try:
                Config.model_validate(values, context={})
            except ValidationError as faults:
                found = [fault["msg"] for fault in faults.errors()]
                assert [each for each in found if not re.search(r"is empty|no such file|on PYTHONPATH", each)] == [], (
                    block
                )
    assert examples > 15


def test_every_file_and_test_that_is_named_exists():
    files = set(re.findall(r"`((?:tests|proxy|bench|deploy|docs)/[\w./-]+)`", TEXT))
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_each_timeout_that_is_told_is_that_of_the_code():
    table = (
        (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").partition("## Timeouts")[2].partition("## ")[0]
    )
    config = Config()
    groups = {
        "listen": config.listen,
        "upstreams": config.upstreams[0],
        "policies.NAME.summary": config.policy("default").summary,
    }
    told = re.findall(rf"`({'|'.join(groups)})\.(\w+)` \| ([\d,]+) s \|", table)
    assert len(told) == 7
    assert [row for row in told if f"{getattr(groups[row[0]], row[1]):,.0f}" != row[2]] == []


def collect_packages(name, found):
    """A package with all that it brings, for a machine like this one and without extras."""
    if name not in found:
        found.add(name)
        for line in distribution(name).requires or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                collect_packages(re.sub(r"[-_.]+", "-", needed.name).lower(), found)
    return found


def test_it_brings_no_more_than_twenty_eight_packages():
    packages = collect_packages("compaction-proxy", set()) - {"compaction-proxy"}
    assert len(packages) <= 28, sorted(packages)


def test_the_changelog_knows_this_version():
    page = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## .*?(\d+\.\d+\.\d+)(?! \(unreleased\))", page, re.MULTILINE)
    assert released[0] == __version__


def read_pages():
    folders = [ROOT, *(ROOT / name for name in ("docs", "bench", "tests"))]
    return sorted(page for folder in folders for page in folder.glob("*.md"))


def anchors(page):
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", read_pages(), ids=lambda page: str(page.relative_to(ROOT)))
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


@pytest.mark.parametrize(("folder", "command"), [(".", "make "), ("bench", "make -C bench ")])
def test_every_make_target_in_the_docs_exists(folder, command):
    targets = re.findall(r"^([a-z-]+):", (ROOT / folder / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    pattern = rf"`?{command}([a-z-]+)(?=[`\s]|$)"
    spoken = {word for page in read_pages() for word in re.findall(pattern, _code_of(page)) if word != "-"}
    assert spoken - {*targets, "-"} == set()


def _code_of(page):
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", page.read_text(encoding="utf-8"), re.DOTALL))


README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_says_the_defaults_of_the_code():
    config = Config()
    policy = config.policy("default")
    rules = policy.rules("default")
    clip = {name: value for step in policy.always for name, value in step.items()}["clip_output"]
    for claim in (
        f"Over {AUTO_TRIGGER_TOKENS:,} tokens, or {AUTO_TRIGGER:.0%} of a smaller usable window".replace("%", " %"),
        f"down to {rules.target:.0%} of that".replace("%", " %"),
        f"the newest {rules.keep.tokens:,} tokens stay",
        f"once {rules.fold_cold_at_least:,} tokens can be saved",
        f"{ClipOutput(**clip).over:,} bytes",
        f"{config.transcripts.days:.0f} days after the last message, {config.transcripts.mib // 1024} GiB in all",
        f"{config.state.days:.0f} days after the last use, {config.state.mib} MiB in all",
        f"{RetentionLimits().seconds / DAY_SECONDS:.0f} days, {RetentionLimits().requests:,} requests",
        f"default: `{config.state.dir}`",
        f"listens on {config.listen.host}:{config.listen.port}",
    ):
        assert claim in README, claim


def test_the_readme_lists_the_apis_that_are_compacted():
    rows = [line for line in README.splitlines() if "**compacted**" in line]
    named = {path for row in rows for path in re.findall(r"/v1(/[a-z_/]+)", row)}
    assert named == set(ApiPath) - {ApiPath.COMPACT}


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
