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
    """What a program does, by the verb in its words.

    A command *acts* if it would do something again to the world: to a service, the history of a repository, or other
    people. Others only look, compute, or change files. A verb stands first among the words that are no options, or
    behind nouns; `stash/pop` is a verb of one noun only.
    """

    names: str
    examples: Mapping[str, bool]
    """Command lines, and whether they act."""
    acts: str = ""
    acts_always: bool = False
    """It acts by verbs that are unknown, or without one, too."""
    harmless: str = ""
    """Verbs that do not act, if others might be taken for one, or if it acts by unknown ones."""
    nouns: str = ""
    """`*` if any word is one. Then `terminate` in `terminate-instances` is a verb as well."""
    valued: str = ""
    """Options with a value that may stand before a verb."""
    harmless_with: str = ""
    """With one of these options it does not act."""
    acts_with: str = ""
    """With one of these options it acts."""
    runs_tasks: bool = False
    """Its words are names of tasks, which the project chooses: `make deploy-staging`."""
    copies: str = ""
    """Verbs that copy to the last word, or `*`: they act if that is on another machine."""
    language: Literal["", "sql", "mongo", "http", "http words"] = ""
    """Its statement or request tells whether it acts."""
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
    """Regular expressions of lines by which it tells that it worked, or names its product, each with such a line.

    Case does not count, and the lines of any command are compared, behind times and tags: a script may run it.
    """
    failed: Mapping[Weight, Mapping[str, str]] = {}
    """Regular expressions of lines by which it tells that it failed, behind times and tags, each with such a line."""

    @cached_property
    def _verbs(self) -> frozenset[str]:
        texts = (self.acts, self.harmless, self.copies, self.quotes, self.answers)
        return frozenset(" ".join(texts).split())

    def find_verb(self, operands: Sequence[str]) -> str:
        """Return the verb as it stands in the table, or the first word if none does."""
        verb = "".join(operands[:1])
        noun = ""
        for word in operands[:4]:
            names = [f"{noun}/{word}", f"{noun}/*"]
            if verb not in self._verbs or not noun:
                names += [word, word.lower()]
                if self.nouns == "*":
                    names += [word.partition("-")[0], word.rpartition(":")[2]]
            for name in names:
                if name in self._verbs:
                    verb = name
                    break
            if self.nouns != "*" and word not in self.nouns.split():
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
    """Yield the places of the words behind the program that are neither options nor values of these."""
    is_value = False
    for place, word in enumerate(words):
        if place and not is_value and not (word.startswith("-") and word != "-"):
            yield place
        is_value = not is_value and word in valued


def has_option(words: Sequence[str], options: str) -> bool:
    """Whether a word is one of the options, also with its value: `--data=x`, but not `--push=false`."""
    names = options.split()
    return any(word.partition("=")[0] in names for word in words if not word.endswith("=false"))
