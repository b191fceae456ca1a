"""The long task that every agent is given, and the repository it is given it in.

An engineer is to read a catalogue of 40 large files, search it, take notes, and set one number in `answer.py`. The
plan says *what* is done, step by step; each agent has its own tools to do it with. The word to close with is in the
user's own words and nowhere else: were these lost on the way, the task would fail.
"""

import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

NUMBER = 40_917
WORD = "halcyon"
UNSOLVED = "ANSWER = None\n"
SOLVED = f"ANSWER = {NUMBER}\n"

BRIEF = f"""\
Read the whole catalogue in parts/, file by file, and take notes of what you find in notes/. Do not stop in between.
When all of it is read, set ANSWER in answer.py to {NUMBER}, and close with the word {WORD}."""

FILES = 40
LINES = 150  # about 10 kB
NOTES = 900  # words in a note: its text is in the call, not in the result
THOUGHT = 400  # words a model thinks aloud before it acts: no clearing of results makes them fewer

_WORDS = (  # noqa: SIM905 - as a list they would fill this page
    "amber anchor autumn basin beacon border branch bridge candle canvas carbon cedar chapel cipher clover copper "
    "coral cotton crater crystal delta desert domain ember engine fabric falcon feather forest fossil garden "
    "glacier granite harbour harvest hollow horizon island ivory jacket jungle kernel kettle ladder lantern ledger "
    "lemon lumber magnet marble meadow mirror monsoon needle nickel north novel ocean orbit orchard packet paper "
    "pebble pepper pillar planet pocket prairie quarry quartz rabbit ribbon river rocket saddle salmon sculpture "
    "season shadow signal silver spiral spring station summit sunset tablet temple thunder timber tunnel valley "
    "velvet village violet walnut willow"
).split()


@dataclass(frozen=True, slots=True)
class Read:
    path: str


@dataclass(frozen=True, slots=True)
class Search:
    pattern: str
    path: str


@dataclass(frozen=True, slots=True)
class Write:
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    path: str
    old: str
    new: str


Action = Read | Search | Write | Edit


def part(number: int) -> str:
    return f"parts/part_{number:02d}.txt"


def catalogue(number: int) -> str:
    """One large file; the same words for the same number on every machine."""
    chance = random.Random(number)
    return "".join(f"{at:04d} {_prose(chance, 9)}\n" for at in range(LINES))


def note(number: int) -> str:
    return _prose(random.Random(-number), NOTES)


def thought_of(step: int) -> str:
    return _prose(random.Random(f"thought {step}"), THOUGHT)


def make_repository(place: Path) -> None:
    (place / "parts").mkdir(parents=True)
    (place / "notes").mkdir()
    (place / "answer.py").write_text(UNSOLVED)
    for number in range(FILES):
        (place / part(number)).write_text(catalogue(number))
    commit_all(place, "The catalogue")


def _prose(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(_WORDS, k=words))


def commit_all(place: Path, message: str) -> None:
    who = ("-c", "user.name=A Tester", "-c", "user.email=tester@example.com")
    for arguments in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", message)):
        subprocess.run(["git", *who, *arguments], cwd=place, check=True)


def _plan() -> tuple[tuple[Action, ...], ...]:
    """Step by step; where a step has several actions, they are asked for at once."""
    steps: list[tuple[Action, ...]] = []
    for number in range(FILES):
        steps.append((Read(part(number)),))
        if number % 10 == 4:
            steps.append((Write(f"notes/upto_{number:02d}.md", note(number)),))
        if number % 10 == 7:
            steps.append((Search(_WORDS[number], part(number)), Search(_WORDS[number], part(number - 1))))
    return (*steps, (Read("answer.py"),), (Edit("answer.py", UNSOLVED, SOLVED),))


PLAN = _plan()
