"""Posts to a program of other people: what goes wrong becomes a warning for operators, now and then.

Redirects are not followed: they could lead to an inner address. Warnings name the host only, because of many services
the path is the secret.
"""

import http.client
import io
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any
from urllib.parse import urlsplit

WARNING_INTERVAL_SECONDS = 60.0
"""Of a receiver that goes on failing there is one warning in this time."""


class Receiver:
    """A URL that is posted to. Posting blocks: it is for a thread. `warn` gets a sentence for the operator."""

    def __init__(self, kind: str, url: str, timeout_seconds: float, warn: Callable[[str], None]) -> None:
        self._url = url
        self._name = f"{kind} {urlsplit(url).hostname or 'url'}"
        self._timeout_seconds = timeout_seconds
        self._warn = warn
        self._next_warning_at = 0.0

    def post(self, body: bytes, headers: Mapping[str, str], path: str = "") -> str:
        """Post this. Returns why it failed; empty: it did not."""
        try:
            request = urllib.request.Request(self._url + path, body, dict(headers))  # noqa: S310 (http or https)
            with _opener().open(request, timeout=self._timeout_seconds):
                return ""
        except urllib.error.HTTPError as fault:
            fault.close()
            return f"answered {fault.code}"
        except (OSError, ValueError, http.client.HTTPException) as fault:
            reason = getattr(fault, "reason", None)
            return f"failed: {type(reason if isinstance(reason, Exception) else fault).__name__}"

    def complain(self, why: str) -> None:
        """Warn the operator, unless that was done a moment ago."""
        now = time.monotonic()
        if now >= self._next_warning_at:
            self._next_warning_at = now + WARNING_INTERVAL_SECONDS
            self._warn(f"{self._name} {why}")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Return None: the redirect is not followed."""


class _TimedReader(io.RawIOBase):
    """Reader of a socket with a deadline for all reads together: the timeout of a socket is for each read."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock, self._deadline = sock, deadline
        self._file = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 (any buffer)
        _limit(self._sock, self._deadline)
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, deadline: float, sock: socket.socket, *args: Any, **more: Any) -> None:  # noqa: ANN401
        super().__init__(sock, *args, **more)
        self.fp.close()
        self.fp = io.BufferedReader(_TimedReader(sock, deadline))


class _TimedConnection(http.client.HTTPConnection):
    """A connection whose timeout is that of the whole call."""

    def __init__(self, *args: Any, **more: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **more)
        self._deadline = time.monotonic() + (self.timeout or 0)
        self.response_class = partial(_TimedResponse, self._deadline)  # type: ignore[assignment]

    def connect(self) -> None:
        super().connect()
        _limit(self.sock, self._deadline)


class _TimedSecureConnection(_TimedConnection, http.client.HTTPSConnection):
    """The same with TLS."""


class _TimedHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_TimedConnection, req)


class _TimedSecureHandler(urllib.request.HTTPSHandler):
    def __init__(self) -> None:
        self._tls = ssl.create_default_context()
        super().__init__(context=self._tls)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_TimedSecureConnection, req, context=self._tls)


def _limit(sock: socket.socket, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    sock.settimeout(left)


@cache
def _opener() -> urllib.request.OpenerDirector:
    # Made at the first use: it reads the certificates of this machine.
    return urllib.request.build_opener(_NoRedirects, _TimedHandler, _TimedSecureHandler)
