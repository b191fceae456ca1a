"""Downloads: an answer of the API as a CSV or JSON file."""

import csv
import io
import json
from datetime import UTC, datetime

from aiohttp import web

from proxy.admin.context import Json, Route

_FORMULA_BEGINNINGS = ("=", "+", "-", "@", "\t", "\r")
_TIMES = frozenset({"at", "first", "last", "created", "expires", "revoked", "last_used"})


def as_download(route: Route, answer: Json, form: str) -> web.Response:
    """The rows of an answer as CSV, or the whole answer as JSON, for a browser to save."""
    name = f"{route.path.strip('/').replace('/', '-')}.{form}"
    if form == "csv":
        body, kind = write_csv(answer[route.rows]), "text/csv"
    else:
        body, kind = json.dumps(answer, indent=1), "application/json"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return web.Response(body=body.encode("utf-8", "replace"), content_type=kind, charset="utf-8", headers=headers)


def write_csv(rows: list[Json]) -> str:
    """Rows with a line of names above. Times are ISO 8601 in UTC."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.writer(text)
    writer.writerow(names)
    for row in rows:
        writer.writerow([_write_cell(name, row.get(name)) for name in names])
    return text.getvalue()


def _write_cell(name: str, value: object) -> object:
    if name in _TIMES and isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC).isoformat(timespec="milliseconds")
    if isinstance(value, dict | list):
        return json.dumps(value)
    # A spreadsheet would take such a text for a formula, and anybody may have written it.
    if isinstance(value, str) and value.startswith(_FORMULA_BEGINNINGS):
        return f"'{value}"
    return value
