"""The form of an entry in the table of programs: its verbs, options and files.

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


class FileRule(Struct, frozen=True):
    """Which words of a command are files."""

    change: str = ""
    """The change in a word, such as `edited`; empty if the command only reads the files."""
    verb: str = ""
    options: tuple[str, ...] = ()
    """Beginnings of options: if there are any, the command must have such an option."""
    unless: tuple[str, ...] = ()
    """Beginnings of options with which the command does something else."""
    behind: str = ""
    """Only the words behind this one are files. A command without it has none."""
    first: int = 0
    """The first file among the words that are no options; -1 if only the last is one."""
    valued: str = ""
    """Options with a value, which is no file, besides those of the program."""


class Program(Struct, frozen=True, dict=True):  # with a dict: its verbs are sorted once
    """A program, and the words of its commands that tell whether they act.

    A command *acts* if running it again would change the world again: a service, the history of a repository, or other
    people's state. Other commands only look, compute, or change files. A verb is the first word that is no option, or
    the first after nouns; `stash/pop` is a verb of one noun only.
    """

    names: str
    examples: Mapping[str, bool]
    """Command lines, and whether they act."""
    acts: str = ""
    """Verbs that act, or `*` for all but the harmless ones, and for no verb."""
    harmless: str = ""
    """Verbs that do not act: they are listed if a later word might be taken for a verb, or if unknown verbs act."""
    nouns: str = ""
    """Words that a verb may follow, or `*` for any. Then `terminate` in `terminate-instances` is a verb as well."""
    valued: str = ""
    """Options with a value that may stand before a verb."""
    harmless_with: str = ""
    """With one of these options it does not act."""
    acts_with: str = ""
    """With one of these options it acts."""
    runs_tasks: bool = False
    """Its words are names of tasks, which the project chooses: `make deploy-staging`."""
    copies: str = ""
    """Verbs, or `*` for all, that copy to the last word: they act if that is on another machine."""
    language: Literal["", "sql", "mongodb", "http"] = ""
    """Its statement or request tells whether it acts."""
    quotes: str = ""
    """Verbs, or `*` for all, that only print texts of others. The program itself speaks in lines that begin with its
    name, or with *speaks*.
    """
    speaks: tuple[str, ...] = ()
    restores: str = ""
    """Verbs that may put back files which were deleted."""
    discards: str = ""
    """Verbs that may take away files which were made."""
    discards_with: str = ""
    """With one of these options other verbs may, too."""
    keeps_with: str = ""
    """With one of these options behind the verb they do not."""
    answers: str = ""
    """Verbs, or `*` for all, of which exit code 1 is an answer: nothing matched, or there is a difference."""
    files: tuple[FileRule, ...] = ()

    @cached_property
    def _verbs(self) -> frozenset[str]:
        texts = (self.acts, self.harmless, self.copies, self.quotes, self.answers)
        return frozenset(" ".join(texts).split())

    def list_operands(self, words: Sequence[str], valued: str = "") -> list[str]:
        """Return the words of a command that are neither options nor their values."""
        return [words[place] for place in find_operands(words, f"{self.valued} {valued}")]

    def has_verb(self, words: Sequence[str], verbs: str) -> bool:
        """Return whether the verb of a command is one of *verbs*, or these are `*`."""
        return verbs == "*" or self.find_verb(self.list_operands(words)) in verbs.split()

    def discards_files(self, words: Sequence[str]) -> bool:
        """Return whether a command may take away files which were made: `git clean -fd`, but not `git clean -nd`."""
        if not self.has_verb(words, self.discards):
            return has_option(words, self.discards_with)
        kept = self.keeps_with.split()
        for word in words[next(find_operands(words, self.valued), 0) :]:
            letters = word[1:] if word[:1] == "-" and word[1:].isalpha() else ""
            if word in kept or any(f"-{letter}" in kept for letter in letters):
                return False
        return True

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
    """Return `python` for `/usr/bin/python3.12`."""
    name = posixpath.basename(word)
    if name.startswith(("python", "pip", "ruby", "php")):
        return name.rstrip("0123456789.")
    return name


def find_operands(words: Sequence[str], valued: str) -> Iterator[int]:
    """Yield the places of the words after the program that are neither options nor values of the *valued* ones."""
    options, is_value = valued.split(), False
    for place, word in enumerate(words):
        if place and not is_value and not (word.startswith("-") and word != "-"):
            yield place
        is_value = not is_value and word in options


def has_option(words: Sequence[str], options: str) -> bool:
    """Return whether a word is one of the options, also with its value: `--data=x`, but not `--push=false`."""
    names = options.split()
    return any(word.partition("=")[0] in names for word in words if not word.endswith("=false"))
