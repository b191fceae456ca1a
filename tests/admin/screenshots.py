"""Pictures of the admin pages for the documents: `python -m tests.admin.screenshots FOLDER`.

A proxy with a simulated day in its activity log, and two agents that have just worked; a real Chromium looks at it.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from proxy.lab.demo.agent import Agent, sample
from proxy.lab.demo.model import NAME, Manner, SimulatedModel, SimulatedServer
from proxy.models.tokenizer import Tokenizers
from tests.admin import demo_traffic, install
from tests.support.admin_client import AdminClient, admin_config, team_key, until_open
from tests.support.running_proxy import serving

TURNS = 45
WINDOW = 128_000


async def take(folder: Path) -> None:
    run = sample(TURNS)
    model = SimulatedModel(run, Tokenizers().of(NAME), Manner(window=WINDOW))
    with tempfile.TemporaryDirectory() as place:
        state = Path(place) / "state"
        state.mkdir(mode=0o700)
        demo_traffic.fill(state, time.time() - 60)
        async with SimulatedServer(model) as upstream:
            config = admin_config(upstream.url)
            config["teams"]["research"] = {}
            async with serving(None, place=Path(place), config=config) as proxy:
                for team in ("platform", "search"):
                    text = team_key(proxy, team)
                    await until_open(proxy, text)
                    async for turn in Agent(run, proxy.url, NAME, 0, text).work():
                        assert turn.ok, turn
                script = Path(__file__).parent / "browser_scenes.py"
                url = f"http://localhost:{proxy.port}"
                command = [str(install.PYTHON), str(script), url, AdminClient(proxy).key, "portraits", str(folder)]
                process = await asyncio.create_subprocess_exec(*command)
                assert await process.wait() == 0


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    asyncio.run(take(Path(sys.argv[1]).resolve()))
