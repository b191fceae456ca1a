"""What a worker keeps things in, as the configuration says: promises, originals, and what operators have said."""

import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from proxy.access.records import Records
from proxy.compaction.keeping import Keeper
from proxy.config import Config, Secret
from proxy.store.meanwhile import HELD, Meanwhile
from proxy.store.memory import MemoryStore
from proxy.store.originals import Keeping, Originals, Retention
from proxy.store.promises import MEBIBYTE, Bounds, Store
from proxy.store.redis import RedisStore
from proxy.store.sqlite import SqliteStore
from proxy.store.transcripts.s3 import Bucket, Credentials, Place
from proxy.store.transcripts.uploads import Sending, Uploads
from proxy.wire.redaction import Redaction, redaction

Warn = Callable[[str], None]


def board_folder(config: Config) -> Path:
    return Path(config.state.dir) / "workers"


def state_url(config: Config) -> str:
    """Of the state that replicas share; empty where there is none."""
    url = config.state.url
    return url.value if isinstance(url, Secret) else url


def state_tls(config: Config) -> ssl.SSLContext | None:
    ca_file = config.state.ca_file
    return ssl.create_default_context(cafile=ca_file) if ca_file else None


def records(config: Config) -> Records:
    return Records(Path(config.state.dir))


def store(config: Config, warn: Warn) -> Store:
    bounds = Bounds(promises=config.state.mib * MEBIBYTE, seconds=config.state.days * 24 * 3600)
    if url := state_url(config):
        held = replace(HELD, seconds=bounds.seconds)
        return Meanwhile(RedisStore(url, bounds, warn, tls=state_tls(config)), held)
    if config.state.store == "memory":
        return MemoryStore(bounds)
    return SqliteStore(Path(config.state.dir) / "promises.sqlite", bounds, warn)


def redacting(config: Config) -> Redaction:
    told = config.transcripts
    return redaction(told.patterns) if told.redact else Redaction()


def bucket(config: Config) -> Bucket | None:
    """The object store where originals belong, if they belong into one."""
    told = config.transcripts
    if not told.is_afar or told.key is None or told.secret is None:
        return None
    place = Place.of(told.dir or "", told.endpoint, told.region)
    token = told.token.value if told.token is not None else ""
    return Bucket(place, Credentials(told.key.value, told.secret.value, token), ca_file=told.ca_file)


def _uploads(config: Config, warn: Warn, tell: Warn) -> Uploads | None:
    """Every process may see to the age of what is in the bucket: two of them do no harm."""
    afar, told = bucket(config), config.transcripts
    if afar is None:
        return None
    sending = Sending(
        seconds=told.upload_seconds,
        room=told.spool_mib * MEBIBYTE,
        sync=told.fsync,
        retention=Retention(told.days, told.mib * MEBIBYTE),
    )
    return Uploads(afar, config.originals, sending, warn, tell)


def keeper(config: Config, slot: int | None, warn: Warn, tell: Warn) -> Keeper:
    """Each process writes files of its own: two that share one would tear each other's lines. One sees to their age."""
    told = config.transcripts
    if told.keep == "off":
        return Keeper()
    keeping = Keeping(
        rotate=int(told.rotate_mib * MEBIBYTE),
        sync=told.fsync,
        redaction=redacting(config),
        retention=Retention(told.days, told.mib * MEBIBYTE) if not slot else None,
    )
    uploads = _uploads(config, warn, tell)
    if uploads is not None:
        keeping = replace(keeping, retention=None)
    originals = Originals(config.originals, f"w{slot or 0}", keeping, warn, uploads=uploads)
    return Keeper(originals, everything=told.keep == "all", required=told.required)
