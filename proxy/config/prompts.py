"""What a model is told when it is asked for a summary: texts in files, ours in `prompts/`, a team's own by its path.

A prompt is plain text. `{words}` in it becomes the number of words the answer may have. The headings that a prompt of
ours asks for are what its answers are checked for; of a team's own nothing is known.
"""

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

SHIPPED = ("structured", "workflow")
WORDS_A_TOKEN = 0.4  # paths and identifiers take more than prose
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Prompt:
    text: str
    headings: tuple[str, ...]

    def of(self, max_tokens: int) -> str:
        return self.text.replace("{words}", str(int(max_tokens * WORDS_A_TOKEN)))


def prompt(name: str) -> Prompt:
    """ValueError: there is no such prompt."""
    if name in SHIPPED:
        text = resources.files("proxy.config").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")
        return Prompt(text.strip(), tuple(_HEADING.findall(text)))
    try:
        return Prompt(Path(name).read_text(encoding="utf-8").strip(), ())
    except (OSError, UnicodeDecodeError):
        raise ValueError(
            f"no prompt {name!r}: write one of {', '.join(SHIPPED)}, or the path of a text file that can be read"
        ) from None
