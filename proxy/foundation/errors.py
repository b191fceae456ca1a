"""Errors that the proxy itself answers with, each with the party at fault: 4xx the client, 502 and 504 the upstream.

A message never quotes a header, a query or a body: a client's bytes may hold its key.
"""

import json
from http import HTTPStatus
from typing import Any, ClassVar


class ProxyError(Exception):
    """An error that the proxy answers with. `code` is stable; `message` is for people."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.headers = headers

    @property
    def is_refusal(self) -> bool:
        return self.status < HTTPStatus.INTERNAL_SERVER_ERROR


class BadRequest(ProxyError):
    status, code = 400, "bad_request"


class Unauthorized(ProxyError):
    """The request has no key, or an unknown one. The code is OpenAI's own, because clients handle it."""

    status, code = 401, "invalid_api_key"


class UnknownTeam(ProxyError):
    status, code = 403, "unknown_team"


class UntrustedGateway(ProxyError):
    status, code = 403, "untrusted_gateway"


class PathNotAllowed(ProxyError):
    status, code = 403, "path_not_allowed"


class HostNotAllowed(ProxyError):
    """The host is none of this proxy's names: the DNS name of another site may point here (DNS rebinding)."""

    status, code = 403, "host_not_allowed"


class ForeignOrigin(ProxyError):
    status, code = 403, "foreign_origin"


class NotFound(ProxyError):
    status, code = 404, "not_found"


class MethodNotAllowed(ProxyError):
    status, code = 405, "method_not_allowed"


class BodyTimeout(ProxyError):
    status, code = 408, "body_timeout"


class BodyTooLarge(ProxyError):
    """https://www.rfc-editor.org/rfc/rfc9110#status.413."""

    status, code = 413, "body_too_large"


class TooMuchWork(ProxyError):
    status, code = 413, "too_much_work"


class UnsupportedEncoding(ProxyError):
    status, code = 415, "unsupported_encoding"


class NotJson(ProxyError):
    status, code = 415, "not_json"


class UpgradeRefused(ProxyError):
    """The proxy speaks no WebSocket. Clients take plain HTTP after this error, Codex for its whole session.

    https://www.rfc-editor.org/rfc/rfc9110#status.426
    """

    status, code = 426, "upgrade_refused"


class HeadersTooLarge(ProxyError):
    """https://www.rfc-editor.org/rfc/rfc6585#section-5."""

    status, code = 431, "headers_too_large"


class Internal(ProxyError):
    status, code = 500, "internal_error"


class UpstreamUnreachable(ProxyError):
    status, code = 502, "upstream_unreachable"


class UpstreamBroke(ProxyError):
    status, code = 502, "upstream_broke"


class Overloaded(ProxyError):
    status, code = 503, "overloaded"


class ShuttingDown(ProxyError):
    status, code = 503, "shutdown"


class TranscriptsUnavailable(ProxyError):
    status, code = 503, "transcripts_unavailable"


class UpstreamTimeout(ProxyError):
    status, code = 504, "upstream_timeout"


def describe_error(fault: ProxyError) -> dict[str, Any]:
    """Return an error as OpenAI writes it: https://platform.openai.com/docs/guides/error-codes"""
    return {"message": fault.message, "type": "proxy_error", "param": None, "code": fault.code}


def to_json(fault: ProxyError, request_id: str) -> bytes:
    return json.dumps({"error": {**describe_error(fault), "request_id": request_id}}).encode()
