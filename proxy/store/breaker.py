"""A circuit breaker: while a store is out, calls fail at once, and a task in the background tries it again."""

import asyncio
from collections.abc import Awaitable, Callable

from proxy.store.contract import StoreUnavailable


class Breaker:
    """The state of a store: it is out while `fault` is set.

    Any thread may set that, and `attempt` clears it if the store works again. The rest is for the event loop.
    """

    def __init__(self, attempt: Callable[[], Awaitable[None]], pause_seconds: float) -> None:
        self.fault = ""
        """The reason why the store cannot be used now, or empty."""
        self._attempt = attempt
        self._pause_seconds = pause_seconds
        self._trying: asyncio.Task[None] | None = None
        self._is_closed = False

    def check(self) -> None:
        """Raise StoreUnavailable during an outage."""
        if self.fault:
            self.begin_trying()
            raise StoreUnavailable(self.fault)

    def open(self, fault: str) -> StoreUnavailable:
        """Begin an outage, and return the exception for the call that noticed it."""
        self.fault = fault
        self.begin_trying()
        return StoreUnavailable(fault)

    def begin_trying(self) -> None:
        if self.fault and not self._is_closed and (self._trying is None or self._trying.done()):
            self._trying = asyncio.get_running_loop().create_task(self._try())

    async def close(self) -> None:
        self._is_closed = True
        if self._trying is not None:
            self._trying.cancel()
            await asyncio.gather(self._trying, return_exceptions=True)

    async def _try(self) -> None:
        while self.fault:
            await self._attempt()
            if self.fault:
                await asyncio.sleep(self._pause_seconds)
