"""Answers that say nothing for too long are broken off, by one timer for all of an upstream's answers.

aiohttp's own `sock_read` serves until the headers are in. After that it would set a timer anew for each chunk, a tenth
of what a chunk costs; a timer for each answer would still be a thirtieth of what a small request costs.
"""

import asyncio

import aiohttp

_LATEST_SECONDS = 1.0


class Silence:
    """`since` when an answer has said nothing; None while its client takes its time, for that is not the upstream's."""

    __slots__ = ("content", "since")

    def __init__(self, content: aiohttp.StreamReader, since: float) -> None:
        self.content = content
        self.since: float | None = since


class Silences:
    """Those of the answers that are being read. Noticed at most a second late."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rest = min(_LATEST_SECONDS, seconds / 4)
        self._open: set[Silence] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, response: aiohttp.ClientResponse) -> Silence:
        loop = asyncio.get_running_loop()
        silence = Silence(response.content, loop.time())
        if response.connection is not None and response.connection.protocol is not None:
            response.connection.protocol.read_timeout = None
            self._open.add(silence)
            self._timer = self._timer or loop.call_later(self._rest, self._look)
        return silence

    def end(self, silence: Silence) -> None:
        self._open.discard(silence)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        earliest = loop.time() - self._seconds
        for silence in [each for each in self._open if each.since is not None and each.since <= earliest]:
            self._open.discard(silence)
            silence.content.set_exception(aiohttp.SocketTimeoutError())
        self._timer = loop.call_later(self._rest, self._look) if self._open else None
