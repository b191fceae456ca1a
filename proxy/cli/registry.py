"""Registry access for commands: this machine's file, the copy that replicas share, and the audit log."""

import asyncio
import os
import pwd
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proxy import assembly, events
from proxy.access.records import Change, Records, Registry, RegistryUnreadable, synchronize
from proxy.cli import options
from proxy.config import Config
from proxy.store.contract import StoreUnavailable
from proxy.telemetry import audit


def read_registry(config: Config) -> Registry:
    """The registry, synchronized with the shared state where that is reachable."""
    records = options.read_records(config)
    if why := _synchronize(config, records):
        _warn(f"shared state not reachable, showing what this machine knows: {why}")
    return records.current


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One operator act for the audit log."""

    act: str
    subject: str
    details: tuple[tuple[str, str | float], ...] = ()


def change_registry(config: Config, act: AuditEntry, change: Change) -> Registry:
    """Change the registry: in force here at once, on other replicas within a second."""
    records = options.read_records(config)
    why = _synchronize(config, records)
    with options.report_registry_faults(records):
        records.change(change)
    done = events.AdminActed(_user_name(), "command line", act.act, act.subject, "done", act.details)
    audit.AuditLog(Path(config.state.dir), _warn)(done)
    if why := why or _synchronize(config, records):
        _warn(f"shared state not reachable; this machine's proxy will pass the change on once it is: {why}")
    return records.current


def _synchronize(config: Config, records: Records) -> str:
    """Merge with the shared state. Returns why that failed; empty on success, or where there is none."""
    if not config.state.url:
        return ""
    try:
        asyncio.run(_synchronize_once(config, records))
    except (StoreUnavailable, RegistryUnreadable, OSError) as fault:
        return str(fault)
    return ""


async def _synchronize_once(config: Config, records: Records) -> None:
    store = assembly.open_store(config, lambda _: None)  # the exception says why
    try:
        await synchronize(records, store)
    finally:
        await store.close()


def _user_name() -> str:
    """Name of the user; their number where it has no name, as in some containers."""
    with suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_name
    return str(os.getuid())


def _warn(why: str) -> None:
    print(why, file=sys.stderr)  # noqa: T201
