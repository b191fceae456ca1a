"""What a worker keeps things in, as the configuration says: promises, originals, and what operators have said."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from proxy.access.records import Records
from proxy.compaction.originals import Keeper
from proxy.config import Config, Fault, InvalidConfig, Secret
from proxy.store import sqlite
from proxy.store.meanwhile import HELD, Meanwhile
from proxy.store.memory import MemoryStore
from proxy.store.originals import Originals, OriginalsSettings
from proxy.store.promises import MEBIBYTE, Bounds, Store
from proxy.store.sqlite import SqliteStore
from proxy.store.transcripts.archive import Archive, ObjectStore, Retention, StoreFault
from proxy.store.transcripts.uploads import Uploads, UploadSettings
from proxy.wire.redaction import Redaction, redaction

Warn = Callable[[str], None]


def board_folder(config: Config) -> Path:
    return Path(config.state.dir) / "workers"


def state_url(config: Config) -> str:
    """Of the state that replicas share; empty where there is none."""
    url = config.state.url
    return url.value if isinstance(url, Secret) else url


def check_extras(config: Config) -> None:
    """InvalidConfig where a setting needs an optional library that is not installed. To call before workers start."""
    if state_url(config):
        _import_redis_store()
    object_store(config)


def _import_redis_store() -> ModuleType:
    """Only here, and only where `state.url` is set: redis-py takes 0.3 s and 25 MB of every process that imports it."""
    try:
        from proxy.store import redis  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "redis":
            raise
        why = "shared state needs an optional library: pip install 'compaction-proxy[redis]'"
        raise InvalidConfig([Fault("state.url", "configuration", why)]) from None
    return redis


def records(config: Config) -> Records:
    return Records(Path(config.state.dir))


def store(config: Config, warn: Warn) -> Store:
    bounds = Bounds(promises=config.state.mib * MEBIBYTE, seconds=config.state.days * 24 * 3600)
    if url := state_url(config):
        held = replace(HELD, seconds=bounds.seconds)
        shared: Store = _import_redis_store().RedisStore(url, bounds, warn, ca_file=config.state.ca_file)
        return Meanwhile(shared, held)
    if config.state.store == "memory":
        return MemoryStore(bounds)
    return SqliteStore(Path(config.state.dir) / "promises.sqlite", bounds, warn)


def peek(config: Config, keys: Sequence[str]) -> tuple[bytes | None, dict[str, bytes]]:
    """The key of the chain, and the blocks under these keys, for commands that only look. StoreUnavailable."""
    if url := state_url(config):
        looked: Coroutine[Any, Any, tuple[bytes | None, dict[str, bytes]]]
        looked = _import_redis_store().peek(url, keys, config.state.ca_file)
        return asyncio.run(looked)
    return sqlite.peek(Path(config.state.dir) / "promises.sqlite", keys)


def redacting(config: Config) -> Redaction:
    told = config.transcripts
    return redaction(told.patterns) if told.redact else Redaction()


def _import_object_store() -> ModuleType:
    """Only here, and only where transcripts are kept in an object store: obstore is large."""
    try:
        from proxy.store.transcripts import bucket  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "obstore":
            raise
        why = "an object store needs an optional library: pip install 'compaction-proxy[s3]'"
        raise InvalidConfig([Fault("transcripts.dir", "configuration", why)]) from None
    return bucket


def object_store(config: Config) -> ObjectStore | None:
    """Where originals are kept, if that is an object store. InvalidConfig: it cannot be opened."""
    settings = config.transcripts
    if not settings.is_remote:
        return None
    library = _import_object_store()
    place = library.BucketSettings(
        url=settings.dir or "",
        endpoint=settings.endpoint,
        region=settings.region,
        key=settings.key.value if settings.key else "",
        secret=settings.secret.value if settings.secret else "",
        token=settings.token.value if settings.token else "",
        ca_file=settings.ca_file,
    )
    try:
        bucket: ObjectStore = library.Bucket(place)
    except StoreFault as fault:
        raise InvalidConfig([Fault("transcripts.dir", "configuration", str(fault))]) from None
    return bucket


def archive(config: Config) -> Archive:
    """The saved originals, for readers."""
    return Archive(config.originals, object_store(config))


def _uploads(config: Config, warn: Warn, report: Warn) -> Uploads | None:
    """Every process may remove what is too old from an object store: several of them do no harm."""
    store, settings = object_store(config), config.transcripts
    if store is None:
        return None
    uploading = UploadSettings(
        seconds=settings.upload_seconds,
        spool_bytes=settings.spool_mib * MEBIBYTE,
        sync=settings.fsync,
        retention=Retention(settings.days, settings.mib * MEBIBYTE),
    )
    return Uploads(store, config.originals, uploading, warn, report)


def keeper(config: Config, slot: int | None, warn: Warn, report: Warn) -> Keeper:
    """What keeps the originals of a worker. The first worker of a machine removes old ones for all."""
    settings = config.transcripts
    if settings.keep == "off":
        return Keeper()
    uploads = _uploads(config, warn, report)
    removes_old = uploads is None and not slot
    writing = OriginalsSettings(
        rotate_bytes=int(settings.rotate_mib * MEBIBYTE),
        sync=settings.fsync,
        redaction=redacting(config),
        retention=Retention(settings.days, settings.mib * MEBIBYTE) if removes_old else None,
    )
    originals = Originals(config.originals, writing, warn, uploads=uploads)
    return Keeper(originals, everything=settings.keep == "all", required=settings.required)
