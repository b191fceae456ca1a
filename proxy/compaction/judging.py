"""What the heart says of a history, decided where it holds up nobody else."""

from collections.abc import Callable
from typing import TypeVar

from proxy.compaction.ground import Ground
from proxy.compaction.history_threads import estimate_work, run_apart
from proxy.core.calibration import Calibration
from proxy.core.plan import Ready
from proxy.core.rules import Facts, Rules
from proxy.core.scene import Scene

T = TypeVar("T")


async def asked(judge: Callable[[Scene], T], ground: Ground, rules: Rules, calibration: Calibration, facts: Facts) -> T:
    """What the heart says of a history."""
    request, links, count = ground.case.request, ground.identity.links, ground.case.count(calibration)

    def judged() -> T:
        return judge(Scene.of(request, links, ground.blocks, rules, count=count, facts=facts))

    return await run_apart(estimate_work(request.source), judged)


def weighing(ready: Ready) -> list[bytes]:
    """What is counted of a view: its messages and its tools."""
    return [message.raw for message in ready.view] + [ready.tools or b""]
