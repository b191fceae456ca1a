"""Reports of exceptions that asyncio itself caught: the first of each kind at once, then one a second with a count.

One cause may come in floods: if no file descriptor is free, asyncio tries to accept each waiting connection of a
backlog of a thousand, and reports each of them, once a second.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping

from proxy import events

REPORT_SECONDS = 1.0
Fault = tuple[str, str]
"""Kind and place. Values of an exception may hold credentials."""


class LoopFaults:
    """The exception handler of an event loop."""

    def __init__(self, emit: events.Listener, seconds: float = REPORT_SECONDS) -> None:
        self._emit = emit
        self._seconds = seconds
        self._waiting = Counter[Fault]()
        """How often each fault came since its last report. A fault stays here for a second after each report."""

    def __call__(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
        exc = context.get("exception")
        if not isinstance(exc, BaseException):
            return
        fault = events.locate_fault(exc)
        if fault in self._waiting:
            self._waiting[fault] += 1
        else:
            self._report(loop, fault, 1)

    def _report(self, loop: asyncio.AbstractEventLoop, fault: Fault, times: int) -> None:
        self._emit(events.InternalFault("none", *fault, times=times))
        self._waiting[fault] = 0
        loop.call_later(self._seconds, self._report_waiting, loop, fault)

    def _report_waiting(self, loop: asyncio.AbstractEventLoop, fault: Fault) -> None:
        times = self._waiting.pop(fault)
        if times:
            self._report(loop, fault, times)
