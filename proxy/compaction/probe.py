"""Asks an upstream how large its windows are: now and then, beside the requests.

A private server reads only what it was started with, whatever the model could read, so it is asked before the table of
models is believed. A public API is asked only about models that the table does not know. Nobody is asked before a
history is long enough for the answer to matter.
"""

import ipaddress
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic
from urllib.parse import urlsplit

from proxy.compaction.lessons import Which, which
from proxy.config import Upstream
from proxy.core.window import Window
from proxy.errors import ProxyError
from proxy.lifetime import BackgroundTasks
from proxy.upstream import Call, Client
from proxy.windows import PROBES, find_bundled_window
from proxy.wire.credentials import is_credential

ASK_AGAIN_SECONDS = 3600.0
REMEMBERED = 10_000
MOST_AT_ONCE = 100
LARGEST_ANSWER = 4 * 1024 * 1024


def _nobody(_which: Which, _told: Window) -> None:
    """Nobody else has to know."""


class Probe:
    """What upstreams told about their windows, each client what its own credential was told."""

    def __init__(self, heard: Callable[[Which, Window], None] = _nobody) -> None:
        self._heard = heard
        self._told: dict[Which, Window] = {}
        self._asked: dict[Which, float] = {}
        self._asking = BackgroundTasks(MOST_AT_ONCE)

    def known(self, client: Client, model: str, call: Call) -> Window | None:
        return self._told.get(which(client.settings.name, model, call)) if self._told else None

    def ask(self, client: Client, model: str, call: Call) -> None:
        """Ask in the background, where it is worth asking and was not done lately."""
        whose = which(client.settings.name, model, call)
        if not _worth_asking(client.settings, model) or self._asked.get(whose, -inf) + ASK_AGAIN_SECONDS > monotonic():
            return
        if len(self._asked) >= REMEMBERED:
            self._asked.clear()
            self._told.clear()
        # The request that begins it does not wait for the answer, so it holds the connections itself.
        if self._asking.start(partial(self._ask, client, model, call, whose), client.lease()) is not None:
            self._asked[whose] = monotonic()

    async def idle(self) -> None:
        """Return once no upstream is being asked."""
        await self._asking.wait_idle()

    async def close(self) -> None:
        """Cancel what is being asked: what it would have said is asked for again."""
        await self._asking.close(0)

    async def _ask(self, client: Client, model: str, call: Call, whose: Which) -> None:
        for path, read in PROBES.items():
            answer = await _answer(client, path, call)
            told = read(answer, model) if answer is not None else None
            if told is not None:
                self._told[whose] = told
                self._heard(whose, told)
                return


async def _answer(client: Client, path: str, call: Call) -> object:
    """The answer, asked with the caller's credential and nothing else of what it sent."""
    headers = tuple(pair for pair in call.headers if is_credential(pair[0]))
    asking = replace(call, method="GET", path=path.removeprefix("/v1"), query="", headers=headers, body=None)
    try:
        async with client.send(asking, None, at_server_root=not path.startswith("/v1/")) as reply:
            body = b"".join([chunk async for chunk in reply.chunks()]) if reply.is_good else b""
        return json.loads(body) if 0 < len(body) < LARGEST_ANSWER else None
    except (ProxyError, ValueError):
        return None


def _worth_asking(settings: Upstream, model: str) -> bool:
    return settings.window is None and (_is_own(settings.base_url) or find_bundled_window(model) is None)


def _is_own(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".internal", ".lan"))
