"""Where the heart's work is done: here and now, or apart.

The event loop belongs to everybody. Reading, chaining and rendering do a megabyte in two milliseconds; deciding takes
fifty where a block is made. So large histories are worked on in one thread, one after the other.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from proxy.compaction.ground import Ground
from proxy.core.plan import Ready
from proxy.core.rules import Facts, Rules
from proxy.tokenizer import Calibration

LARGE = 256 * 1024
"""Bodies of more bytes than these are worked on apart."""
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="large-histories")

T = TypeVar("T")


async def apart(size: int, act: Callable[[], T]) -> T:
    """Small work here and now, large work in one thread: many large histories leave the loop its turn."""
    return await asyncio.get_running_loop().run_in_executor(_THREAD, act) if size > LARGE else act()


async def asked(judge: Callable[..., T], ground: Ground, rules: Rules, calibration: Calibration, facts: Facts) -> T:
    """What the heart says of a history."""
    case, links = ground.case, ground.identity.links
    act = partial(judge, case.request, links, ground.blocks, rules, count=case.count(calibration), facts=facts)
    found: T = await apart(len(case.request.source), act)
    return found


def weighing(ready: Ready) -> list[bytes]:
    """What is counted of a view."""
    return [message.raw for message in ready.view] + [ready.tools or b""]
