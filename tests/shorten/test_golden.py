"""Each way to shorten on small histories: what goes in, and to the byte what comes out.

A file is named after its step and what it shows. Its first line has the step and its settings, then come the
messages, one a line: first those that may be shortened, then those that are kept. Below the rule is what the step
makes of the first: what stays or goes by its number, what is new byte for byte and then as an agent reads it.
"""

import json
from pathlib import Path

import pytest

from proxy.history.messages import Message, list_argument_texts
from proxy.history.observations import OBSERVATIONS, find_newest_words
from proxy.history.pins import find_fixed
from proxy.history.request import Known
from proxy.shorten.pipeline import Draft, run
from proxy.shorten.steps import STEPS, step_from_json
from tests.support.messages import mark_output, parse_request
from tests.support.written_steps import assert_file

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.glob("*.txt"))
RULE, KEPT, TOOLS = "----------", "... kept", "tools "


def apply_step(given: str) -> str:
    """What the step makes of the messages above the rule."""
    first, *rows = given.strip("\n").split("\n")
    name, settings = first.split(" ", 1)
    tools = rows.pop(0)[len(TOOLS) :].encode() if rows[0].startswith(TOOLS) else None
    cut = rows.index(KEPT)
    source = '{"messages": [' + ", ".join(rows[:cut] + rows[cut + 1 :]) + "]}"
    body = mark_output(parse_request(source.encode()).body, OBSERVATIONS)
    fixed = find_fixed(body, (), find_newest_words(Known(body)))
    draft = Draft((), body[:cut], body[cut:], tools=tools, fixed=fixed, origin=body)
    left, (report,) = run([step_from_json(name, json.loads(settings))], draft)
    assert not report.refused
    text = [f"{name}: {report.messages} messages, {report.saved} tokens"]
    offered = [left.tools.decode()] if left.tools else []
    gone = [old for old in body[:cut] if not any(new.start <= old.start < new.stop for new in left.middle)]
    shown = sorted((*left.middle, *gone), key=lambda message: message.start)
    return (
        "\n".join([*text, *offered, *(row for message in shown for row in _format_message(message, body, gone))]) + "\n"
    )


def _format_message(message: Message, came: tuple[Message, ...], gone: list[Message]) -> list[str]:
    if message in came:
        return [f"#{message.start} {'goes' if message in gone else 'stays'}"]
    texts = [message.text, *(text for call in message.calls for text in list_argument_texts(call))]
    read = "\n".join(filter(None, texts))
    return [f"#{message.start} {message.raw.decode()}", *(f"   | {line}".rstrip() for line in read.split("\n"))]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_step_does_to_the_byte_what_its_golden_file_shows(file):
    given, _ = file.read_text(encoding="utf-8").split(f"{RULE}\n")
    assert_file(file, f"{given}{RULE}\n{apply_step(given)}")


def test_every_step_has_a_golden_file():
    assert set(STEPS) == {file.name.split(".")[0] for file in FILES}
