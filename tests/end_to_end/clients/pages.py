"""What the agents beside this file work on. Only the standard library here: each runs in its library's environment."""

import pathlib

STEPS = 60
TASKS = ("Read all pages and tell what is in them.", "Now compare what you have read.", "And the rest, please.")


def read_page(number: int) -> str:
    """Read a page."""
    return pathlib.Path(f"pages/{number}.txt").read_text()
