"""Optional libraries: imported only where a setting needs them, and named where one is missing."""

import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement

from tests import ROOT

BLOCKED = (
    "import sys; sys.modules.update(dict.fromkeys({libraries!r})); from proxy.cli import main; "
    "sys.exit(main(sys.argv[1:]))"
)
LOADED = (
    "import sys, proxy.server.worker, proxy.cli.transcripts; from proxy.cli import main; main(sys.argv[1:]); "
    "print(sorted({'redis', 'obstore', 'proxy.telemetry.otel'} & sys.modules.keys()))"
)


def run(code, place, config, *arguments):
    file = place / "proxy.yaml"
    file.write_text(yaml.safe_dump(config))
    arguments = [str(each).replace("FILE", str(file)) for each in arguments]
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=place, capture_output=True, text=True, check=False, timeout=120
    )


EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - {"dev"}))
def test_the_image_has_every_optional_library(extra):
    locked = (ROOT / "requirements.lock").read_text()
    assert f"--extra {extra}" in locked.splitlines()[1]
    for requirement in map(Requirement, EXTRAS[extra]):
        version = re.search(rf"^{requirement.name}==(\S+)", locked, re.MULTILINE)
        assert version, requirement.name
        assert requirement.specifier.contains(version[1])


def test_the_image_is_built_by_locked_tools():
    locked = (ROOT / "requirements-build.lock").read_text()
    assert locked.count("==") == locked.count("--hash=sha256:") > 0
    (builder,) = map(Requirement, tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"])
    assert builder.specifier.contains(re.search(rf"^{builder.name}==(\S+)", locked, re.MULTILINE)[1])
    installs = re.findall(r"pip (?:install|wheel) [^\n]+", (ROOT / "Dockerfile").read_text())
    assert len(installs) == 4
    assert [line for line in installs if not {"--require-hashes", "--no-deps"} & set(line.split())] == []


def test_no_text_installs_an_extra_from_an_index_that_does_not_have_the_proxy():
    texts = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "proxy").rglob("*.py")]
    assert [path.name for path in texts if "compaction-proxy[" in path.read_text(encoding="utf-8")] == []


BUCKET = {"transcripts": {"dir": "s3://bucket"}}
STATE, COLLECTOR = {"state": {"url": "redis://127.0.0.1:1/0"}}, {"otel": {"endpoint": "http://127.0.0.1:4318"}}
CHECK, SERVE = ("check", "FILE"), ("serve", "--config", "FILE", "--port", "0", "--workers", "2")
MISSING = [
    ("redis", STATE, CHECK, "state.url: shared state", "redis"),
    ("redis", STATE, SERVE, "state.url: shared state", "redis"),
    ("obstore", BUCKET, SERVE, "transcripts.dir: an object store", "s3"),
    ("opentelemetry", COLLECTOR, CHECK, "otel.endpoint: OpenTelemetry", "otel"),
    ("google.protobuf", COLLECTOR, CHECK, "otel.endpoint: OpenTelemetry", "otel"),
]


@pytest.mark.seconds
@pytest.mark.parametrize(("library", "config", "command", "need", "extra"), MISSING)
def test_a_missing_library_is_named_in_one_line_with_what_to_install(  # noqa: PLR0917
    tmp_path, library, config, command, need, extra
):
    done = run(BLOCKED.format(libraries=[library]), tmp_path, config, *command)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"{need} needs an optional library: in the checkout, pip install '.[{extra}]', or" in line
    assert line.endswith(f"pipx install --force '.[{extra}]'")


def test_a_library_that_no_setting_asks_for_is_not_needed(tmp_path):
    libraries = ["redis", "obstore", "opentelemetry", "google.protobuf"]
    assert run(BLOCKED.format(libraries=libraries), tmp_path, {}, *CHECK).returncode == 0


@pytest.mark.seconds
@pytest.mark.parametrize(("config", "loaded"), [({}, "[]"), (STATE, "['redis']")])
def test_a_library_is_imported_where_a_setting_asks_for_it(tmp_path, config, loaded):
    assert run(LOADED, tmp_path, config, *CHECK).stdout.splitlines()[-1] == loaded
