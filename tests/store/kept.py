"""What the conformance suite asks of a store: how to open one, and how to let time pass."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from proxy.store.promises import Bounds, Store

BOUNDS = Bounds(promises=100_000, facts=20_000, seconds=1000.0)


@dataclass(slots=True)
class Clock:
    now: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True, slots=True)
class Kept:
    """A kind of store: `open(bounds)` gives one worker's view of the state."""

    open: Callable[[Bounds], Store]
    forward: Callable[[float], None]
    opened: list[Store] = field(default_factory=list)

    def store(self, **bounds: float) -> Store:
        made = self.open(replace(BOUNDS, **bounds))
        self.opened.append(made)
        return made

    async def close(self) -> None:
        for store in self.opened:
            await store.close()
