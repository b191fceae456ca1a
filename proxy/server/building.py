"""Builds a worker out of its parts."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from proxy import assembly, events
from proxy.access.records import RegistryUnreadable
from proxy.access.registry import Registry
from proxy.admin.dispatch import Admin
from proxy.admin.routes import AdminContext
from proxy.config import Config
from proxy.lifetime import BackgroundTasks
from proxy.path.compactor import Compactor
from proxy.path.gateway import Gateway
from proxy.server.application import App
from proxy.server.config_watch import ConfigSource
from proxy.server.listeners import Listeners
from proxy.server.worker import Slot, Worker

_NOTES_MAX = 1_000
"""Notes after answers that may be under way at once. More means that the store or an upstream does not keep up."""


@dataclass(frozen=True, slots=True)
class LastValid:
    """The last valid content of the files that operators change, for a worker that starts when one cannot be read."""

    config: Config
    registry: Registry


def build_worker(source: ConfigSource, started: Config, slot: Slot | None, last_valid: LastValid) -> Worker:
    """Build a worker within the event loop that it is to run in.

    All workers are built from `started`, the configuration at start, so that all have the same files and stores.
    `last_valid` is the newest configuration, for a worker that is started later.
    """

    def get_config_in_force() -> Config:
        return app.gateway.config

    snapshots = None if slot is None else slot.snapshots
    slot_number = None if slot is None else slot.number
    listeners = Listeners(started, get_config_in_force, snapshots)
    report_recovery = listeners.make_reporter(events.StoreRecovered)
    store = assembly.open_store(started, listeners.warn, report_recovery)
    keeper = assembly.build_keeper(started, slot_number, listeners.warn, report_recovery)
    compactor = Compactor(store, keeper, listeners.emit, assembly.build_redaction(started))
    records = assembly.open_records(started, last_valid.registry)
    try:
        records.look()
    except (RegistryUnreadable, OSError) as fault:  # the other workers keep the one that they have read, too
        listeners.warn(str(fault))
    notes = BackgroundTasks(_NOTES_MAX)
    admin_context = AdminContext(
        config=get_config_in_force,
        read=source.read,
        check=source.check,
        file=source.file,
        records=records,
        store=store,
        archive=assembly.open_archive(started),
        activity_log=listeners.activity_log,
        audit=listeners.audit,
        emit=listeners.emit,
    )
    app = App(
        Gateway(last_valid.config, compactor, records, listeners.emit, notes),
        listeners.emit,
        listeners.metrics,
        snapshots,
        Admin(admin_context),
        can_keep_originals=lambda: keeper.is_writable,
        can_write_state=partial(assembly.can_write_state, Path(started.state.dir), store),
    )
    listeners.metrics.track(listeners.metrics.in_flight, lambda: app.in_flight)
    return Worker(
        source,
        started,
        slot,
        app=app,
        listeners=listeners,
        store=store,
        records=records,
        compactor=compactor,
        notes=notes,
    )
