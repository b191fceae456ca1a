"""Context windows that this worker knows, learned from overflows and probes, and the callers that may teach it.

The windows in the store are used for every decision but one. A history so short that the store is not asked may still
be too long for a small window; for that case each worker keeps a few windows in memory.
"""

import ipaddress
import json
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from time import monotonic
from urllib.parse import urlsplit

from proxy.compaction.tenants import identity_of
from proxy.config import Upstream
from proxy.core.calibration import Calibration
from proxy.core.economics import Prices
from proxy.core.window import Window, relative_prices
from proxy.errors import ProxyError
from proxy.lifetime import BackgroundTasks
from proxy.lru import ByteBoundedCache
from proxy.tokenizer import Estimator, Tokenizer, Tokenizers, counter_name, prior_calibration
from proxy.upstream import Call, Client
from proxy.windows import find_bundled_window, resolve_window
from proxy.wire.credentials import is_credential
from proxy.wire.window_probes import PROBES

REMEMBERED_MAX_BYTES = 4 * 1024 * 1024
"""For each kind of what is remembered here: some ten thousand callers with models of ordinary names."""
PROFILES_MAX_BYTES = 1024 * 1024
PROBE_INTERVAL_SECONDS = 3600.0
PROBES_AT_ONCE_MAX = 100
PROBE_ANSWER_MAX_BYTES = 4 * 1024 * 1024

WindowScope = tuple[str, str, int]
"""Whose window it is: upstream, model, and the caller's fingerprint."""


def _caller_of(scope: WindowScope) -> int:
    return scope[2]


def window_scope(upstream: str, model: str, call: Call) -> WindowScope:
    return upstream, model, caller_fingerprint(call)


class AcceptedCallers:
    """Callers of whom an upstream has accepted something, as far as this process remembers.

    Nothing is written for anybody else: made-up keys could fill a disk.
    """

    def __init__(self) -> None:
        self._fingerprints = ByteBoundedCache[int, bool](REMEMBERED_MAX_BYTES)

    def add(self, call: Call) -> None:
        self._fingerprints[caller_fingerprint(call)] = True

    def __contains__(self, call: Call) -> bool:
        return bool(call.caller.team) or bool(self._fingerprints.get(caller_fingerprint(call)))


def caller_fingerprint(call: Call) -> int:
    """A hash that lives no longer than the process: no credential is kept, not even its hash on disk."""
    return hash((call.caller.tenant, identity_of(call)))


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """Facts about a model at an upstream before its first answer, the same for all requests."""

    window: Window
    prices: Prices
    counter: str
    """Whose token counts these are: upstream and family of models."""
    prior: Calibration
    tokenizer: Tokenizer

    @classmethod
    def of(cls, settings: Upstream, model: str, tokenizer: Tokenizer) -> "ModelProfile":
        configured = Window(total=settings.window, origin="config") if settings.window else None
        window = resolve_window(model, configured)
        counter = counter_name(settings.name, model)
        return cls(window, relative_prices(window), counter, prior_calibration(model), tokenizer)


class ModelProfiles:
    """The profiles of this worker's models. Names are the client's own words, so they are bounded in bytes."""

    def __init__(self, tokenizers: Tokenizers) -> None:
        self._tokenizers = tokenizers
        self._profiles = ByteBoundedCache[tuple[str, int | None, str, str], ModelProfile](PROFILES_MAX_BYTES)

    def find(self, settings: Upstream, model: str, estimator: Estimator) -> ModelProfile:
        key = settings.name, settings.window, model, estimator
        profile = self._profiles.get(key)
        if profile is None:
            profile = ModelProfile.of(settings, model, self._tokenizers.of(model, estimator))
            self._profiles[key] = profile
        return profile


class LearnedWindows:
    """Windows learned from overflows and probes. The store keeps the same for a day, per credential."""

    def __init__(self) -> None:
        self._hints = ByteBoundedCache[WindowScope, Window](REMEMBERED_MAX_BYTES, owner_of=_caller_of)
        self._probed = ByteBoundedCache[WindowScope, Window](REMEMBERED_MAX_BYTES, owner_of=_caller_of)

    def find_hint(self, scope: WindowScope) -> Window | None:
        return self._hints.get(scope)

    def note(self, scope: WindowScope, window: Window | None) -> None:
        """Remember what the store says; None: nothing, so that an expired limit is forgotten here as well."""
        if window is None:
            self._hints.pop(scope)
        else:
            self._hints[scope] = window

    def note_probed(self, scope: WindowScope, window: Window) -> None:
        """Remember what an upstream told this worker until it is stored for the others."""
        self._probed[scope] = window

    def take_probed(self, scope: WindowScope) -> Window | None:
        """Remove and return the probed window that is still to be stored, so that other workers decide alike."""
        return self._probed.pop(scope)


class WindowProbe:
    """Asks upstreams how large their windows are: now and then, in the background.

    A private server reads only what it was started with, whatever the model could read, so it is asked before the table
    of models is believed. A public API is asked only about models that the table does not know.
    """

    def __init__(self, learned: LearnedWindows) -> None:
        self._learned = learned
        self._found = ByteBoundedCache[WindowScope, Window](REMEMBERED_MAX_BYTES, owner_of=_caller_of)
        self._probed_at = ByteBoundedCache[WindowScope, float](REMEMBERED_MAX_BYTES, owner_of=_caller_of)
        self._probing = BackgroundTasks(PROBES_AT_ONCE_MAX)

    def find(self, client: Client, model: str, call: Call) -> Window | None:
        return self._found.get(window_scope(client.settings.name, model, call)) if len(self._found) else None

    def start(self, client: Client, model: str, call: Call) -> None:
        """Probe in the background, where it is worth it and was not done lately."""
        scope = window_scope(client.settings.name, model, call)
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
        """Cancel the probes under way: what they would have found is asked for again."""
        await self._probing.close(0)

    async def _probe(self, client: Client, model: str, call: Call, scope: WindowScope) -> None:
        for path, read in PROBES.items():
            answer = await _fetch(client, path, call)
            window = read(answer, model) if answer is not None else None
            if window is not None:
                self._found[scope] = window
                self._learned.note_probed(scope, window)
                return


async def _fetch(client: Client, path: str, call: Call) -> object:
    """The answer to a probe, sent with the caller's credential and no other header of it."""
    headers = tuple(pair for pair in call.headers if is_credential(pair[0]))
    request = replace(call, method="GET", path=path.removeprefix("/v1"), query="", headers=headers, body=None)
    try:
        async with client.send(request, None, at_server_root=not path.startswith("/v1/")) as reply:
            body = b"".join([chunk async for chunk in reply.chunks()]) if reply.is_good else b""
        return json.loads(body) if 0 < len(body) < PROBE_ANSWER_MAX_BYTES else None
    except (ProxyError, ValueError):
        return None


def _is_worth_probing(settings: Upstream, model: str) -> bool:
    return settings.window is None and (_is_private(settings.base_url) or find_bundled_window(model) is None)


def _is_private(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".internal", ".lan"))
