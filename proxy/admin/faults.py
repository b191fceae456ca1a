"""Why a request below /admin is refused. Like all our errors, none quotes a header or a body."""

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus

from proxy.config import InvalidConfig
from proxy.errors import ProxyError


class NeedsAdminKey(ProxyError):
    status, code = 401, "admin_key_needed"


class HostNotAllowed(ProxyError):
    """Somebody's name leads here that nobody gave to these pages: a page elsewhere may be behind it."""

    status, code = 403, "host_not_allowed"


class ForeignOrigin(ProxyError):
    """A page of another site wants to change something."""

    status, code = 403, "foreign_origin"


class ChangedMeanwhile(ProxyError):
    status, code = 409, "changed_meanwhile"


class NotJson(ProxyError):
    status, code = 415, "not_json"


class Unreadable(ProxyError):
    """A disk or a store does not give what is kept there."""

    status, code = 503, "unreadable"


class TooManyTries(ProxyError):
    status, code = 429, "too_many_tries"


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing that is wrong, and where."""

    path: str
    message: str


class Invalid(ProxyError):
    """What was asked for cannot be: with all that is wrong with it, and nothing was changed."""

    status, code = HTTPStatus.UNPROCESSABLE_ENTITY, "invalid"

    def __init__(self, message: str, flaws: Iterable[Flaw] = ()) -> None:
        super().__init__(message)
        self.flaws = tuple(flaws)

    @classmethod
    def of(cls, refused: InvalidConfig) -> "Invalid":
        flaws = (Flaw(fault.path, f"{fault.message} ({fault.origin})") for fault in refused.faults)
        return cls("the configuration that this would make is not valid; nothing was changed", flaws)
