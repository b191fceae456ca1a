"""The one door to a model's API: connect, send, stream the answer; retry only while nothing was sent.

aiohttp's client, because it costs a third of the alternatives per request and per chunk (docs/decisions/0002).
Nothing here reads what it carries: bodies go out as they are, answers come back raw (never unpacked, never
redirected, no cookie kept), and what the library raises becomes one of our few errors at this border.
"""

import asyncio
import errno
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from multidict import CIMultiDict
from yarl import URL

from proxy import events
from proxy.config import Secret, Upstream
from proxy.errors import BadRequest, ProxyError, UpstreamBroke, UpstreamTimeout, UpstreamUnreachable
from proxy.wire import headers as wire_headers
from proxy.wire.caller import ANYBODY, Caller
from proxy.wire.headers import Headers

Body = bytes | AsyncIterator[bytes] | None

_ADDED_BY_AIOHTTP = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
# Below what servers keep an idle connection for would be safest; 15 s is what most clients do.
_IDLE_SECONDS = 15
_READ_BUFFER = 256 * 1024
# A body of this size leaves in one packet with its headers.
_ONE_PACKET = 16 * 1024


@dataclass(frozen=True, slots=True)
class Call:
    """What a client asked for. `path` is below /v1 and in its normal form."""

    method: str
    path: str
    query: str
    headers: Headers
    body: Body
    caller: Caller = ANYBODY
    credential: Secret | None = None
    """The upstream key of the caller's team, in place of the upstream's own."""


class Reply:
    """An answer whose headers are in and whose body is still to come."""

    __slots__ = ("_ahead", "_closed", "_is_last", "_response", "_settings", "headers", "is_good", "reason", "status")

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        settings: Upstream,
        closed: Callable[[], Awaitable[None]],
        *,
        is_last: bool,
    ) -> None:
        self._response = response
        self._settings = settings
        self._closed = closed
        self._is_last = is_last
        self._ahead = b""
        self.status = response.status
        self.is_good = response.status == HTTPStatus.OK
        self.reason = response.reason or ""
        self.headers = wire_headers.to_client(tuple(response.headers.items()))

    async def ahead(self, enough: Callable[[bytes], bool]) -> bytes | None:
        """The answer as far as somebody must know it before it is handed on; `chunks` begins with it all the same.

        None: it broke off. Whoever goes on reading runs into that again.
        """
        read = b""
        try:
            async with aclosing(self.chunks()) as chunks:
                async for chunk in chunks:
                    read += chunk
                    if enough(read):
                        break
        except (UpstreamBroke, UpstreamTimeout):
            return None
        finally:
            self._ahead = read
        return read

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Chunk for chunk as the socket delivered it."""
        if self._ahead:
            yield self._ahead
        if self._is_last:
            self._hang_up_afterwards()
        content, who = self._response.content, f'upstream "{self._settings.name}"'
        silence, now = _Silence(self._response, self._settings.silence_seconds), asyncio.get_running_loop().time
        try:
            while chunk := await content.readany():
                silence.since = None
                yield chunk
                silence.since = now()
        except aiohttp.SocketTimeoutError:
            raise UpstreamTimeout(f"{who} fell silent in the middle of its answer") from None
        except (aiohttp.ClientError, OSError):
            raise UpstreamBroke(f"{who} broke off in the middle of its answer") from None
        finally:
            silence.stop()

    def _hang_up_afterwards(self) -> None:
        """Once a stream is through; nobody else is to use this connection."""
        connection = self._response.connection
        kind = wire_headers.find(self.headers, "content-type") or ""
        if kind.startswith("text/event-stream") and connection is not None and connection.protocol is not None:
            connection.protocol.force_close()

    async def close(self) -> None:
        """Let go of the connection: one whose answer was read whole has gone back to the pool by itself."""
        self.discard()
        await self._closed()

    def discard(self) -> None:
        self._response.close()


class _Silence:
    """Breaks off an answer that says nothing for too long, with one timer for all of it.

    aiohttp's own `sock_read` sets a timer anew for each chunk, a tenth of what a chunk costs. It serves until the
    headers are in. `since` is None while a client takes its time: that is not the upstream's silence.
    """

    __slots__ = ("_content", "_loop", "_seconds", "_timer", "since")

    def __init__(self, response: aiohttp.ClientResponse, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._content = response.content
        self._seconds = seconds
        self.since: float | None = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        if response.connection is not None and response.connection.protocol is not None:
            response.connection.protocol.read_timeout = None
            self._timer = self._loop.call_later(seconds, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        due = self._seconds + (now if self.since is None else self.since)
        if due > now:
            self._timer = self._loop.call_at(due, self._look)
        else:
            self._content.set_exception(aiohttp.SocketTimeoutError())


class Client:
    """All connections to one upstream."""

    def __init__(self, settings: Upstream, emit: events.Listener) -> None:
        self.settings = settings
        self._emit = emit
        self._added = _added_headers(settings)
        self._dropped = _dropped_headers(settings)
        self._query = urlencode(settings.query)
        self._proxy = _proxy_for(settings.base_url)
        self._in_use = 0
        self._retired = False
        # Some servers hang up after a stream without saying so before (llama.cpp's does), and the next request meets
        # that. So a stream is the last on its connection where a new one costs nothing, and where it has happened.
        self._hangs_up = settings.base_url.startswith("http:")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=settings.max_connections, keepalive_timeout=_IDLE_SECONDS, ssl=_tls(settings)
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(sock_connect=settings.connect_seconds, sock_read=settings.silence_seconds),
            read_bufsize=_READ_BUFFER,
            max_line_size=64 * 1024,
            max_field_size=64 * 1024,
        )

    async def send(self, call: Call, model: str | None, *, beside: bool = False) -> Reply:
        """The first answer worth handing on. A body that is a stream can be sent only once.

        `beside`: the path stands beside the API's, at the server's root, as some servers' own pages do.
        """
        url = _beside(self.settings, call) if beside else self._target(call, model)
        headers = CIMultiDict(wire_headers.to_upstream(call.headers, without=self._dropped))
        headers.update(self._added)
        if call.credential is not None:
            headers.update(_shown_key(self.settings, call.credential))
        if not isinstance(call.body, bytes) and (length := wire_headers.find(call.headers, "content-length")):
            headers["Content-Length"] = length
        reply = None
        self._in_use += 1
        try:
            reply = await self._first_worth_handing_on(call.method, url, headers, call.body)
            return reply
        finally:
            if reply is None:
                await self._done()

    def _target(self, call: Call, model: str | None) -> URL:
        base, added = self.settings.base_url, self._query
        if not call.query:
            return _plain_url(base, call.path, added, model)
        return _url(base, call.path, f"{call.query}&{added}" if added else call.query, model)

    async def _first_worth_handing_on(self, method: str, url: URL, headers: CIMultiDict[str], body: Body) -> Reply:
        for attempt in range(1, 1 + (self.settings.retries if body is None or isinstance(body, bytes) else 0)):
            try:
                reply = await self._once(method, url, headers, body)
            except UpstreamUnreachable as fault:
                await self._again(fault.code, attempt, 0.1 * attempt)
                continue
            wait = self._wait_for(reply)
            if wait is None:
                return reply
            reply.discard()
            await self._again(str(reply.status), attempt, wait)
        return await self._once(method, url, headers, body)

    async def _done(self) -> None:
        self._in_use -= 1
        if self._retired and not self._in_use:
            await self._session.close()

    async def retire(self) -> None:
        """No longer in the configuration: closes when the last request is through."""
        self._retired = True
        if not self._in_use:
            await self._session.close()

    async def _once(self, method: str, url: URL, headers: CIMultiDict[str], body: Body) -> Reply:
        try:
            response = await self._session.request(
                method,
                url,
                headers=headers,
                skip_auto_headers=[name for name in _ADDED_BY_AIOHTTP if name not in headers] or None,
                data=_Bytes(body) if isinstance(body, bytes) else body,
                allow_redirects=False,
                proxy=self._proxy,
            )
        except (aiohttp.ClientError, OSError) as fault:
            self._hangs_up = self._hangs_up or isinstance(fault, aiohttp.ServerDisconnectedError | ConnectionResetError)
            raise _ours(fault, self.settings) from None
        return Reply(response, self.settings, self._done, is_last=self._hangs_up)

    def _wait_for(self, reply: Reply) -> float | None:
        """How long to wait before asking again; None: hand this answer on."""
        if reply.status not in self.settings.retry_statuses:
            return None
        wait = _retry_after(reply.headers)
        return wait if wait <= self.settings.retry_wait_seconds else None

    async def _again(self, why: str, attempt: int, wait: float) -> None:
        self._emit(events.UpstreamRetried(self.settings.name, why, attempt))
        await asyncio.sleep(wait)


class _Bytes(Payload):
    """A body that is written in one go. aiohttp's own warns at 1 MiB, which is an ordinary history here."""

    _autoclose = True

    def __init__(self, value: bytes) -> None:
        super().__init__(value)
        self._size = len(value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        await writer.write(self._value)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:  # noqa: ARG002
        """The length is always the body's own: `Content-Length` of a client is never handed on."""
        if self._size is not None and self._size > _ONE_PACKET:
            writer.send_headers()  # else the library would copy a megabyte to put its headers in front of it
        await writer.write(self._value)


def _beside(settings: Upstream, call: Call) -> URL:
    return URL(settings.base_url).origin().with_path(call.path)


def _url(base: str, path: str, query: str, model: str | None) -> URL:
    if "{model}" in base:
        base = base.replace("{model}", _as_segment(model))
    return URL(f"{base}{path}?{query}" if query else base + path, encoded=True)


def _as_segment(model: str | None) -> str:
    """A model in a path is one name. Dots and slashes in it could lead the configured key elsewhere."""
    if not model or "/" in model or "\\" in model or not model.strip("."):
        raise BadRequest(
            "the upstream's address holds the model's name, and this request names none that can stand there"
        )
    return quote(model, safe="", errors="replace")


# Parsing a URL costs as much as the rest of the header work; paths without a query are few.
_plain_url = lru_cache(maxsize=256)(_url)


def _added_headers(settings: Upstream) -> CIMultiDict[str]:
    added = CIMultiDict({"Accept-Encoding": "identity"})
    for name, value in settings.headers.items():
        added[name] = value.value if isinstance(value, Secret) else value
    if settings.key:
        added.update(_shown_key(settings, settings.key))
    return added


def _shown_key(settings: Upstream, key: Secret) -> dict[str, str]:
    bearer = "Bearer " if settings.key_header == "authorization" else ""
    return {settings.key_header: bearer + key.value}


def _dropped_headers(settings: Upstream) -> frozenset[str]:
    """With a key of ours, nothing that names the client's own account goes along."""
    return wire_headers.CREDENTIALS | wire_headers.ACCOUNTS if settings.key else frozenset()


def _proxy_for(url: str) -> str | None:
    """HTTPS_PROXY and its kin. Asked for once; aiohttp's own way would also read `.netrc` for passwords."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)


def _tls(settings: Upstream) -> ssl.SSLContext | bool:
    if not (settings.ca_file or settings.client_cert):
        return True
    context = ssl.create_default_context(cafile=settings.ca_file)
    if settings.client_cert:
        context.load_cert_chain(settings.client_cert)
    return context


def _retry_after(headers: Headers) -> float:
    """Seconds, from either header that clients read. A date, or nonsense, waits for nobody."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = wire_headers.find(headers, name)
        if value is not None:
            try:
                return max(0.0, float(value) * unit)
            except ValueError:
                return float("inf")
    return 0.5


def _ours(fault: aiohttp.ClientError | OSError, settings: Upstream) -> ProxyError:
    """What the library raised before an answer came, as one of our errors."""
    if isinstance(fault.__cause__, ProxyError):
        return fault.__cause__  # the client's body ended badly while it was being sent on
    who = f'upstream "{settings.name}" ({urlsplit(settings.base_url).hostname})'
    if isinstance(fault, aiohttp.ClientConnectorError | aiohttp.ClientHttpProxyError):
        return UpstreamUnreachable(_why_unreachable(fault, who))
    if isinstance(fault, aiohttp.ConnectionTimeoutError):
        return _Unconnected(f"{who} did not take a connection within {settings.connect_seconds:g} s")
    if isinstance(fault, TimeoutError):
        return UpstreamTimeout(f"{who} did not answer within {settings.silence_seconds:g} s")
    if isinstance(fault, aiohttp.ClientResponseError):
        return UpstreamBroke(f"{who} answered with something that is not HTTP")
    return UpstreamBroke(f"{who} closed the connection before it answered")


def _why_unreachable(fault: aiohttp.ClientConnectorError | aiohttp.ClientHttpProxyError, who: str) -> str:
    match fault:
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            return f"the HTTP proxy on the way to {who} does not let us through: check HTTPS_PROXY"
        case aiohttp.ClientConnectorDNSError():
            return f"{who} has no address: check base_url and DNS"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return f"no TLS connection to {who}: {_tls_reason(fault)}"
        case _:
            return f"{who} does not take connections: {os.strerror(fault.os_error.errno or errno.ECONNREFUSED)}"


def _tls_reason(fault: aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError) -> str:
    cause = fault.certificate_error if isinstance(fault, aiohttp.ClientConnectorCertificateError) else fault.os_error
    return getattr(cause, "verify_message", None) or getattr(cause, "reason", None) or "the handshake failed"


class _Unconnected(UpstreamUnreachable):
    """Nothing was sent, so it may be tried again; to the client it is a timeout."""

    status, code = 504, "upstream_timeout"
