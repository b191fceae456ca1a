"""A real Chromium that goes through the dashboard; `browser_scenes.py` has the ways."""

import asyncio
import json
from pathlib import Path

from tests.admin import install

HERE = Path(__file__).parent


async def run_scene(admin, scene, folder=None, url=""):
    """What was seen on a way through the pages; pictures of it lie beside the proxy's state, or in this folder.

    `url`: another address than the proxy's own.
    """
    folder = folder or admin.proxy.place / "pictures"
    folder.mkdir(exist_ok=True)
    script, url = HERE / "browser_scenes.py", url or f"http://localhost:{admin.proxy.port}"
    command = [str(install.PYTHON), str(script), url, admin.key, scene, str(folder)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    text, _ = await process.communicate()
    assert process.returncode == 0
    seen = json.loads(text)
    for each in seen.values() if scene == "tour" else [seen]:
        assert (each["foreign"], each["wrong"], each["hit"]) == ([], [], 0)
    return seen
