"""Prompts for summaries: the shipped ones by name, and files of an operator by path."""

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

SHIPPED_PROMPTS = ("structured", "workflow")
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Prompt:
    name: str
    text: str
    headings: tuple[str, ...] = ()
    """Sections that an answer should have. Only shipped prompts ask for some."""

    def __str__(self) -> str:
        return self.name


def read_prompt(name: str) -> Prompt:
    """Read a shipped prompt by its name, or a file by its path. Raise ValueError if there is neither."""
    if name in SHIPPED_PROMPTS:
        text = resources.files("proxy.config").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")
        return Prompt(name, text.strip(), tuple(_HEADING.findall(text)))
    try:
        return Prompt(name, Path(name).read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        raise ValueError(
            f"no prompt: write one of {', '.join(SHIPPED_PROMPTS)}, or the path of a text file that can be read"
        ) from None


def _read_prompt(value: object) -> Prompt:
    if isinstance(value, Prompt):
        return value
    return read_prompt(str(value))


PromptName = Annotated[Prompt, BeforeValidator(_read_prompt), PlainSerializer(str), WithJsonSchema({"type": "string"})]
