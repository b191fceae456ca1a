"""The configuration while the proxy runs: changes without a restart, renewed certificates, and upstreams that loop.

An invalid file is reported, and the old configuration stays in force. Files are read once they have not changed for a
moment, because editors do not replace them in one step, or when SIGHUP asks for it.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from proxy import events
from proxy.access.registry import Records
from proxy.config.faults import Fault, InvalidConfig
from proxy.config.loading import Changes, Loaded
from proxy.config.settings import Config, Listen
from proxy.foundation.lifetime import CONTROL

T = TypeVar("T")
FILE_SECONDS = 0.25

FileStamp = tuple[int, int] | None


def check_upstreams(loaded_config: Loaded, *listeners: Listen) -> None:
    """Raise InvalidConfig if one of the proxy's own listeners is the address of an upstream."""
    faults = []
    for number, upstream in enumerate(loaded_config.config.upstreams):
        for listen in listeners:
            if _is_own(upstream.base_url, listen):
                why = (
                    f"port {listen.port} of this host is the proxy's own address (`listen`), so each request would "
                    "come back to it without end: name the address of the API"
                )
                origin = loaded_config.origin("upstreams", number, "base_url")
                faults.append(Fault(f"upstreams.{number}.base_url", origin, why))
                break
    if faults:
        raise InvalidConfig(faults)


def _is_own(base_url: str, listen: Listen) -> bool:
    url = urlsplit(base_url)
    port = url.port or (443 if url.scheme == "https" else 80)
    host = (url.hostname or "").rstrip(".")
    own_host = listen.host.lower()
    local_hosts = {"", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::"}  # noqa: S104 (compared with, not bound to)
    return port == listen.port and (host == own_host or {host, own_host} <= local_hosts)


class ConfigSource(Struct):
    """Reads the configuration. Some files are valid at start only, so it remembers if settings and teams were read."""

    load: Callable[[], Loaded]
    file: Path | None
    stamp_read: FileStamp = None
    had_file_settings: bool = False
    warnings: Sequence[tuple[str, str]] = ()
    _had_teams: bool = False
    _listen: Listen | None = None
    """The listener in use, even if the file names another now."""

    def read_stamp(self) -> FileStamp:
        return read_file_stamp(self.file)

    def read(self) -> Loaded:
        self.stamp_read = self.read_stamp()
        loaded_config = self.load()
        self._listen = self._listen or loaded_config.config.listen
        check_upstreams(loaded_config, loaded_config.config.listen, self._listen)
        # A full disk or a killed editor leaves an empty file.
        if self.had_file_settings and not loaded_config.has_file_settings:
            why = "the file has become empty: restore its settings, or restart the proxy to use the defaults"
            raise InvalidConfig([Fault("", str(self.file), why)])
        if self._had_teams and not loaded_config.config.teams:
            why = "the last team is gone, and without teams no client needs a key: restore one, or restart the proxy"
            raise InvalidConfig([Fault("teams", str(self.file or "configuration"), why)])
        self.warnings = loaded_config.warnings
        self.had_file_settings = self.had_file_settings or loaded_config.has_file_settings
        self._had_teams = self._had_teams or bool(loaded_config.config.teams)
        return loaded_config


async def watch_file(
    source: ConfigSource,
    start_config: Config,
    apply: Callable[[Config], Awaitable[Changes | None]],
    requested: asyncio.Event,
    emit: events.Listener,
) -> None:
    """Read the configuration when its file has changed and then stayed as it is, or when SIGHUP asks for it."""
    was_refused, waiting_settings = False, tuple[str, ...]()
    async for _ in _await_changes(source.read_stamp, source.stamp_read, requested):
        try:
            loaded_config = await CONTROL.run(source.read)
        except InvalidConfig as invalid:
            was_refused = True
            emit(events.ConfigReloaded(str(invalid)))
            continue
        config, now_waiting = loaded_config.config.with_start_settings_of(start_config)
        changes = await apply(config)
        if changes is not None or now_waiting != waiting_settings or was_refused:
            was_refused, waiting_settings = False, now_waiting
            changes = changes or Changes((), ())
            emit(events.ConfigReloaded(waiting=now_waiting, changed=changes.settings, policies=changes.policies))


def report_switches(records: Records, states: dict[str, str], emit: events.Listener) -> None:
    """Emit an event for each switch that was turned, by whatever command or replica, since *states* were noted."""
    for team, switch in records.current.switches.items():
        if switch.state != states.get(team, "on"):
            emit(events.SwitchTurned(team, switch.state))
        states[team] = switch.state


async def _await_changes(read_stamp: Callable[[], T], stamp_read: T, requested: asyncio.Event) -> AsyncIterator[None]:
    """Yield when a stamp differs from the one of the last reading and then stays as it is, or when it is requested."""
    last_stamp = read_stamp()
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(FILE_SECONDS):
                await requested.wait()
        stamp = read_stamp()
        has_settled = stamp == last_stamp and stamp != stamp_read
        last_stamp = stamp
        if requested.is_set() or has_settled:
            stamp_read = stamp
            requested.clear()
            yield


def read_file_stamp(file: Path | None) -> FileStamp:
    if file is None:
        return None
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def make_tls_context(listen: Listen) -> ssl.SSLContext | None:
    if listen.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(listen.tls_cert, listen.tls_key)
    if listen.client_ca is not None:
        context.load_verify_locations(listen.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def watch_certificate(listen: Listen, context: ssl.SSLContext, emit: events.Listener) -> None:
    """Load the certificate again if its files change: ACME clients and cert-manager replace them."""

    def read_stamps() -> tuple[FileStamp, FileStamp]:
        return read_file_stamp(Path(str(listen.tls_cert))), read_file_stamp(Path(str(listen.tls_key)))

    async for _ in _await_changes(read_stamps, read_stamps(), asyncio.Event()):
        why = None
        try:
            make_tls_context(listen)  # tried first: a certificate without its key would break the context in use
            context.load_cert_chain(str(listen.tls_cert), listen.tls_key)
        except OSError as fault:
            why = f"{listen.tls_cert}, {listen.tls_key}: {fault.strerror or fault}"
        emit(events.CertificateReloaded(why))
