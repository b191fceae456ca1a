"""A program that agents run: what it does by its words, and the lines in which it tells how it ended.

    kubectl -n shop rollout undo deployment/checkout
            |       |       verb: the program acts
            |       noun: a verb follows
            option with a value

`program_table` has an entry for each.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal

from msgspec import Struct

Effect = Literal["looks", "writes", "runs", "acts"]
"""A command only looks, changes files, may do anything within its project (a test, a build), or acts on the world: on a
service, on the history of a repository, on other people. What acted must not be done again only to see its output.
"""
Weight = Literal["aftermath", "sign", "cause", "summary", "case"]
"""How much a line explains of a failure: an aftermath says only that something has failed, a sign or a cause may have
been expected by a test, a summary is that of a test run, and a case is a failed test or a place in a file.
"""


class FileRule(Struct, frozen=True):
    """Which words of a command are files."""

    change: str = ""
    """As `edited`; empty if it only reads them."""
    verb: str = ""
    options: tuple[str, ...] = ()
    """If there are any, an option begins with one of them."""
    first: int = 0
    """The first file among the words that are no options; -1 if only the last is one."""


class Program(Struct, frozen=True, dict=True):  # with a dict: its verbs are sorted once
    """What a program does with a verb, and without a known one (*effect*).

    A verb stands first among the words that are no options, or behind nouns. `stash/pop` is a verb of one noun only.
    """

    names: str
    examples: Mapping[str, Effect]
    """Command lines, each with its effect."""
    effect: Effect = "runs"
    looks: str = ""
    writes: str = ""
    acts: str = ""
    nouns: str = ""
    """`*` if any word is one. Then `terminate` in `terminate-instances` is a verb as well."""
    valued: str = ""
    """Options with a value that may stand before a verb."""
    looks_with: str = ""
    """With one of these options it only looks."""
    acts_with: str = ""
    """With one of these options it acts."""
    runs_tasks: bool = False
    """Its words are names of tasks, which the project chooses: `make deploy-staging`."""
    copies: str = ""
    """Verbs that copy to the last word, or `*`: they act if that is on another machine."""
    language: Literal["", "sql", "mongo", "http", "http words"] = ""
    """Its statement or request tells whether it looks."""
    statements: str = ""
    """Options whose values are statements."""
    quotes: str = ""
    """Verbs, or `*`, whose output is nothing but texts of others. The program itself speaks in lines that begin with
    its name, or with *speaks*.
    """
    speaks: tuple[str, ...] = ()
    answers: str = ""
    """Verbs, or `*`, for which exit code 1 is an answer: nothing matched, or there is a difference."""
    files: tuple[FileRule, ...] = ()
    worked: Mapping[str, str] = {}
    """Forms of lines by which it tells that it worked, or names its product, each with such a line."""
    failed: Mapping[Weight, Mapping[str, str]] = {}
    """Forms of lines by which it tells that it failed, each with such a line."""

    @cached_property
    def verbs(self) -> dict[str, Effect]:
        verbs = dict[str, Effect](dict.fromkeys(self.copies.replace("*", "").split(), "writes"))
        effects: tuple[tuple[Effect, str], ...] = (("looks", self.looks), ("writes", self.writes), ("acts", self.acts))
        for effect, words in effects:
            verbs |= dict.fromkeys(words.split(), effect)
        return verbs

    @cached_property
    def _nouns(self) -> frozenset[str]:
        return frozenset(self.nouns.split())

    def find_verb(self, operands: Sequence[str]) -> str:
        """Return the verb as it stands in the table, or the first word if it is unknown."""
        verb = "".join(operands[:1])
        noun = ""
        for word in operands[:4]:
            names = [f"{noun}/{word}", f"{noun}/*", word, word.lower()]
            if self.nouns == "*":
                names += [word.partition("-")[0], word.rpartition(":")[2]]
            for name in names:
                if name in self.verbs:
                    verb = name
                    break
            if word not in self._nouns and not (self.nouns == "*" and verb not in self.verbs):
                break
            noun = word
        return verb


def name_program(word: str) -> str:
    """`python` of `/usr/bin/python3.12`."""
    name = posixpath.basename(word)
    if name.startswith(("python", "pip", "ruby", "php")):
        return name.rstrip("0123456789.")
    return name


def list_operands(words: Sequence[str], valued: Sequence[str] = ()) -> Iterator[int]:
    """The places of the words behind the program that are neither options nor values of them."""
    is_value = False
    for place, word in enumerate(words):
        if place and not is_value and not (word.startswith("-") and word != "-"):
            yield place
        is_value = not is_value and word in valued


def has_option(words: Sequence[str], options: str) -> bool:
    """Whether a word is one of the options, also with its value: `--data=x`."""
    names = options.split()
    return any(word.partition("=")[0] in names for word in words)
