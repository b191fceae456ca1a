"""The windows that overflows taught: kept in the store for a day, one credential's apart from the next one's.

The store's word counts. Beside it each worker has an inkling of its own, for one purpose only: a history so short that
nobody would look anything up may be too long for a small window, and then it has to be looked at.
"""

from proxy import events
from proxy.compaction.known import who
from proxy.store.promises import Store, StoreUnavailable
from proxy.upstream import Call
from proxy.windows import LEARNED_SECONDS, Learned, Window

REMEMBERED = 10_000

Which = tuple[str, str, int]


def which(upstream: str, model: str, call: Call) -> Which:
    """Whose window it is, for as long as this process lives: no credential is kept, not even its hash on disk."""
    return upstream, model, who(call)


class Lessons:
    """Shared by all requests of a worker."""

    def __init__(self, store: Store, emit: events.Listener) -> None:
        self._store = store
        self._emit = emit
        self._inklings: dict[Which, Window] = {}

    def inkling(self, which: Which) -> Window | None:
        return self._inklings.get(which)

    def recalled(self, which: Which, value: bytes | None) -> Window | None:
        """What the store had to say."""
        if value is None:
            self._inklings.pop(which, None)
            return None
        return self._noticed(which, Learned.from_bytes(value))

    async def learn(self, key: str, which: Which, lesson: Learned) -> None:
        self._noticed(which, lesson)
        try:
            await self._store.note(key, lesson.to_bytes(), LEARNED_SECONDS)
        except StoreUnavailable as fault:
            self._emit(events.StoreFailed(str(fault)))

    def _noticed(self, which: Which, lesson: Learned) -> Window:
        if len(self._inklings) >= REMEMBERED:
            self._inklings.clear()
        window = self._inklings[which] = lesson.window()
        return window
