"""Asks upstreams how large their windows are: now and then, in the background."""

import ipaddress
import json
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic
from urllib.parse import urlsplit

from proxy.config import Upstream
from proxy.errors import ProxyError
from proxy.lifetime import BackgroundTasks
from proxy.lru import ByteBoundedCache
from proxy.models.window_probes import PROBES
from proxy.models.windows import is_known_model
from proxy.path.request_context import REMEMBERED_MAX_BYTES, LearnedWindows, WindowScope, find_caller
from proxy.shorten.economics import Window
from proxy.upstream.call import Call
from proxy.upstream.client import Client
from proxy.wire.caller import is_credential

PROBE_INTERVAL_SECONDS = 3600.0
PROBES_AT_ONCE_MAX = 100
PROBE_ANSWER_MAX_BYTES = 4 * 1024 * 1024


class WindowProbe:
    """Asks upstreams how large their windows are.

    A private server may read less than its model could, so it is asked before the table of models is believed. A
    public API is asked only about models that the table does not know.
    """

    def __init__(self, learned: LearnedWindows) -> None:
        self._learned = learned
        self._windows = ByteBoundedCache[WindowScope, Window](REMEMBERED_MAX_BYTES, owner_of=find_caller)
        self._probed_at = ByteBoundedCache[WindowScope, float](REMEMBERED_MAX_BYTES, owner_of=find_caller)
        self._probing = BackgroundTasks(PROBES_AT_ONCE_MAX)

    def find(self, scope: WindowScope) -> Window | None:
        return self._windows.get(scope)

    def start(self, client: Client, call: Call, scope: WindowScope) -> None:
        """Probe in the background, if it is worth it and was not done lately."""
        model = scope.model
        is_recent = self._probed_at.get(scope, -inf) + PROBE_INTERVAL_SECONDS > monotonic()
        if is_recent or not _is_worth_probing(client.settings, model):
            return
        # The request that starts the probe does not wait for it, so the probe holds the connections itself.
        if self._probing.start(partial(self._probe, client, model, call, scope), client.lease()) is not None:
            self._probed_at[scope] = monotonic()

    async def wait_idle(self) -> None:
        """Return once no upstream is being probed."""
        await self._probing.wait_idle()

    async def close(self) -> None:
        """Cancel the probes under way: their answers are asked for again."""
        await self._probing.close(0)

    async def _probe(self, client: Client, model: str, call: Call, scope: WindowScope) -> None:
        for path, read in PROBES.items():
            answer = await _fetch(client, path, call)
            window = None
            if answer is not None:
                window = read(answer, model)
            if window is not None:
                self._windows[scope] = window
                self._learned.note_probed(scope, window)
                return


async def _fetch(client: Client, path: str, call: Call) -> object:
    """The answer to a probe, sent with the caller's credential and no other header of it."""
    headers = tuple(pair for pair in call.headers if is_credential(pair[0]))
    request = replace(call, method="GET", path=path.removeprefix("/v1"), query="", headers=headers, body=None)
    try:
        async with client.send(request, None, at_server_root=not path.startswith("/v1/")) as reply:
            body = b""
            if reply.is_good:
                body = b"".join([chunk async for chunk in reply.chunks()])
        if not 0 < len(body) < PROBE_ANSWER_MAX_BYTES:
            return None
        return json.loads(body)
    except (ProxyError, ValueError):
        return None


def _is_worth_probing(settings: Upstream, model: str) -> bool:
    return settings.window is None and (_is_private(settings.base_url) or not is_known_model(model))


def _is_private(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".internal", ".lan"))
