"""Four tools, with what their declarations are made of: names, kinds and the words below."""

import pathlib


def read_file(path: str) -> str:
    """Read a file.

    Args:
        path: Which file.
    """
    return pathlib.Path(path).read_text()


def search(pattern: str, path: str) -> str:
    """Find the lines of a file that hold a text.

    Args:
        pattern: The text.
        path: Which file.
    """
    lines = pathlib.Path(path).read_text().splitlines()
    return "\n".join(f"{number}:{line}" for number, line in enumerate(lines, 1) if pattern in line) or "no such line"


def write_file(path: str, text: str) -> str:
    """Write a file.

    Args:
        path: Which file.
        text: All that it is to hold.
    """
    pathlib.Path(path).write_text(text)
    return f"wrote {path}"


def edit_file(path: str, old: str, new: str) -> str:
    """Replace a text in a file.

    Args:
        path: Which file.
        old: The text to replace.
        new: The text in its place.
    """
    place = pathlib.Path(path)
    place.write_text(place.read_text().replace(old, new))
    return f"changed {path}"
