"""Hooks of MkDocs: pages and files outside docs/.

README.md becomes the first page; links that leave docs/ lead to a copy of the file, or to nothing where it is a folder.
"""

import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"README.md": "index.md", "CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
LINK = re.compile(r"(!?\[[^\]]*\])\(((?!https?:|mailto:|#)[^)\s#]+)(#[^)\s]*)?\)")


def on_files(files, config):
    for source, name in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(
            File.generated(config, name, content=LINK.sub(lambda found: _from_root(found, files, config), text))
        )
    for page in list(files.documentation_pages()):
        for link in LINK.finditer(page.content_string) if page.src_uri not in PAGES.values() else ():
            _add_outside(_resolve(page, link[2]), files, config)
    return files


def on_page_markdown(markdown, page, config, files):
    """Links of pages in docs/ that lead out of it."""
    if page.file.src_uri in PAGES.values():
        return markdown

    def replace(link):
        target = _resolve(page.file, link[2])
        if target is None:
            return link[0]
        up = "../" * page.file.src_uri.count("/")
        where = _place_of(target)
        return f"{link[1]}({up}{where}{link[3] or ''})" if where else _without_link(link)

    return LINK.sub(replace, markdown)


def _from_root(link, files, config):
    target = (ROOT / link[2]).resolve()
    if target.is_relative_to(ROOT / "docs"):
        return f"{link[1]}({target.relative_to(ROOT / 'docs')}{link[3] or ''})"
    _add_outside(target, files, config)
    where = _place_of(target)
    return f"{link[1]}({where}{link[3] or ''})" if where else _without_link(link)


def _resolve(file, link):
    """The target outside docs/ of a link, else None."""
    target = (ROOT / "docs" / file.src_uri).parent.joinpath(link).resolve()
    return None if target.is_relative_to(ROOT / "docs") else target


def _place_of(target):
    """The address of a file of the project in the site; empty for folders."""
    name = str(target.relative_to(ROOT))
    return PAGES.get(name) or (f"files/{name}.txt" if target.is_file() else "")


def _add_outside(target, files, config):
    if target is None or not target.is_file() or str(target.relative_to(ROOT)) in PAGES:
        return
    place = _place_of(target)
    if files.get_file_from_path(place) is None:
        files.append(File.generated(config, place, content=target.read_bytes()))


def _without_link(link):
    return link[1].removeprefix("[").removesuffix("]")
