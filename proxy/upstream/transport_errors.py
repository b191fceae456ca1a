"""Transport errors: what aiohttp raises before a reply comes, as an error that says who failed and what to do."""

import errno
import os
from urllib.parse import urlsplit

import aiohttp

from proxy.config import Upstream
from proxy.errors import ProxyError, UpstreamBroke, UpstreamTimeout, UpstreamUnreachable


def as_proxy_error(fault: aiohttp.ClientError | OSError, settings: Upstream) -> ProxyError:
    if isinstance(fault.__cause__, ProxyError):
        return fault.__cause__  # the client's body broke off while it was being forwarded
    who = f'upstream "{settings.name}" ({urlsplit(settings.base_url).hostname})'
    if isinstance(fault, aiohttp.ClientConnectorError | aiohttp.ClientHttpProxyError):
        return UpstreamUnreachable(_why_unreachable(fault, who))
    if isinstance(fault, aiohttp.ConnectionTimeoutError):
        return ConnectTimeout(f"{who} did not accept a connection within {settings.connect_seconds:g} s")
    if isinstance(fault, TimeoutError):
        return UpstreamTimeout(f"{who} did not answer within {settings.silence_seconds:g} s")
    if isinstance(fault, aiohttp.ClientResponseError):
        return UpstreamBroke(f"{who} sent a response that is not HTTP")
    return UpstreamBroke(f"{who} closed the connection before answering")


def _why_unreachable(fault: aiohttp.ClientConnectorError | aiohttp.ClientHttpProxyError, who: str) -> str:
    match fault:
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            return f"the HTTP proxy in front of {who} refused the connection: check HTTPS_PROXY"
        case aiohttp.ClientConnectorDNSError():
            return f"{who}: host name not found: check base_url and DNS"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return f"{who}: TLS failed: {_tls_reason(fault)}"
        case _:
            return f"{who}: cannot connect: {os.strerror(fault.os_error.errno or errno.ECONNREFUSED)}"


def _tls_reason(fault: aiohttp.ClientConnectorCertificateError | aiohttp.ClientConnectorSSLError) -> str:
    cause = fault.certificate_error if isinstance(fault, aiohttp.ClientConnectorCertificateError) else fault.os_error
    return getattr(cause, "verify_message", None) or getattr(cause, "reason", None) or "the handshake failed"


class ConnectTimeout(UpstreamUnreachable):
    """Connecting took too long. Nothing was sent, so it may be tried again; to the client it is a timeout."""

    status, code = 504, "upstream_timeout"
