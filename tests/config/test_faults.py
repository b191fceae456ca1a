"""What `check` says of a configuration that is wrong, or valid and probably a mistake.

Each golden file has configurations, some with variables (`$ NAME=value`), and below each one what is said of it.
"""

import re
import traceback
from pathlib import Path

import pytest

from proxy.config.faults import InvalidConfig
from proxy.config.loading import load
from proxy.config.warnings import find_warnings
from tests.support.written_steps import assert_case, read_blocks

GOLDEN = Path(__file__).parent / "golden"
SAID = "\n=> "
SECRETS = {
    "KEY": "sk-canary",
    "WEAK": "canary" * 4,
    "MANUAL": "changeme-0123456789-canary",
    "BROKEN": "sk-canary\nsecond line",
    "EMPTY": " \n",
}
"""Environment variables. Nothing that is said holds the word `canary`, though configurations have it in many places."""


def check(text, folder):
    """The configuration with what is said of it: each fault, or each warning if there is no fault."""
    file = folder / "proxy.yaml"
    lines = text.split("\n")
    variables = dict(line[2:].split("=", 1) for line in lines if line.startswith("$ "))
    file.write_text("".join(f"{line}\n" for line in lines if not line.startswith("$ ")))
    try:
        config = load(file, SECRETS | variables).config
    except InvalidConfig as refused:
        said = [str(fault).removeprefix(f"{folder}/") for fault in refused.faults]
        report = "".join(traceback.format_exception(refused)) + repr(refused.faults)
    else:
        warnings = find_warnings(config, lambda model: model == "gpt-known")
        said = report = [f"warning: {path}: {why}" for path, why in warnings] or ["good"]
    assert "canary" not in "".join(report)
    assert not re.search(r"(Input|String|Field|Value|Keys|Unable) ", "".join(said)), "pydantic's own sentence"
    return SAID.join([text, *said])


def find_text(case):
    return case.partition(SAID)[0]


CASES = [(file.stem, case) for file in sorted(GOLDEN.glob("*.txt")) for case in read_blocks(file)]


@pytest.mark.parametrize(("subject", "case"), CASES, ids=find_text)
def test_a_configuration_is_judged_as_its_golden_file_shows(tmp_path, subject, case):
    assert_case(GOLDEN, case, check(find_text(case), tmp_path))
