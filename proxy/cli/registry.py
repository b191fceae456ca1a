"""The registry as commands read and change it: this machine's file, and the copy that replicas share."""

import asyncio
import sys

from proxy.access.records import Change, Records, synced
from proxy.access.registry import Registry
from proxy.cli import options
from proxy.config import Config
from proxy.server import stores
from proxy.store.promises import StoreUnavailable


def current(config: Config) -> Registry:
    records = options.recorded(config)
    _share(config, records)
    return records.current


def change(config: Config, change: Change) -> Registry:
    """In force on this machine at once, on the others as soon as they look."""
    records = options.recorded(config)
    _share(config, records)
    records.change(change)
    _share(config, records)
    return records.current


def _share(config: Config, records: Records) -> None:
    if not config.state.url:
        return
    try:
        asyncio.run(_synced(config, records))
    except StoreUnavailable as fault:
        _warn(f"other replicas hear of it once the shared state is back: {fault}")


async def _synced(config: Config, records: Records) -> None:
    store = stores.store(config, _warn)
    try:
        await synced(records, store)
    finally:
        await store.close()


def _warn(why: str) -> None:
    print(why, file=sys.stderr)  # noqa: T201
