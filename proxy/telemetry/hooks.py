"""Tells others what happened: runs their command, calls their URL. In a thread of its own, so that nobody waits.

Best effort, as befits a listener: what comes while too much is waiting is left out, and a hook that fails is told in
the log once in a while and never tried again for the same event.
"""

import queue
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from proxy import events
from proxy.telemetry.log import line_of

WAITING = 1_000


class Hook(Protocol):
    """Whom to tell, and of what."""

    @property
    def events(self) -> Sequence[str]: ...
    @property
    def command(self) -> Sequence[str]: ...
    @property
    def url(self) -> str: ...
    @property
    def seconds(self) -> float: ...


_FAULTS = (OSError, subprocess.SubprocessError, ValueError)


class Hooks:
    """A listener. `warn` is called from its thread, with a sentence for the operator."""

    def __init__(self, hooks: Sequence[Hook], warn: Callable[[str], None]) -> None:
        self._hooks = tuple(hooks)
        self._warn = warn
        self._waiting: queue.Queue[tuple[Hook, bytes]] = queue.Queue(WAITING)
        if self._hooks:
            threading.Thread(target=self._work, name="hooks", daemon=True).start()

    def __call__(self, event: events.Event) -> None:
        line = line_of(event) if self._hooks else None
        if line is None:
            return
        _, name, fields = line
        for hook in self._hooks:
            if name in hook.events:
                try:
                    self._waiting.put_nowait((hook, msgspec.json.encode({"event": name, **fields}, enc_hook=str)))
                except queue.Full:
                    self._warn(f"hooks: {WAITING} events are waiting, {name} was left out: is a hook slow?")

    def _work(self) -> None:
        while True:
            hook, told = self._waiting.get()
            try:
                _run(hook, told)
            except _FAULTS as fault:
                self._warn(f"hooks: {hook.url or hook.command[0]} failed: {type(fault).__name__}")


def _run(hook: Hook, told: bytes) -> None:
    if hook.command:
        quiet = subprocess.DEVNULL
        subprocess.run(hook.command, input=told, stdout=quiet, stderr=quiet, timeout=hook.seconds, check=True)  # noqa: S603 (the operator's own)
        return
    request = urllib.request.Request(hook.url, told, {"content-type": "application/json"})  # noqa: S310 (http or https)
    with urllib.request.urlopen(request, timeout=hook.seconds):  # noqa: S310 (the operator's own)
        pass
