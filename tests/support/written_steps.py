"""Steps of an agent as golden files have them, a line for each call and each line of its result.

    $ cat a.py                      the command of a shell,
    Read {"path": "a.py"}           or a tool and its arguments;
    > def a(): pass                 its result: `ok` if it has none, `(a long log)` for twenty lines
    user: Go on.

A call may end with `(marked as an error)`, as APIs mark a result. What a test finds of the steps stands behind `= ` and
`| `. Cases are parted by empty lines; above them a line with `# ` says what they show.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from tests.support.messages import calls, user

MARKED = " (marked as an error)"
LONG_LOG = "a long log\n" * 20


def read_call(line: str) -> tuple[str, str]:
    """The tool and its arguments."""
    if line.startswith("$ "):
        return "Bash", json.dumps({"command": line[2:]})
    name, _, arguments = line.partition(" ")
    return name, json.loads(arguments) if arguments.startswith('"') else arguments


def read_result(lines: list[str]) -> str:
    if not lines:
        return "ok"
    text = "\n".join(line[2:] for line in lines)
    return LONG_LOG if text == "(a long log)" else text


def read_steps(lines: list[str]) -> Iterator[list[dict]]:
    """The messages of each step."""
    for place, line in enumerate(lines):
        if line.startswith("user: "):
            yield user(line.removeprefix("user: "))
        elif not line.startswith(">"):
            behind = (number for number in range(place + 1, len(lines)) if not lines[number].startswith(">"))
            out = read_result(lines[place + 1 : next(behind, len(lines))])
            asked, result = calls((*read_call(line.removesuffix(MARKED)), out))
            yield [asked, {**result, "is_error": True} if line.endswith(MARKED) else result]


def read_blocks(file: Path) -> list[str]:
    blocks = file.read_text(encoding="utf-8").strip("\n").split("\n\n")
    if not all(blocks):
        raise ValueError(f"{file} has no cases, or two empty lines between them")
    return blocks


def list_cases(folder: Path) -> list[tuple[str, str]]:
    """Each case of the files in a folder, behind the sentence above it."""
    cases, sentence = [], ""
    for file in sorted(folder.glob("*.txt")):
        for block in read_blocks(file):
            if block.startswith("# "):
                sentence = block
            else:
                cases.append((sentence, block))
    return cases


def list_given(case: str) -> list[str]:
    """The lines of a case without what was found of it."""
    return [line for line in case.split("\n") if not line.startswith(("= ", "| "))]


is_writing = False
"""Whether `pytest --golden` was asked for."""


def assert_file(file: Path, text: str) -> None:
    """A golden file has this text; with `pytest --golden` it gets it."""
    if is_writing:
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def assert_case(folder: Path, case: str, judged: str) -> None:
    """A case of a golden folder is as it is judged now; with `pytest --golden` it becomes so."""
    if is_writing:
        for file in folder.glob("*.txt"):
            blocks = [judged if block == case else block for block in read_blocks(file)]
            assert_file(file, "\n\n".join(blocks) + "\n")
    else:
        assert judged == case
