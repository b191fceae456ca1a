"""A server with a model made on the spot, and the proxy before it. Each file of tests says which server."""

import asyncio

import pytest_asyncio

from tests.end_to_end.servers.recipes import upstream_of
from tests.end_to_end.servers.server import Running, Server


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(server: Server, tmp_path_factory):
    folder = tmp_path_factory.mktemp(server.name)
    await asyncio.to_thread(server.make_model, folder)
    async with server.running(folder) as process:
        yield process


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def proxy(serve, server: Server, running: Running):
    async with serve(
        None, config={**upstream_of(server.name, at=running.origin), "log": {"format": "json"}}
    ) as process:
        yield process
