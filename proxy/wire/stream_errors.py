"""Errors of a server: read from a refusal or from a line of a stream, and written as an event that clients raise on."""

import json
from dataclasses import dataclass

from proxy.wire.lenient import read_json, read_object
from proxy.wire.sse import DATA

ErrorObject = dict[str, object]


@dataclass(frozen=True, slots=True)
class LineError:
    """The error in one line of a stream."""

    error: ErrorObject
    is_bare: bool
    """It is no event of the API, and client libraries skip it silently: they would take the end for a success."""


def find_line_error(line: bytes, *, may_be_flat: bool) -> LineError | None:
    """The error in this line, or None.

    `may_be_flat`: code and message may be members of the event itself, as in Responses:
    <https://platform.openai.com/docs/api-reference/responses-streaming>.
    """
    data = DATA.match(line)
    text = line
    if data is not None:
        text = line[data.end() :]
    if not text.lstrip().startswith(b"{"):
        return None
    value = read_object(text)
    if value is None:
        return None
    if value.get("object") == "error":
        return LineError(as_error(value), is_bare=True)
    if may_be_flat and "error" not in value and value.get("type") == "error":
        return LineError(as_error(value), is_bare=data is None)
    if "error" in value and "choices" not in value:
        return LineError(as_error(value["error"]), is_bare=data is None)
    return None


def as_error(value: object) -> ErrorObject:
    """The error of a server with the four members that clients of OpenAI know."""
    error = value
    if not isinstance(error, dict):
        error = {"message": str(value)}
    return {name: error.get(name) for name in ("message", "type", "param", "code")}


def read_error(body: bytes) -> ErrorObject:
    """The error in the body of a refusal."""
    value = read_json(body)
    if value is None:
        value = body.decode("utf-8", "replace")
    if isinstance(value, dict):
        value = value.get("error", value)
    return as_error(value)


def make_error_event(error: ErrorObject, *, at_boundary: bool, named: bool = False) -> bytes:
    """An event that every client library raises on, on a line of its own.

    `named`: for clients of Messages, which ignore an error in an event without a name:
    <https://platform.claude.com/docs/en/build-with-claude/streaming#error-events>.
    """
    lead = "\n\n"
    if at_boundary:
        lead = "\n"
    if not named:
        return f"{lead}data: {json.dumps({'error': error})}\n\n".encode()
    kind = error.get("type")
    if not isinstance(kind, str) or not kind.endswith("_error") or kind == "proxy_error":
        kind = "api_error"
    event = {"type": "error", "error": {"type": kind, "message": error.get("message")}}
    return f"{lead}event: error\ndata: {json.dumps(event)}\n\n".encode()
