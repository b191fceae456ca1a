"""Posts to a program of other people: what goes wrong becomes a warning for operators, now and then.

Redirects are not followed: they could lead to an inner address. Warnings name the host only, because of many services
the path is the secret.
"""

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import cache
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


@cache
def _opener() -> urllib.request.OpenerDirector:
    # Made at the first use: it reads the certificates of this machine.
    return urllib.request.build_opener(_NoRedirects)
