"""Each way to shorten on small histories: what goes in, and to the byte what comes out.

A file is named after its step and what it shows. Its first line has the step and its settings, then come the
messages, one a line: first those that may be shortened, then those that are kept, and below the rule what the step
makes of the first. `PYTHONPATH=tests python tests/core/test_golden.py` writes that anew; read the difference.
"""

import json
from pathlib import Path

import pytest
from chat import parsed

from proxy.core.messages import observed
from proxy.core.pins import fixed
from proxy.core.pipeline import Draft, run
from proxy.core.rules import OBSERVATIONS
from proxy.core.steps import STEPS, thawed

GOLDEN = Path(__file__).parents[1] / "golden"
FILES = sorted(GOLDEN.glob("*.txt"))
RULE, KEPT, TOOLS = "----------", "... kept", "tools "


def shortened(given: str) -> str:
    """What the step makes of the messages above the rule."""
    first, *rows = given.strip("\n").split("\n")
    name, settings = first.split(" ", 1)
    tools = rows.pop(0)[len(TOOLS) :].encode() if rows[0].startswith(TOOLS) else None
    cut = rows.index(KEPT)
    source = '{"messages": [' + ", ".join(rows[:cut] + rows[cut + 1 :]) + "]}"
    body = observed(parsed(source.encode()).body, OBSERVATIONS)
    draft = Draft((), body[:cut], body[cut:], tools=tools, fixed=fixed(body, ()), origin=body)
    left, (report,) = run([thawed(name, json.loads(settings))], draft)
    assert not report.refused
    told = [f"{name}: {report.messages} messages, {report.saved} tokens"]
    return (
        "\n".join([*told, *([left.tools.decode()] if left.tools else []), *(each.raw.decode() for each in left.middle)])
        + "\n"
    )


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_step_does_to_the_byte_what_its_golden_file_shows(file):
    given, expected = file.read_text(encoding="utf-8").split(f"{RULE}\n")
    assert shortened(given) == expected


def test_every_step_has_a_golden_file():
    assert set(STEPS) == {file.name.split(".")[0] for file in FILES}


if __name__ == "__main__":
    for each in FILES:
        above = each.read_text(encoding="utf-8").split(f"{RULE}\n")[0]
        each.write_text(f"{above}{RULE}\n{shortened(above)}", encoding="utf-8")
