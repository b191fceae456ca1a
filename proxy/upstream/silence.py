"""Answers that say nothing for too long are broken off, by one timer for all of an upstream's answers.

aiohttp's own `sock_read` serves until the headers are in. After that it would set a timer anew for each chunk, a tenth
of what a chunk costs; a timer for each answer would still be a thirtieth of what a small request costs.
"""

import asyncio

import aiohttp

_LATEST_CHECK_SECONDS = 1.0


class IdleClock:
    """`since` when an answer has said nothing; None while its client takes its time, for that is not the upstream's."""

    __slots__ = ("content", "silent_since")

    def __init__(self, content: aiohttp.StreamReader, silent_since: float) -> None:
        self.content = content
        self.silent_since: float | None = silent_since


class IdleTimeout:
    """Those of the answers that are being read. Noticed at most a second late."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._check_seconds = min(_LATEST_CHECK_SECONDS, seconds / 4)
        self._clocks: set[IdleClock] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, response: aiohttp.ClientResponse) -> IdleClock:
        loop = asyncio.get_running_loop()
        clock = IdleClock(response.content, loop.time())
        if response.connection is not None and response.connection.protocol is not None:
            response.connection.protocol.read_timeout = None
            self._clocks.add(clock)
            self._timer = self._timer or loop.call_later(self._check_seconds, self._check)
        return clock

    def unwatch(self, clock: IdleClock) -> None:
        self._clocks.discard(clock)

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        earliest = loop.time() - self._seconds
        for clock in [each for each in self._clocks if each.silent_since is not None and each.silent_since <= earliest]:
            self._clocks.discard(clock)
            clock.content.set_exception(aiohttp.SocketTimeoutError())
        self._timer = loop.call_later(self._check_seconds, self._check) if self._clocks else None
