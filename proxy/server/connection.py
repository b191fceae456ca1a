"""A client's connection: aiohttp's HTTP server, but its errors are OpenAI error objects that quote nothing.

A request that cannot be parsed never reaches the application. aiohttp's own error page would quote the line that it
cannot parse, which may hold the key.
"""

from os import urandom
from typing import Any

from aiohttp import StreamReader, web, web_protocol
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD

from proxy import errors, events
from proxy.wire.http_head import TOO_MANY_HEADERS, normalize_path, remove_origin

HEADERS_MAX = 128
HEAD_MAX_BYTES = 256 * 1024
"""Of request line and headers together: the proxy holds them before it knows who calls."""
SERVER_NAME = "compaction-proxy"
REQUEST_ID = web.RequestKey("request_id", str)
_HEAD_TOO_LARGE = "head too large"


def new_request_id() -> str:
    return f"cp-{urandom(8).hex()}"


def find_path(raw_path: str) -> str | None:
    """Return the path of a request's target in its normal form, or None if it has none."""
    return normalize_path(raw_path.partition("#")[0].partition("?")[0])


def render_error(fault: errors.ProxyError, request_id: str, path: str = "") -> web.Response:
    body = errors.to_json(fault, request_id, path)
    response = web.Response(status=fault.status, body=body, content_type="application/json")
    response.headers["Server"] = SERVER_NAME
    response.headers["x-request-id"] = request_id
    for name, value in fault.headers:
        response.headers[name] = value
    return response


class ClientConnection(web_protocol.RequestHandler):
    """One connection of a client."""

    __slots__ = ("_emit", "_head_bytes", "newest_body")

    def __init__(self, server: "HttpServer", emit: events.Listener, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(server, **settings)
        self._emit = emit
        self._head_bytes = 0
        """Bytes of a head that has begun and not ended."""
        self.newest_body: StreamReader = EMPTY_PAYLOAD

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the parser, and bound the head.

        If a body turns out to be malformed, tell its reader: aiohttp would let it wait until the client hangs up.
        """
        if self._head_bytes > HEAD_MAX_BYTES:
            return  # already refused, and about to be closed
        newest_body = self._messages[-1][1] if self._messages else self.newest_body
        is_head = newest_body.is_eof() and not self._upgraded
        request_count = self._request_count
        super().data_received(data)
        if is_head and self._request_count == request_count:
            self._head_bytes += len(data)
        else:
            self._head_bytes = 0
        if self._head_bytes > HEAD_MAX_BYTES:
            self._refuse_head()
        if self._messages and isinstance(self._messages[-1][0], web_protocol._ErrInfo):  # noqa: SLF001
            self._fail_body()

    def _refuse_head(self) -> None:
        """Queue the error that aiohttp queues for a request that it cannot parse."""
        fault = BadHttpMessage(_HEAD_TOO_LARGE)
        error = web_protocol._ErrInfo(status=fault.code, exc=fault, message="")  # noqa: SLF001
        self._messages.append((error, EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail_body(self) -> None:
        """End the body of the request before a parser error for its reader."""
        if len(self._messages) > 1:
            body = self._messages[-2][1]
        elif self._current_request is not None:
            body = self._current_request.content
        else:
            return
        if not body.is_eof():
            body.set_exception(web.RequestPayloadError("malformed request body"))

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 (it quotes the request)
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("the response has already begun")
        fault = _as_proxy_error(exc)
        request_id = request.get(REQUEST_ID) or new_request_id()
        if fault.status >= errors.Internal.status and exc is not None:
            self._emit(events.InternalFault(request_id, *events.locate_fault(exc)))
        if status < errors.Internal.status:  # the parser's error: the application has not seen this request
            self._emit(_make_refusal_event(request_id, fault))
        response = render_error(fault, request_id, find_path(request.raw_path) or "")
        response.force_close()
        return response

    def log_exception(self, *_args: Any, exc_info: BaseException | None = None, **_options: Any) -> None:  # noqa: ANN401
        # A payload error is the client's, and was answered.
        if exc_info is not None and not isinstance(exc_info, web.RequestPayloadError):
            self._emit(events.InternalFault("none", *events.locate_fault(exc_info)))


class HttpServer(web.Server):
    """Makes a `ClientConnection` for each connection."""

    def __init__(self, handler: Any, emit: events.Listener, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(handler, **settings)
        self._emit = emit

    def __call__(self) -> ClientConnection:
        return ClientConnection(self, self._emit, loop=self._loop, **self._kwargs)

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web_protocol.RequestHandler,
        *details: Any,  # noqa: ANN401
    ) -> web.BaseRequest:
        """Remove scheme and host of an absolute target (https://www.rfc-editor.org/rfc/rfc9112#section-3.2.2)."""
        if isinstance(protocol, ClientConnection):
            protocol.newest_body = payload
        path = remove_origin(message.path)
        if path != message.path:
            message = message._replace(path=path)
        return super()._make_request(message, payload, protocol, *details)


def _make_refusal_event(request_id: str, fault: errors.ProxyError) -> events.RequestFinished:
    return events.RequestFinished(request_id, "other", "other", fault.status, "refused", reason=fault.code)


def _as_proxy_error(exc: BaseException | None) -> errors.ProxyError:
    match exc:
        case LineTooLong():
            return errors.HeadersTooLarge("request line or header longer than 64 KiB")
        case BadHttpMessage(message=message) if message == TOO_MANY_HEADERS:
            return errors.HeadersTooLarge(f"more than {HEADERS_MAX} request headers: send fewer")
        case BadHttpMessage(message=message) if message == _HEAD_TOO_LARGE:
            return errors.HeadersTooLarge(f"request line and headers larger than {HEAD_MAX_BYTES // 1024} KiB in all")
        case BadHttpMessage():
            return errors.BadRequest("malformed HTTP request (details withheld: they may contain credentials)")
        case _:
            return errors.Internal("internal error of the proxy: its log says where, by this request id")
