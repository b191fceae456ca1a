"""Where the heart's work is done: in the event loop, or, where a history is large, in a thread.

The event loop belongs to everybody. Reading, chaining and rendering take two milliseconds for a megabyte; deciding
takes fifty where a block is made. So large histories are worked on in one thread, one after the other.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from proxy.compaction.ground import Ground
from proxy.core.calibration import Calibration
from proxy.core.plan import Ready
from proxy.core.rules import Facts, Rules
from proxy.core.scene import Scene

LARGE = 256 * 1024
"""Bodies of more bytes are worked on in the thread."""
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="large-histories")

T = TypeVar("T")


async def apart(size: int, act: Callable[[], T]) -> T:
    """Small work at once, large work in the one thread: however many large histories there are, the loop goes on."""
    return await asyncio.get_running_loop().run_in_executor(_THREAD, act) if size > LARGE else act()


async def asked(judge: Callable[[Scene], T], ground: Ground, rules: Rules, calibration: Calibration, facts: Facts) -> T:
    """What the heart says of a history."""
    request, links, count = ground.case.request, ground.identity.links, ground.case.count(calibration)

    def judged() -> T:
        return judge(Scene.of(request, links, ground.blocks, rules, count=count, facts=facts))

    return await apart(len(request.source), judged)


def weighing(ready: Ready) -> list[bytes]:
    """What is counted of a view: its messages and its tools."""
    return [message.raw for message in ready.view] + [ready.tools or b""]
