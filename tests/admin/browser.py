"""A real Chromium that goes through the dashboard; `browser_scenes.py` has the ways."""

import asyncio
import json
from pathlib import Path

from tests.admin import install

HERE = Path(__file__).parent


async def run_scene(admin, scene, folder=None, url="", **values):
    """Go a way through the pages, on which all must be as it says; pictures of it lie beside the proxy's state.

    `folder`, `url`: another place for the pictures, another address than the proxy's own.
    """
    folder = folder or admin.proxy.place / "pictures"
    folder.mkdir(exist_ok=True)
    script, url = HERE / "browser_scenes.py", url or f"http://localhost:{admin.proxy.port}"
    command = [str(install.PYTHON), str(script), url, admin.key, scene, str(folder), json.dumps(values)]
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0
