"""The registry as commands read and change it: this machine's file, the copy that replicas share, and the audit log."""

import asyncio
import os
import pwd
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proxy import assembly, events
from proxy.access.records import Change, Records, RegistryUnreadable, synced
from proxy.access.registry import Registry
from proxy.cli import options
from proxy.config import Config
from proxy.store.promises import StoreUnavailable
from proxy.telemetry import audit


def current(config: Config) -> Registry:
    """As far as it can be known here and now."""
    records = options.recorded(config)
    if why := _unshared(config, records):
        _warn(f"this is what this machine knows of: {why}")
    return records.current


@dataclass(frozen=True, slots=True)
class Act:
    """What is done, as the audit log tells it."""

    act: str
    subject: str
    details: tuple[tuple[str, str | float], ...] = ()


def change(config: Config, act: Act, change: Change) -> Registry:
    """In force on this machine at once, on the others as soon as they look."""
    records = options.recorded(config)
    why = _unshared(config, records)
    with options.at_hand(records):
        records.change(change)
    done = events.AdminActed(_user(), "command line", act.act, act.subject, "done", act.details)
    audit.AuditLog(Path(config.state.dir), _warn)(done)
    if why := why or _unshared(config, records):
        _warn(f"other replicas hear of it from this machine's proxy once the shared state is back: {why}")
    return records.current


def _unshared(config: Config, records: Records) -> str:
    """Why the shared state could not be asked; empty where it was, or where there is none."""
    if not config.state.url:
        return ""
    try:
        asyncio.run(_synced(config, records))
    except (StoreUnavailable, RegistryUnreadable, OSError) as fault:
        return str(fault)
    return ""


async def _synced(config: Config, records: Records) -> None:
    store = assembly.store(config, lambda _: None)  # why it did not answer is told by whoever asked
    try:
        await synced(records, store)
    finally:
        await store.close()


def _user() -> str:
    """As the machine knows whoever runs this; in a container it may know a number only."""
    with suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_name
    return str(os.getuid())


def _warn(why: str) -> None:
    print(why, file=sys.stderr)  # noqa: T201
