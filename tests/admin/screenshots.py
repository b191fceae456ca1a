"""Pictures of the admin pages for the documents: `python -m tests.admin.screenshots FOLDER`.

A proxy with a simulated day in its activity log, and two agents that have just worked; a real Chromium looks at it.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from proxy.lab.demo.agent import sample
from tests.admin import demo_traffic
from tests.admin.browser import run_scene
from tests.admin.conftest import TURNS, agents_at_work


async def take(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        demo_traffic.fill(Path(place) / "state", time.time() - 60)
        async with agents_at_work(sample(TURNS), Path(place), 128_000) as admin:
            await run_scene(admin, "portraits", folder)


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    asyncio.run(take(Path(sys.argv[1]).resolve()))
