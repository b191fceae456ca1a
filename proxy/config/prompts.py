"""Prompts for summaries: the shipped ones in `prompts/`, and text files of a team's own.

A prompt is plain text. `{words}` in it becomes the number of words the answer may have. The headings that a prompt of
ours asks for are what its answers are checked for; of a team's own nothing is known. A file is read with the
configuration that names it, and never again: it may be gone when a request needs it.
"""

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

SHIPPED = ("structured", "workflow")
WORDS_PER_TOKEN = 0.4  # paths and identifiers take more than prose
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Prompt:
    name: str
    text: str
    headings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    def of(self, max_tokens: int) -> str:
        return self.text.replace("{words}", str(int(max_tokens * WORDS_PER_TOKEN)))


def read_prompt(name: str) -> Prompt:
    """Read a shipped prompt by its name, or a file by its path. ValueError: neither exists."""
    if name in SHIPPED:
        text = resources.files("proxy.config").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")
        return Prompt(name, text.strip(), tuple(_HEADING.findall(text)))
    try:
        return Prompt(name, Path(name).read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        raise ValueError(
            f"no prompt: write one of {', '.join(SHIPPED)}, or the path of a text file that can be read"
        ) from None
