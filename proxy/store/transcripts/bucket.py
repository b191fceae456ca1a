"""Client of an object store, over obstore: S3, Google Cloud Storage and Azure, by the scheme of the URL.

obstore is optional (the extra `s3`), so only the composition root imports this module, and only where an object store
is configured. Signing, roles, web identity, multipart uploads and proxies are obstore's. This file maps settings to its
options, and every failure to a `StoreFault` that says what to do.

The text of a failure is never repeated, except for its status and code: a store may quote in it what was signed.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from proxy.config.settings import BUCKET_URL, Transcripts
from proxy.config.values import Secret
from proxy.store.transcripts.archive import StoredObject, StoreFault

REQUEST_TIMEOUT_SECONDS = 60.0
READ_RETRIES = 2
RETRY_FOR_SECONDS = 10.0
PAGE_OBJECTS_MAX = 1000
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
# The part of obstore's text that names the cause of a failed connection, from most to least telling.
_CAUSES = (
    ("timed out", re.compile(r"TimedOut|timed out|Timeout")),
    ("certificate not trusted", re.compile(r"UnknownIssuer|certificate", re.IGNORECASE)),
    ("connection refused", re.compile(r"ConnectionRefused|Connection refused")),
    ("host not found", re.compile(r"dns error|failed to lookup", re.IGNORECASE)),
    ("no credentials", re.compile(r"169\.254\.169\.254|Missing\w*Key|MissingAccount|credential", re.IGNORECASE)),
)

_CHECK = "check `transcripts.dir`, `endpoint`, `region`, `key` and `secret`, and what these credentials may do"
_TRY_AGAIN = "nothing to set here; it is tried again"
_TEMPORARY = ("408", "429", "5")  # as statuses begin


class Bucket:
    """A place in an object store. It may be used from many threads."""

    def __init__(self, settings: Transcripts, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS) -> None:
        ((scheme, name, prefix),) = BUCKET_URL.findall(settings.dir or "")
        self.url = f"{scheme}://{name}/{prefix}".rstrip("/")
        self._endpoint = settings.endpoint or f"{scheme}://{name}"
        with self._reporting():
            # Uploads are repeated by who uploads, after longer and longer pauses; reads are repeated at once.
            build = partial(_open, settings, timeout_seconds, scheme, name, prefix.strip("/"))
            self._writes, self._reads = build(retries=0), build(retries=READ_RETRIES)

    def put(self, name: str, file: Path | bytes) -> None:
        """Store a whole file under this name. To repeat it changes nothing."""
        with self._reporting():
            obstore.put(self._writes, name, file)

    def get(self, name: str) -> bytes:
        with self._reporting():
            return bytes(obstore.get(self._reads, name).bytes())

    def delete(self, name: str) -> None:
        with self._reporting():
            obstore.delete(self._writes, name)

    def list_objects(self, folder: str = "", *, after: str = "") -> Iterator[StoredObject]:
        """All objects in a folder, in the order of their names; `after`: only those whose names follow this one."""
        pages = obstore.list(self._reads, folder or None, offset=after or None, chunk_size=PAGE_OBJECTS_MAX)
        while True:
            with self._reporting():
                page: Sequence[Any] | None = next(pages, None)
            if page is None:
                return
            for item in page:
                yield StoredObject(item["path"], item["size"], item["last_modified"].timestamp())

    def list_folders(self) -> list[str]:
        """The first parts of all names."""
        with self._reporting():
            return sorted(obstore.list_with_delimiter(self._reads)["common_prefixes"])

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turn what obstore raises into a `StoreFault`."""
        try:
            yield
        except (BaseError, OSError, ValueError) as fault:
            kind, problem, cure = _diagnose(str(fault))
            text = f"the object store at {self._endpoint} {problem} for {self.url}: {cure}"
            raise StoreFault(kind, text) from None


def _diagnose(text: str) -> tuple[str, str, str]:
    """The kind of a failure, the problem in words, and what to do."""
    code, status = (found[1] if (found := pattern.search(text)) else "" for pattern in (_CODE, _STATUS))
    if status:
        cure = _TRY_AGAIN if status.startswith(_TEMPORARY) else _CHECK
        return code or status, f"answers {status} {code}".rstrip(), cure
    if any(sign in text for sign in ("redirect", "Unable to extract metadata", "Got invalid")):
        return "not an object store", "returned a response that is not an object store's", _CHECK
    cause = next((name for name, sign in _CAUSES if sign.search(text)), "no connection")
    return "unreachable", f"cannot be reached ({cause})", _CHECK


Vendor = type[S3Store] | type[GCSStore] | type[AzureStore]
# The client of each vendor, and what it calls our settings.
_VENDORS: dict[str, tuple[Vendor, dict[str, str]]] = {
    "s3": (
        S3Store,
        {
            "key": "access_key_id",
            "secret": "secret_access_key",
            "token": "session_token",
            "region": "region",
            "endpoint": "endpoint",
        },
    ),
    "gs": (GCSStore, {"secret": "service_account_key", "endpoint": "base_url"}),
    "az": (AzureStore, {"key": "account_name", "secret": "account_key", "endpoint": "endpoint"}),
}


def _open(
    settings: Transcripts, timeout_seconds: float, scheme: str, bucket: str, prefix: str, *, retries: int
) -> S3Store:
    """A client. A setting that is empty is left out: obstore then looks where the vendor's own tools do."""
    vendor, names = _VENDORS[scheme]
    given = {option: getattr(settings, name) for name, option in names.items()}
    config = {option: value.value if isinstance(value, Secret) else value for option, value in given.items()}
    if scheme == "s3":
        # The bucket leads the path, or the endpoint says where in the host's name it is.
        config["endpoint"] = settings.endpoint.rstrip("/").replace("{bucket}", bucket)
        config["virtual_hosted_style_request"] = "{bucket}" in settings.endpoint
        config["disable_bulk_delete"] = True  # not every server that speaks S3 has that
    client: dict[str, Any] = {
        "timeout": f"{timeout_seconds}s",
        "connect_timeout": f"{min(5.0, timeout_seconds)}s",
        "allow_http": True,  # where the endpoint says so
    }
    if settings.ca_file:
        client["root_certificate"] = Path(settings.ca_file).read_bytes()
    backoff = {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=1)}
    options: dict[str, Any] = {
        "prefix": prefix or None,
        "config": {name: value for name, value in config.items() if value not in ("", None)},
        "client_options": client,
        "retry_config": {
            "max_retries": retries,
            "retry_timeout": timedelta(seconds=RETRY_FOR_SECONDS),
            "backoff": backoff,
        },
    }
    return cast("S3Store", vendor(bucket, **options))
