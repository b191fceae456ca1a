"""Faults that aiohttp raises before a reply comes, as errors that name the culprit and the remedy."""

import errno
import os
from urllib.parse import urlsplit

import aiohttp
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong

from proxy.config import Upstream
from proxy.foundation.errors import ProxyError, UpstreamBroke, UpstreamTimeout, UpstreamUnreachable
from proxy.wire.http_head import TOO_MANY_HEADERS

LINE_LIMIT_BYTES = 64 * 1024
HEADERS_MAX = 1000
"""The number of headers that an answer may have: more than any gateway or CDN adds."""
_NOT_RUNNING = "is the server running? check base_url"


def as_proxy_error(fault: aiohttp.ClientError | OSError, settings: Upstream) -> ProxyError:
    if isinstance(fault.__cause__, ProxyError):
        return fault.__cause__  # the client's body broke off while it was being forwarded
    who = f'upstream "{settings.name}" ({urlsplit(settings.base_url).netloc})'  # a base_url holds no credentials
    if isinstance(fault, aiohttp.ClientConnectorError | aiohttp.ClientHttpProxyError):
        return UpstreamUnreachable(_explain_unreachable(fault, who))
    if isinstance(fault, aiohttp.ConnectionTimeoutError):
        return ConnectTimeout(
            f"{who} did not accept a connection within {settings.connect_seconds:g} s; {_NOT_RUNNING}"
        )
    if isinstance(fault, TimeoutError):
        return UpstreamTimeout(f"{who} did not answer within {settings.silence_seconds:g} s")
    if isinstance(fault, aiohttp.ClientResponseError):
        return UpstreamBroke(f"{who} sent {_explain_unreadable(fault)}")
    return UpstreamBroke(f"{who} closed the connection before answering")


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


def _explain_unreachable(fault: aiohttp.ClientConnectorError | aiohttp.ClientHttpProxyError, who: str) -> str:
    match fault:
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            return f"the HTTP proxy in front of {who} refused the connection: check HTTPS_PROXY"
        case aiohttp.ClientConnectorDNSError():
            return f"{who}: host name not found: check base_url and DNS"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            is_certificate = isinstance(fault, aiohttp.ClientConnectorCertificateError)
            cause = fault.certificate_error if is_certificate else fault.os_error
            why = getattr(cause, "verify_message", None) or getattr(cause, "reason", None) or "the handshake failed"
            return f"{who}: TLS failed: {why}"
        case _:
            return f"{who}: cannot connect: {os.strerror(fault.os_error.errno or errno.ECONNREFUSED)}; {_NOT_RUNNING}"


class ConnectTimeout(UpstreamUnreachable):
    """No connection was accepted in time. Nothing was sent, so it is tried again; to the client it is a timeout."""

    status, code = 504, "upstream_timeout"
