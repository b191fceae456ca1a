"""Posts to hooks and collectors, which are programs of other people.

Redirects are not followed, because they could lead to an inner address. Warnings name the host only: the path of many
services is their secret.
"""

import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

import aiohttp

WARNING_INTERVAL_SECONDS = 60.0
"""Warn about one receiver at most this often."""


class Receiver:
    """A URL to post to, on the event loop. `warn` gets a sentence for the operator."""

    def __init__(self, kind: str, url: str, timeout_seconds: float, warn: Callable[[str], None]) -> None:
        self._url = url
        self._name = f"{kind} {urlsplit(url).hostname or 'url'}"
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._warn = warn
        self._next_warning_at = 0.0

    async def post(self, body: bytes, headers: Mapping[str, str], path: str = "") -> str:
        """Post the body once. Return the reason of a failure, or an empty string."""
        # A session for each post: posts are rare, and nothing is left to close.
        session = aiohttp.ClientSession(
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=True,  # honour HTTPS_PROXY and the like
        )
        try:
            async with (
                session,
                session.post(self._url + path, data=body, headers=headers, allow_redirects=False) as response,
            ):
                if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                    return f"answered {response.status}"
                return ""
        except aiohttp.ClientConnectorError as fault:
            return f"failed: {type(fault.os_error).__name__}"
        except (aiohttp.ClientError, OSError, ValueError) as fault:  # a TimeoutError is an OSError
            return f"failed: {type(fault).__name__}"

    def complain(self, problem: str) -> None:
        """Warn the operator, unless that was done within the last minute."""
        now = time.monotonic()
        if now >= self._next_warning_at:
            self._next_warning_at = now + WARNING_INTERVAL_SECONDS
            self._warn(f"{self._name} {problem}")
