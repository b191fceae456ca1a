"""Errors of requests below /admin. Like all errors of the proxy, none quotes a header or a body."""

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus

from proxy.errors import ProxyError


class NeedsAdminKey(ProxyError):
    status, code = 401, "admin_key_needed"


class Unreadable(ProxyError):
    """A disk or store that cannot be read or written."""

    status, code = 503, "unreadable"


class TooManyTries(ProxyError):
    status, code = 429, "too_many_tries"


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing that is wrong, and where."""

    path: str
    message: str


class Invalid(ProxyError):
    """A query or body that cannot be used, with everything that is wrong with it. Nothing was changed."""

    status, code = HTTPStatus.UNPROCESSABLE_ENTITY, "invalid"

    def __init__(self, message: str, flaws: Iterable[Flaw] = ()) -> None:
        super().__init__(message)
        self.flaws = tuple(flaws)
