"""The least that an aiohttp relay can do: read a body, send it, stream the answer back. The yardstick for ours.

It has our limits of time, for without any no relay can be run.
"""

import sys
from collections.abc import Mapping

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web

DROPPED = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding"}


def keep_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers.items() if name.lower() not in DROPPED]


async def relay(request: web.Request) -> web.StreamResponse:
    body = await request.read()
    url = sys.argv[2] + request.raw_path
    async with request.app["session"].request(
        request.method, url, headers=keep_headers(request.headers), data=body
    ) as reply:
        response = web.StreamResponse(status=reply.status, reason=reply.reason, headers=keep_headers(reply.headers))
        await response.prepare(request)
        async for chunk in reply.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
        return response


async def live(_: web.Request) -> web.Response:
    return web.Response(text="live")


async def start(app: web.Application) -> None:
    app["session"] = ClientSession(
        connector=TCPConnector(limit=0),
        timeout=ClientTimeout(sock_connect=10, sock_read=600),
        auto_decompress=False,
        cookie_jar=DummyCookieJar(),
    )


app = web.Application(client_max_size=64 * 1024 * 1024)
app.on_startup.append(start)
app.router.add_get("/health/live", live)
app.router.add_route("*", "/{path:.*}", relay)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None)
