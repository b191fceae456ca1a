"""The configurations that docs/upstreams.md shows, read from there: what the page says is what the suite runs.

recipe("llama.cpp")                         the yaml below this heading, as text
upstream_of("llama.cpp", at=server.origin)  the same as settings, with another address
"""

import re
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests import ROOT

PAGE = ROOT / "docs" / "upstreams.md"


def headings() -> list[str]:
    return re.findall(r"(?m)^### (.+)$", PAGE.read_text())


def recipe(heading: str, language: str = "yaml", place: int = 0) -> str:
    """A block in this language below a heading."""
    section = re.search(rf"(?ms)^### {re.escape(heading)}\n(.*?)(?=^##|\Z)", PAGE.read_text())
    assert section is not None, f"{PAGE.name} has no heading {heading!r}"
    blocks = re.findall(rf"(?ms)^```{language}\n(.*?)^```", section[1])
    assert len(blocks) > place, f"{PAGE.name} shows too little {language} below {heading!r}"
    return blocks[place]


def location(heading: str) -> str:
    """What an nginx recipe says of its location, but for where it passes requests on."""
    block = re.search(r"location / \{(.*?)\}", recipe(heading, "nginx"), re.DOTALL)[1]
    return re.sub(r"proxy_pass [^;]+;", "", block)


def upstream_of(heading: str, *, at: str) -> dict[str, Any]:
    """A recipe's settings, in front of a server at another address."""
    settings = yaml.safe_load(recipe(heading))
    first = settings["upstreams"][0]
    path = urlsplit(first["base_url"]).path
    return {**settings, "upstreams": [{**first, "base_url": at + path}, *settings["upstreams"][1:]]}
