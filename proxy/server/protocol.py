"""The HTTP server and its client connections: aiohttp's, but their errors are OpenAI error objects that quote nothing.

A request that cannot be parsed never reaches the application. aiohttp's own error page would quote the offending line,
which may be the one with the key.
"""

from os import urandom
from time import perf_counter
from typing import Any

from aiohttp import StreamReader, web, web_protocol
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong

from proxy import errors, events
from proxy.request_record import RequestRecord

JSON = "application/json"
# The key under which a request carries the id that it is logged with.
REQUEST_ID = web.RequestKey("request_id", str)


def new_request_id() -> str:
    return f"cp-{urandom(8).hex()}"


def error_response(fault: errors.ProxyError, request_id: str) -> web.Response:
    response = web.Response(status=fault.status, body=errors.to_json(fault, request_id), content_type=JSON)
    response.headers["Server"] = "compaction-proxy"
    response.headers["x-request-id"] = request_id
    for name, value in fault.headers:
        response.headers[name] = value
    return response


class ClientConnection(web_protocol.RequestHandler):
    """One connection of a client."""

    __slots__ = ("_emit",)

    def __init__(self, server: "HttpServer", emit: events.Listener, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(server, **settings)
        self._emit = emit

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the parser. A body that turns out malformed ends for its reader, too.

        aiohttp would leave the handler waiting for the rest of that body until the client hangs up.
        """
        super().data_received(data)
        if self._messages and isinstance(self._messages[-1][0], web_protocol._ErrInfo):  # noqa: SLF001
            body = self._messages[-2][1] if len(self._messages) > 1 else self._current_body()
            if body is not None and not body.is_eof():
                body.set_exception(web.RequestPayloadError("malformed request body"))

    def _current_body(self) -> StreamReader | None:
        return None if self._current_request is None else self._current_request.content

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 (it quotes the request)
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("the response has already begun")
        fault, request_id = _as_proxy_error(exc), request.get(REQUEST_ID) or new_request_id()
        if fault.status >= errors.Internal.status and exc is not None:
            self._emit(events.InternalFault(request_id, *events.kind_and_place(exc)))
        if status < errors.Internal.status:  # the parser's own: the application has not seen this request
            self._emit(_refusal_event(request_id, fault))
        response = error_response(fault, request_id)
        response.force_close()
        return response

    def log_exception(self, *_args: Any, exc_info: BaseException | None = None, **_more: Any) -> None:  # noqa: ANN401
        if exc_info is not None and not isinstance(
            exc_info, web.RequestPayloadError
        ):  # the client's fault, and answered
            self._emit(events.InternalFault("none", *events.kind_and_place(exc_info)))


class HttpServer(web.Server):
    """The HTTP server: makes a `ClientConnection` for each connection."""

    def __init__(self, handler: Any, emit: events.Listener, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(handler, **settings)
        self._emit = emit

    def __call__(self) -> ClientConnection:
        return ClientConnection(self, self._emit, loop=self._loop, **self._kwargs)


def _refusal_event(request_id: str, fault: errors.ProxyError) -> events.RequestFinished:
    now = perf_counter()
    record = RequestRecord(request_id, "other", "other", now, reason=fault.code, status=fault.status, outcome="refused")
    return record.to_event(now)


def _as_proxy_error(exc: BaseException | None) -> errors.ProxyError:
    match exc:
        case LineTooLong():
            return errors.HeadersTooLarge("request line or header longer than 64 KiB")
        case BadHttpMessage():
            return errors.BadRequest("malformed HTTP request (details withheld: they may contain credentials)")
        case _:
            return errors.Internal("internal error of the proxy: its log says where, by this request id")
