"""The work for one request: it ends if the client has left, and a stranger's if it takes too long.

    gateway    WORK.set(Work(...))         before anything of the body is read
    lanes      work.measure(act)           carry it into their threads, and measure the CPU time of each act
    core       check_work()                in the loops over messages, pieces of text and pieces of a body

It decides only whether work continues, and never changes a result: a request that is stopped has none.
"""

from collections.abc import Callable
from contextvars import ContextVar
from time import thread_time
from typing import TypeVar

from msgspec import Struct

from proxy.foundation.errors import TooMuchWork

Result = TypeVar("Result")

# A stranger that takes more is relayed unchanged: a new client with an unusual history must be able to become known
# (decision 0009).
BUDGET_SECONDS = 2.0
BUDGET_SECONDS_PER_MIB = 10.0
"""CPU time for each MiB of a body, besides `BUDGET_SECONDS`. Usual histories take less than a quarter of their sum."""


class ClientLeftError(Exception):
    """The client has left, so the result of this work is not needed."""


class Work(Struct):
    is_known: Callable[[], bool]
    """Tell whether an upstream has accepted this caller, or its key is that of a team."""
    body_bytes: int = 0
    """The more there are, the more CPU time there is for a caller that is not known."""
    has_left: bool = False
    is_accepted: bool = False
    """The upstream has taken the request: the work after that is done to its end, also if the client leaves."""
    _spent_seconds: float = 0.0
    _began_at: float | None = None
    """When the thread that works on it began, by its own CPU time; None for a caller that is known."""

    @property
    def budget_seconds(self) -> float:
        return BUDGET_SECONDS + BUDGET_SECONDS_PER_MIB * self.body_bytes / (1024 * 1024)

    def measure(self, act: Callable[[], Result]) -> Result:
        """Call *act* on account of this request, in the thread that calls this."""
        if self.is_accepted or self.is_known():
            return act()
        self._began_at = thread_time()
        try:
            return act()
        finally:
            self._spent_seconds += thread_time() - self._began_at
            self._began_at = None

    def check(self) -> None:
        """Raise ClientLeftError or TooMuchWork if the work is to end here."""
        if self.is_accepted:
            return
        if self.has_left:
            raise ClientLeftError
        if self._began_at is None:
            return
        if self._spent_seconds + thread_time() - self._began_at > self.budget_seconds:
            raise TooMuchWork(
                "this request takes more processor time than the proxy spends on a caller whose key no upstream has "
                "accepted yet: send a smaller one first"
            )


WORK: ContextVar[Work | None] = ContextVar("WORK", default=None)
"""That of the request that is worked on; None for all other work."""


def check_work() -> None:
    """Raise if the work for the current request is to end."""
    work = WORK.get()
    if work is not None:
        work.check()
