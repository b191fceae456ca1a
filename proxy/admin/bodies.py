"""Bodies of the admin pages: requests are read and checked, answers are written as JSON."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import msgspec
from aiohttp import web

from proxy.admin.routes import Flaw, Invalid, Json, Route
from proxy.errors import BadRequest, BodyTooLarge, NotJson

BODY_BYTES = 1024 * 1024
LOGIN_BODY_BYTES = 4 * 1024
"""Limit of the only body that is read without a key."""
LOGIN_FIELDS_MAX = 16
JSON = "application/json"


def read_query(route: Route, query: Mapping[str, str]) -> object:
    try:
        return msgspec.convert(dict(query), route.query, strict=False)
    except msgspec.ValidationError as fault:
        raise Invalid("invalid query", [_find_flaw(fault)]) from None


async def read_json(route: Route, request: web.BaseRequest) -> Any:  # noqa: ANN401 (the type that the route names)
    if route.body is None:
        return None
    # Also a defence: a form of another site cannot send this content type without asking first.
    content_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if content_type != JSON:
        raise NotJson("send the body as JSON, with `content-type: application/json`")
    data = await _read_body(request, BODY_BYTES)
    try:
        return msgspec.json.decode(data, type=route.body)
    except msgspec.ValidationError as fault:
        raise Invalid("invalid body", [_find_flaw(fault)]) from None
    except (msgspec.DecodeError, RecursionError):
        raise BadRequest("the body is not JSON") from None


async def read_login_key(request: web.BaseRequest) -> str:
    """Return the key in a login form; empty if there is none."""
    form = await _read_body(request, LOGIN_BODY_BYTES)
    try:
        fields = parse_qs(form.decode("utf-8", "replace"), max_num_fields=LOGIN_FIELDS_MAX)
    except ValueError:
        raise BadRequest("the form has more fields than the login form of the dashboard") from None
    return fields.get("key", [""])[-1].strip()


async def _read_body(request: web.BaseRequest, max_bytes: int) -> bytes:
    pieces = []
    size = 0
    try:
        while piece := await request.content.readany():
            size += len(piece)
            if size > max_bytes:
                raise BodyTooLarge(f"the body is larger than {max_bytes // 1024:,} KiB, the limit of this path")
            pieces.append(piece)
    except web.RequestPayloadError:
        raise BadRequest("the body is not what the request's headers announce") from None
    return b"".join(pieces)


def _find_flaw(fault: msgspec.ValidationError) -> Flaw:
    message, _, path = str(fault).partition(" - at `$")
    return Flaw(path.strip("`.") or "$", message)


def render_json(status: int, answer: Json, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(status=status, body=encode_answer(answer).encode(), content_type=JSON, headers=headers)


def encode_answer(answer: Json) -> str:
    """Return an answer as JSON, with its lists encoded row by row.

    The encoder holds the interpreter's lock until it is through. A list of 10,000 rows at once would keep the event
    loop waiting, though it is encoded in another thread.
    """
    members = (f"{json.dumps(name)}: {_encode_member(member)}" for name, member in answer.items())
    return "{" + ", ".join(members) + "}"


def _encode_member(member: object) -> str:
    # json, not msgspec: a message may hold half a surrogate pair, which must leave escaped, as it came.
    if isinstance(member, list):
        return f"[{', '.join(map(json.dumps, member))}]"
    return json.dumps(member)
