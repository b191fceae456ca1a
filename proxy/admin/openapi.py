"""The table of the API as an OpenAPI 3.1 document: made of the types that requests and answers are checked by."""

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from proxy import __version__
from proxy.admin.routes import PREFIX, Nothing, Route

REF = "#/components/schemas/{name}"
ALWAYS = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
OF_BODIES = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)


class Flawed(msgspec.Struct, frozen=True):
    path: str
    message: str


class Error(msgspec.Struct, frozen=True, omit_defaults=True):
    message: str
    type: str
    code: str
    request_id: str
    param: None = None
    faults: list[Flawed] = []


class Refusal(msgspec.Struct, frozen=True):
    error: Error


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """All of it."""
    kinds = dict.fromkeys([each for route in routes for each in (route.query, route.body, route.answer) if each])
    schemas, parts = msgspec.json.schema_components([*kinds, Refusal], ref_template=REF)
    known = dict(zip([*kinds, Refusal], schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(route, known, parts)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "compaction-proxy admin API",
            "version": __version__,
            "description": "Every request shows the admin key as a bearer token, or a session of the dashboard.",
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": parts,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, known: dict[Any, Any], parts: dict[str, Any]) -> dict[str, Any]:
    statuses = [*ALWAYS, *(OF_BODIES if route.body else ()), *route.faults]
    operation: dict[str, Any] = {
        "summary": route.does,
        "operationId": f"{route.method.lower()}{route.path.replace('/', '_')}".replace("{", "").replace("}", ""),
        "parameters": [*_of_path(route), *_of_query(route, parts)],
        "responses": {
            "200": _content("As asked.", known[route.answer]),
            **{str(int(status)): _content(HTTPStatus(status).phrase, known[Refusal]) for status in statuses},
        },
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, **_content("", known[route.body], bare=True)}
    return operation


def _of_path(route: Route) -> Iterable[dict[str, Any]]:
    shape = {"type": "string", "minLength": 1, "pattern": r"^[^/]+$"}
    return ({"name": name, "in": "path", "required": True, "schema": shape} for name in route.names)


def _of_query(route: Route, parts: dict[str, Any]) -> Iterable[dict[str, Any]]:
    if route.query is Nothing:
        return ()
    properties = parts[route.query.__name__]["properties"]
    return ({"name": name, "in": "query", "required": False, "schema": shape} for name, shape in properties.items())


def _content(description: str, schema: Any, *, bare: bool = False) -> dict[str, Any]:  # noqa: ANN401 (JSON)
    content = {"content": {"application/json": {"schema": schema}}}
    return content if bare else {"description": description, **content}
