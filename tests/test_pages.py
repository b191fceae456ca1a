"""Whoever begins at the README finds every page."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def linked(page):
    found = re.findall(r"\]\((?!https?:|mailto:)([^)#\s]+\.md)[^)]*\)", page.read_text(encoding="utf-8"))
    return {(page.parent / link).resolve() for link in found}


def test_every_page_can_be_reached_from_the_readme_in_two_steps():
    first = linked(ROOT / "README.md")
    second = {page for each in first for page in linked(each)}
    pages = {page.resolve() for page in (ROOT / "docs").rglob("*.md")}
    assert {str(page.relative_to(ROOT)) for page in pages - first - second} == set()
