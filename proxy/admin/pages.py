"""The files of the dashboard: read once, served as they are, and no other file can be asked for."""

from collections.abc import Mapping
from functools import cache
from html import escape
from importlib import resources

from aiohttp import web

from proxy.errors import MethodNotAllowed, NotFound

OPEN = ("/admin/static/style.css", "/admin/static/mark.svg")
"""What nobody needs a key for."""
_KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_MESSAGE = "<!-- message -->"


@cache
def _files() -> Mapping[str, bytes]:
    """By the path they are asked for."""
    folder = resources.files("proxy.admin").joinpath("static")
    names = sorted(each.name for each in folder.iterdir() if each.name.rpartition(".")[2] in _KINDS)
    found = {f"/admin/static/{name}": folder.joinpath(name).read_bytes() for name in names}
    return {**found, "/admin/": found["/admin/static/index.html"], "/admin": found["/admin/static/index.html"]}


def page(path: str, method: str) -> web.Response:
    if path not in _files():
        raise NotFound("the dashboard has no such page; it begins at /admin/")
    if method not in ("GET", "HEAD"):
        raise MethodNotAllowed("this page can only be read (GET)", headers=(("allow", "GET, HEAD"),))
    kind = _KINDS.get(path.rpartition(".")[2], "text/html")
    return web.Response(body=_files()[path], content_type=kind, charset="utf-8")


def login(status: int, message: str = "") -> web.Response:
    """The form that asks for the key."""
    text = _files()["/admin/static/login.html"].decode()
    said = f'<p class="wrong" role="alert">{escape(message)}</p>' if message else ""
    return web.Response(status=status, text=text.replace(_MESSAGE, said), content_type="text/html")
