"""The client of one upstream: its calls, retries, replies, and the faults that come before a reply.

aiohttp's `sock_read` serves until the headers are in. After that its timer would cost a tenth of each chunk, so one
timer per upstream watches all of its replies (`IdleTimeout`).
"""

import asyncio
import errno
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import cached_property, lru_cache
from http import HTTPStatus
from typing import Self
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.payload import Payload
from msgspec import Struct
from multidict import CIMultiDict
from yarl import URL

from proxy import events
from proxy.config.settings import Upstream
from proxy.config.values import Secret, reveal
from proxy.foundation.errors import BadRequest, ProxyError, UpstreamBroke, UpstreamTimeout, UpstreamUnreachable
from proxy.foundation.lifetime import LARGE, Lease, Leases
from proxy.wire.encodings import DecodedTooLarge, UndecodableBody, can_decode, decode_body
from proxy.wire.http_head import (
    CREDENTIALS,
    TOO_MANY_HEADERS,
    Caller,
    Headers,
    Trace,
    find_credentials,
    find_encoding,
    find_header,
    is_event_stream,
    remove_headers,
    select_for_client,
    select_for_upstream,
)

LINE_LIMIT_BYTES = 64 * 1024
HEADERS_MAX = 1000
"""The number of headers that an answer may have: more than any gateway or CDN adds."""
# The client's would name another account than the key does:
# <https://platform.openai.com/docs/api-reference/authentication>.
_ACCOUNT_NAMES = CREDENTIALS | {"openai-organization", "openai-project"}
# Python finds each member of `HTTPStatus` by a property, which is slow.
_OK, _SWITCHING_PROTOCOLS = HTTPStatus.OK.value, HTTPStatus.SWITCHING_PROTOCOLS.value


def as_proxy_error(fault: aiohttp.ClientError | OSError, upstream: Upstream) -> ProxyError:
    """Return a fault of aiohttp before a reply as an error that names the culprit and the remedy."""
    if isinstance(fault.__cause__, ProxyError):
        return fault.__cause__  # the client's body broke off while it was being forwarded
    who = f'upstream "{upstream.name}" ({urlsplit(upstream.base_url).netloc})'  # a base_url holds no credentials
    not_running = "is the server running? check base_url"
    kind: type[ProxyError] = UpstreamUnreachable
    match fault:
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            message = f"the HTTP proxy in front of {who} refused the connection: check HTTPS_PROXY"
        case aiohttp.ClientConnectorDNSError():
            message = f"{who}: host name not found: check base_url and DNS"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            is_certificate = isinstance(fault, aiohttp.ClientConnectorCertificateError)
            cause = fault.certificate_error if is_certificate else fault.os_error
            why = getattr(cause, "verify_message", None) or getattr(cause, "reason", None) or "the handshake failed"
            message = f"{who}: TLS failed: {why}; check base_url, or name the server's authority in `upstreams.ca_file`"
        case aiohttp.ClientConnectorError():
            why = os.strerror(fault.os_error.errno or errno.ECONNREFUSED)
            message = f"{who}: cannot connect: {why}; {not_running}"
        case aiohttp.ConnectionTimeoutError():
            kind = ConnectTimeout
            message = f"{who} took no connection within {upstream.connect_seconds:g} s (connect_seconds); {not_running}"
        case TimeoutError():
            kind = UpstreamTimeout
            message = f"{who} did not answer within {_describe_silence(upstream.silence_seconds)}"
        case aiohttp.ClientResponseError():
            kind, message = UpstreamBroke, f"{who} sent {_explain_unreadable(fault)}"
        case _:
            kind, message = UpstreamBroke, f"{who} closed the connection before answering: send the request again"
    return kind(message)


def _describe_silence(seconds: float) -> str:
    return f"{seconds:g} s: send the request again, or have the proxy's operator raise `upstreams.silence_seconds`"


def _explain_unreadable(fault: aiohttp.ClientResponseError) -> str:
    """Describe an unreadable answer without quoting it: a header may hold a credential."""
    # Between the two is the error that aiohttp hands from its parser to the request.
    match fault.__cause__ and fault.__cause__.__cause__:
        case LineTooLong():
            return f"a response with a header line longer than {LINE_LIMIT_BYTES // 1024} KiB"
        case BadHttpMessage(message=message) if message == TOO_MANY_HEADERS:
            return f"a response with more than {HEADERS_MAX:,} headers"
        case _:
            return "a response that is not HTTP"


class ConnectTimeout(UpstreamUnreachable):
    """No connection was accepted in time. Nothing was sent, so it is tried again; to the client it is a timeout."""

    status, code = 504, "upstream_timeout"


Body = bytes | AsyncIterator[bytes] | None


class Call(Struct, frozen=True, dict=True):  # `dict` holds the cached properties
    """A request to an upstream. `path` is below /v1 and in its normal form."""

    method: str
    path: str
    query: str
    headers: Headers
    body: Body
    caller: Caller = Caller()
    credential: Secret | None = None
    """The key that the team of the caller has for this upstream."""
    request_id: str = ""
    trace: Trace | None = None
    """The trace to send, or None if the client's `traceparent` is forwarded as it came."""

    @cached_property
    def identity(self) -> Headers:
        """Return all credentials that the request shows."""
        return (*find_credentials(self.headers, self.query), *self.caller.identified_by)

    @cached_property
    def fingerprint(self) -> int:
        """Return a hash of the caller, salted by the process: not even the hash of a credential is ever on disk."""
        return hash((self.caller.tenant, self.identity))


def _build_url(base: str, path: str, query: str, model: str | None) -> URL:
    if "{model}" in base:
        # Dots and slashes could lead the configured key elsewhere.
        if not model or "/" in model or "\\" in model or not model.strip("."):
            raise BadRequest(
                "missing or unsuitable `model`: this upstream's URL contains the model's name, so the request must "
                "name a model without slashes"
            )
        base = base.replace("{model}", quote(model, safe="", errors="replace"))
    return URL(f"{base}{path}?{query}" if query else base + path, encoded=True)


# Parsing a URL costs as much as all other work on headers. A client's query may hold its key, and is not cached.
_build_plain_url = lru_cache(maxsize=256)(_build_url)


def _make_key_header(upstream: Upstream, key: Secret) -> dict[str, str]:
    if upstream.key_header == "authorization":
        return {"authorization": f"Bearer {key.value}"}
    return {upstream.key_header: key.value}


class IdleTimeout:
    """Ends replies that say nothing for `silence_seconds`, at most a second late."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._check_seconds = min(1.0, seconds / 4)
        self.silent_since: dict[aiohttp.StreamReader, float | None] = {}
        """The time of each reply's last chunk. None while that chunk is with the client, who may be slow."""
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, response: aiohttp.ClientResponse) -> None:
        loop = asyncio.get_running_loop()
        self.silent_since[response.content] = loop.time()
        # A response that came whole has returned its connection already.
        if response.connection is not None and response.connection.protocol is not None:
            response.connection.protocol.read_timeout = None
            self._timer = self._timer or loop.call_later(self._check_seconds, self._check)

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        earliest = loop.time() - self.seconds
        for content, since in list(self.silent_since.items()):
            if since is not None and since <= earliest:
                del self.silent_since[content]
                content.set_exception(aiohttp.SocketTimeoutError())
        self._timer = loop.call_later(self._check_seconds, self._check) if self.silent_since else None


class Reply:
    """An upstream's answer whose headers have arrived and whose body is still to come."""

    def __init__(
        self, response: aiohttp.ClientResponse, upstream: Upstream, idle_timeout: IdleTimeout, *, is_last: bool
    ) -> None:
        self._response = response
        self._name = upstream.name
        self._idle_timeout = idle_timeout
        self._peeked = b""
        self._fault: UpstreamBroke | UpstreamTimeout | None = None
        self.status = response.status
        self.is_good = response.status == _OK
        self.reason = response.reason or ""
        if not self.reason.replace("\t", "").isprintable():
            self.reason = ""
        # No page of another site may read an answer that the proxy's own key paid for.
        cross_origin = not upstream.holds_secret
        self.headers = select_for_client(tuple(response.headers.items()), cross_origin=cross_origin)
        self.is_event_stream = is_event_stream(self.headers)
        is_stream = response.headers.get("Content-Type", "").startswith("text/event-stream")
        # The length of aiohttp's protocol is that of a queue, which is empty now: as a condition, it would be false.
        if is_last and is_stream and response.connection is not None and response.connection.protocol is not None:
            response.connection.protocol.force_close()  # at the end of the stream: see `Client._closes_after_streams`

    async def peek(self, is_enough: Callable[[bytes | bytearray], bool], seconds: float | None = None) -> bytes | None:
        """Return the beginning of the body, or None if it broke off. `chunks` yields it again, and raises the fault.

        After `seconds` the beginning is long enough, even if it is empty.
        """
        content = self._response.content
        if not self._peeked and content.exception() is None:
            self._peeked = content.read_nowait()
            if self._peeked and is_enough(self._peeked):
                return self._peeked  # most answers come with their headers: no timer and no generator for them
        read = bytearray()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds), aclosing(self.chunks()) as chunks:
                    async for chunk in chunks:
                        read += chunk
                        if is_enough(read):
                            break
        except (UpstreamBroke, UpstreamTimeout) as fault:
            self._fault = fault
            return None
        finally:
            self._peeked = bytes(read)
        return self._peeked

    async def decompress(self, limit: int) -> None:
        """Decompress a body. One that is too large or unreadable stays as it came."""
        encoding = find_encoding(self.headers)
        if not encoding or not can_decode(encoding):
            return
        body = await self.peek(lambda read: len(read) > limit)
        if body is not None and len(body) <= limit:
            with suppress(DecodedTooLarge, UndecodableBody):
                self._peeked = await LARGE.run(decode_body, body, encoding, limit)
                self.headers = remove_headers(self.headers, "content-encoding", "content-length")
                self.is_event_stream = is_event_stream(self.headers)

    async def chunks(self) -> AsyncGenerator[bytes]:
        if self._peeked:
            yield self._peeked
        if self._fault is not None:
            raise self._fault
        content, who, now = self._response.content, f'upstream "{self._name}"', asyncio.get_running_loop().time
        silent_since = self._idle_timeout.silent_since
        self._idle_timeout.watch(self._response)
        try:
            while not content.at_eof() and (chunk := await content.readany()):
                silent_since[content] = None
                yield chunk
                silent_since[content] = now()
        except aiohttp.SocketTimeoutError:
            silence = _describe_silence(self._idle_timeout.seconds)
            raise UpstreamTimeout(f"{who} fell silent in the middle of its answer, for {silence}") from None
        except (aiohttp.ClientError, OSError):
            # aiohttp raises the fault before the bytes that a busy proxy has not read yet.
            content.set_exception(None)  # type: ignore[arg-type]
            if unread := content.read_nowait():
                yield unread
            raise UpstreamBroke(f"{who} closed the connection in the middle of its answer") from None
        finally:
            silent_since.pop(content, None)

    def close(self) -> None:
        self._response.close()


def find_proxy(base_url: str) -> str | None:
    """Return the URL of the environment's proxy. aiohttp's `trust_env` finds it as well, but sends what .netrc has."""
    url = urlsplit(base_url)
    return None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)


class Client:
    """All connections to one upstream, shared by configurations, requests and calls for summaries.

    They are closed after the last lease. `async with` holds one.
    """

    def __init__(self, upstream: Upstream, emit: events.Listener) -> None:
        self.upstream = upstream
        self._emit = emit
        self._query = urlencode(upstream.query)
        self._added_headers = CIMultiDict({"Accept-Encoding": "identity"})  # the proxy must read the answers
        for name, value in upstream.headers.items():
            self._added_headers[name] = reveal(value)
        if upstream.key:
            self._added_headers.update(_make_key_header(upstream, upstream.key))
        self._proxy = find_proxy(upstream.base_url)
        self._idle_timeout = IdleTimeout(upstream.silence_seconds)
        self._leases = Leases(self._begin_closing)
        self._closing: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()
        # Some servers (llama.cpp's) close the connection after a stream without announcing it, and the next request
        # would fail. So a stream is the last reply on its connection over plain HTTP, or if this has happened once.
        self._closes_after_streams = upstream.base_url.startswith("http:")
        tls_context: ssl.SSLContext | bool = True
        if upstream.ca_file or upstream.client_cert:
            tls_context = context = ssl.create_default_context(cafile=upstream.ca_file)
            if upstream.client_cert:
                context.load_cert_chain(upstream.client_cert)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,  # `listen.max_in_flight` bounds them
                # A request on a connection that its server is just closing fails; most clients keep one for 15 s.
                keepalive_timeout=15,
                ssl=tls_context,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),  # clients share this session, and would share its cookies
            auto_decompress=False,  # the client gets a body in the coding in which it came
            # The client's own are forwarded, or none.
            skip_auto_headers=("User-Agent", "Accept", "Content-Type"),
            timeout=aiohttp.ClientTimeout(sock_connect=upstream.connect_seconds, sock_read=upstream.silence_seconds),
            read_bufsize=256 * 1024,
            max_line_size=LINE_LIMIT_BYTES,
            max_field_size=LINE_LIMIT_BYTES,
            max_headers=HEADERS_MAX,
        )

    def lease(self) -> Lease:
        return self._leases.take()

    async def __aenter__(self) -> Self:
        self._own_lease = self.lease()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._own_lease.release()
        await self.wait_closed()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    def _begin_closing(self) -> None:
        async def close() -> None:
            await self._session.close()
            self._closed.set()

        self._closing = asyncio.get_running_loop().create_task(close())

    @asynccontextmanager
    async def send(self, call: Call, model: str | None, *, at_server_root: bool = False) -> AsyncGenerator[Reply]:
        with self.lease():
            reply = await self.open(call, model, at_server_root=at_server_root)
            try:
                yield reply
            finally:
                reply.close()

    async def open(self, call: Call, model: str | None, *, at_server_root: bool = False) -> Reply:
        """Send a call for a caller that holds a lease and closes the reply.

        `at_server_root`: the path is outside the API's base path. A cancellation leaves no reply open: aiohttp closes a
        request that is cancelled, and nothing is awaited after it.
        """
        base = self.upstream.base_url
        if at_server_root:
            url = URL(base).origin().with_path(call.path)
        elif call.query:
            url = _build_url(base, call.path, "&".join(filter(None, (call.query, self._query))), model)
        else:
            url = _build_plain_url(base, call.path, self._query, model)
        has_own_key = self.upstream.key is not None or call.credential is not None
        removed_names: frozenset[str] = _ACCOUNT_NAMES if has_own_key else frozenset()
        headers = CIMultiDict(select_for_upstream(call.headers, without=removed_names))
        headers.update(self._added_headers)
        if call.credential is not None:
            headers.update(_make_key_header(self.upstream, call.credential))
        if call.trace is not None:
            headers["traceparent"] = call.trace.traceparent
        body = call.body
        # A streamed body keeps the client's length; without one, it is sent in chunks.
        if not isinstance(body, bytes):
            length = find_header(call.headers, "content-length")
            if length:
                headers["Content-Length"] = length
        retries = self.upstream.retries if body is None or isinstance(body, bytes) else 0  # a stream is read once
        for attempt in range(1, 1 + retries):
            try:
                return await self._send(call.method, url, headers, body)
            except UpstreamUnreachable as fault:
                self._emit(events.UpstreamRetried(self.upstream.name, fault.code, attempt))
                await asyncio.sleep(0.1 * attempt)  # a server that restarts takes connections again in a moment
        return await self._send(call.method, url, headers, body)

    async def _send(self, method: str, url: URL, headers: CIMultiDict[str], body: Body) -> Reply:
        try:
            response = await self._session.request(
                method,
                url,
                headers=headers,
                data=_BytesPayload(body) if isinstance(body, bytes) else body,
                allow_redirects=False,  # the client gets them
                proxy=self._proxy,
            )
        except (aiohttp.ClientError, OSError) as fault:
            self._closes_after_streams = self._closes_after_streams or isinstance(
                fault, aiohttp.ServerDisconnectedError | ConnectionResetError
            )
            raise as_proxy_error(fault, self.upstream) from None
        if response.status == _SWITCHING_PROTOCOLS:
            response.close()
            raise UpstreamBroke(f'upstream "{self.upstream.name}" switched to another protocol instead of answering')
        return Reply(response, self.upstream, self._idle_timeout, is_last=self._closes_after_streams)


class _BytesPayload(Payload):
    """A body that is written in one go. aiohttp's own payload warns at 1 MiB, an ordinary history here."""

    _autoclose = True

    def __init__(self, value: bytes) -> None:
        super().__init__(value)
        self._size = len(value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        if len(self._value) > 16 * 1024:  # a smaller one is sent in one packet with its headers
            writer.send_headers()  # otherwise aiohttp copies a megabyte to put the headers in front of it
        await writer.write(self._value)
