"""TLS of the listener: its context, and renewed certificates while it runs."""

import asyncio
import ssl
from pathlib import Path

from proxy import events
from proxy.config import Listen
from proxy.server.config_watch import FILE_SECONDS, FileStamp, read_file_stamp


def make_tls_context(listen: Listen) -> ssl.SSLContext | None:
    """Return the context of the listener, or None without `tls_cert`. OSError: a file cannot be used."""
    if listen.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(listen.tls_cert, listen.tls_key)
    if listen.client_ca is not None:
        context.load_verify_locations(listen.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def watch_certificate(listen: Listen, context: ssl.SSLContext, emit: events.Listener) -> None:
    """Serve a renewed certificate to new connections: ACME clients and cert-manager replace the files.

    The files are read once they have not changed for a moment, because they are not replaced in one step.
    """
    stamps_in_force = last_stamps = _read_stamps(listen)
    while True:
        await asyncio.sleep(FILE_SECONDS)
        stamps = _read_stamps(listen)
        if stamps == last_stamps and stamps != stamps_in_force:
            stamps_in_force = stamps
            emit(events.CertificateReloaded(_reload(listen, context)))
        last_stamps = stamps


def _reload(listen: Listen, context: ssl.SSLContext) -> str | None:
    """Load the certificate into the context in use. Return the reason if it cannot be used."""
    try:
        make_tls_context(listen)  # tried first: a certificate without its key would break the context in use
    except OSError as fault:
        return f"{listen.tls_cert}, {listen.tls_key}: {fault.strerror or fault}"
    context.load_cert_chain(str(listen.tls_cert), listen.tls_key)
    return None


def _read_stamps(listen: Listen) -> tuple[FileStamp, ...]:
    return tuple(read_file_stamp(Path(name)) for name in (listen.tls_cert, listen.tls_key) if name is not None)
