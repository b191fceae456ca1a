"""The dashboard's files, and the login form."""

from collections.abc import Mapping
from functools import cache
from html import escape
from importlib import resources

from aiohttp import web

LOGIN_FILES = ("/admin/static/style.css", "/admin/static/mark.svg")
"""Files of the login form, which are served without a key."""
_CONTENT_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_MESSAGE_MARK = "<!-- message -->"


@cache
def read_files() -> Mapping[str, bytes]:
    """Return the dashboard's files by path. They are read once, and no other file can be asked for."""
    files = {}
    for file in resources.files("proxy.admin").joinpath("static").iterdir():
        if file.name.rpartition(".")[2] in _CONTENT_TYPES:
            files[f"/admin/static/{file.name}"] = file.read_bytes()
    files["/admin/"] = files["/admin"] = files["/admin/static/index.html"]
    return files


async def send_file(path: str, _: web.BaseRequest) -> web.Response:
    content_type = _CONTENT_TYPES.get(path.rpartition(".")[2], "text/html")
    return web.Response(body=read_files()[path], content_type=content_type, charset="utf-8")


def render_login_page(status: int, message: str = "") -> web.Response:
    html = read_files()["/admin/static/login.html"].decode()
    alert = ""
    if message:
        alert = f'<p class="wrong" role="alert">{escape(message)}</p>'
    return web.Response(status=status, text=html.replace(_MESSAGE_MARK, alert), content_type="text/html")
