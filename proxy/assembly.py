"""The composition root: from a configuration to the stores and transcripts that a process runs with.

The one place that imports an optional library, and only if a setting needs it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from proxy.config.faults import Fault, InvalidConfig
from proxy.config.settings import Config
from proxy.config.values import reveal
from proxy.foundation.lifetime import CONTROL
from proxy.serve.services import Keeper
from proxy.store import sqlite
from proxy.store.contract import MEBIBYTE, Store, StoreLimits, StoreUnavailable, ignore
from proxy.store.memory_store import FALLBACK_LIMITS, FallbackStore, MemoryStore
from proxy.store.sqlite import SqliteStore
from proxy.store.transcripts.archive import Archive, ObjectStore, StoreFault
from proxy.store.transcripts.uploads import Uploads
from proxy.store.transcripts.writer import OriginalsWriter
from proxy.telemetry.hooks import Receiver
from proxy.upstream.client import find_proxy
from proxy.wire.redaction import Redaction, redaction

if TYPE_CHECKING:
    from proxy.telemetry.otel import Exporter

Warn = Callable[[str], None]


async def can_write_state(folder: Path, store: Store) -> bool:
    if await CONTROL.run(_find_disk_fault, folder, 4096):  # a block of a disk: this is asked every few seconds
        return False
    try:
        await store.check_writable()
    except StoreUnavailable:
        return False
    return True


def find_write_fault(folder: Path) -> str | None:
    """Return why a command cannot write in this folder, or in its file of blocks; None if it can."""
    # The databases and the logs that make writing them safe take about this much before the first request.
    if fault := _find_disk_fault(folder, MEBIBYTE):
        return fault
    return None if sqlite.may_write(folder / sqlite.FILE_NAME) else f"{sqlite.FILE_NAME} is locked or read-only"


def _find_disk_fault(folder: Path, amount: int) -> str | None:
    try:
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(amount))
            file.flush()
    except OSError as fault:
        return fault.strerror
    return None


def check_extras(config: Config) -> None:
    """Raise InvalidConfig if an optional library is missing."""
    if reveal(config.state.url):
        _import_optional(_REDIS)
    if config.otel.endpoint:
        _import_optional(_OTEL)
    open_object_store(config)


_REDIS, _BUCKET, _OTEL = "proxy.store.redis", "proxy.store.transcripts.bucket", "proxy.telemetry.otel"
_EXTRAS = {
    _REDIS: ("redis", "state.url", "shared state"),
    _BUCKET: ("s3", "transcripts.dir", "an object store"),
    _OTEL: ("otel", "otel.endpoint", "OpenTelemetry"),
}
"""The modules that need an optional library: its extra, the setting that asks for it, and its purpose."""


def _import_optional(module: str) -> ModuleType:
    """Import a module only now: redis-py alone costs a process 0.2 s and 6 MB.

    A missing optional library makes the configuration invalid. Other missing modules are faults of the package.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("redis", "obstore", "opentelemetry", "google"):
            raise
    extra, setting, purpose = _EXTRAS[module]
    why = (
        f"{purpose} needs an optional library: in the checkout, pip install '.[{extra}]', or with pipx: "
        f"pipx install --force '.[{extra}]'"
    )
    raise InvalidConfig([Fault(setting, "configuration", why)])


def open_exporter(config: Config, base_urls: Callable[[], Mapping[str, str]], warn: Warn) -> "Exporter | None":
    otel = config.otel
    if not otel.endpoint:
        return None
    url = otel.endpoint.rstrip("/") + "/v1/traces"
    collector = Receiver("collector", url, timeout_seconds=10.0, warn=warn, proxy=find_proxy(url))
    headers = {name: reveal(value) for name, value in otel.headers.items()}
    exporter: Exporter = _import_optional(_OTEL).Exporter(collector, headers, otel.service, base_urls)
    return exporter


def open_store(config: Config, warn: Warn, report_back: Warn = ignore) -> Store:
    limits = _find_limits(config)
    in_memory = replace(FALLBACK_LIMITS, block_seconds=limits.block_seconds)
    if url := reveal(config.state.url):
        shared_store: Store = _import_optional(_REDIS).RedisStore(
            url, limits, report_back=report_back, ca_file=config.state.ca_file
        )
        return FallbackStore(shared_store, in_memory, warn=warn)
    if config.state.store == "memory":
        return MemoryStore(limits)
    local = SqliteStore(Path(config.state.dir) / sqlite.FILE_NAME, limits, warn)
    return FallbackStore(local, in_memory, warn=warn)


@asynccontextmanager
async def use_store(config: Config) -> AsyncIterator[Store]:
    """Open the store for a command, which learns from exceptions that the store is out."""
    store = open_store(config, ignore)
    try:
        yield store
    finally:
        await store.close()


def open_memory(config: Config, store: Store) -> MemoryStore:
    """Return the store of policies that store no text: the given one if it is this worker's memory already."""
    return store if isinstance(store, MemoryStore) else MemoryStore(_find_limits(config))


def _find_limits(config: Config) -> StoreLimits:
    return StoreLimits(block_bytes=config.state.mib * MEBIBYTE, block_seconds=config.state.days * 24 * 3600)


def read_blocks(config: Config, keys: Sequence[str]) -> dict[str, bytes]:
    """Read blocks without changing the store. Raise StoreUnavailable if it does not answer."""
    if url := reveal(config.state.url):
        lookup: Coroutine[Any, Any, dict[str, bytes]] = _import_optional(_REDIS).peek(url, keys, config.state.ca_file)
        return asyncio.run(lookup)
    return sqlite.peek(Path(config.state.dir) / sqlite.FILE_NAME, keys)


def build_redaction(config: Config) -> Redaction:
    if config.transcripts.redact:
        return redaction(config.transcripts.patterns)
    return Redaction()


def open_object_store(config: Config) -> ObjectStore | None:
    transcripts = config.transcripts
    if not transcripts.is_remote:
        return None
    library = _import_optional(_BUCKET)
    try:
        bucket: ObjectStore = library.Bucket(transcripts)
    except StoreFault as fault:
        raise InvalidConfig([Fault("transcripts.dir", "configuration", str(fault))]) from None
    return bucket


def open_archive(config: Config) -> Archive:
    return Archive(config.originals, open_object_store(config))


def build_keeper(config: Config, slot: int | None, warn: Warn, report: Warn) -> Keeper:
    """Build the keeper of originals. The first worker of a machine removes old ones; in an object store, all do."""
    transcripts = config.transcripts
    if transcripts.keep == "off":
        return Keeper()
    store, folder = open_object_store(config), config.originals
    uploads = None if store is None else Uploads(store, folder, transcripts, warn, report)
    redaction = build_redaction(config)
    originals = OriginalsWriter(folder, transcripts, warn, redaction=redaction, prunes=not slot, uploads=uploads)
    return Keeper(originals, transcripts)
