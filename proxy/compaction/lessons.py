"""The windows that overflows taught: kept in the store for a day, for each credential by itself.

What the store says counts. Beside it each worker has an inkling of its own, for one purpose only: a history so short
that nothing would be looked up for it may still be too long for a small window, and then it has to be looked at.
"""

from proxy import events
from proxy.compaction.known import who
from proxy.core.window import LEARNED_SECONDS, LearnedLimit, Window, window_from_bytes, window_to_bytes
from proxy.store.promises import Store, StoreUnavailable
from proxy.upstream import Call

REMEMBERED = 10_000

Which = tuple[str, str, int]


def which(upstream: str, model: str, call: Call) -> Which:
    """Whose window it is: upstream, model, credential. The last as a hash that lives no longer than the process."""
    return upstream, model, who(call)


class Lessons:
    """Shared by all requests of a worker."""

    def __init__(self, store: Store, emit: events.Listener) -> None:
        self._store = store
        self._emit = emit
        self._inklings: dict[Which, Window] = {}
        self._heard: dict[Which, Window] = {}

    def inkling(self, which: Which) -> Window | None:
        return self._inklings.get(which)

    def recalled(self, which: Which, value: bytes | None) -> Window | None:
        """What the store had to say."""
        if value is None:
            self._inklings.pop(which, None)
            return None
        return self._noticed(which, window_from_bytes(value))

    async def learn(self, key: str, which: Which, lesson: LearnedLimit) -> None:
        self._noticed(which, lesson.window())
        await self._note(key, lesson.to_bytes())

    def heard(self, which: Which, told: Window) -> None:
        """What an upstream told this worker of its window."""
        if len(self._heard) >= REMEMBERED:
            self._heard.clear()
        self._heard[which] = told

    async def pass_on(self, key: str, which: Which) -> None:
        """Keep for all workers what was heard, once the upstream took a request: for strangers nothing is kept.

        Else a block would stand for this worker and not for the next one, or for the one that is started after it.
        """
        if (told := self._heard.pop(which, None)) is not None:
            await self._note(key, window_to_bytes(told))

    async def _note(self, key: str, value: bytes) -> None:
        try:
            await self._store.note(key, value, LEARNED_SECONDS)
        except StoreUnavailable as fault:
            self._emit(events.StoreFailed(str(fault)))

    def _noticed(self, which: Which, window: Window) -> Window:
        if len(self._inklings) >= REMEMBERED:
            self._inklings.clear()
        self._inklings[which] = window
        return window
