"""The client of an object store: obstore, for S3, Google Cloud Storage or Azure (https://developmentseed.org/obstore/).

obstore is optional (the extra `s3`), so only the composition root imports this module. Of a failure only status and
code are repeated, because a store may quote the signed request.
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


class Bucket:
    """A bucket of S3, GCS or Azure, and a prefix in it. Any thread may use it."""

    def __init__(self, transcripts: Transcripts, timeout_seconds: float = 60.0) -> None:
        ((scheme, name, prefix),) = BUCKET_URL.findall(transcripts.dir or "")
        self.url = f"{scheme}://{name}/{prefix}".rstrip("/")
        self._endpoint = transcripts.endpoint or f"{scheme}://{name}"
        with self._reporting():
            # Writes have no retries here, because `Uploads` repeats them.
            build = partial(_open, transcripts, timeout_seconds, scheme, name, prefix.strip("/"))
            self._writes = build(retries=0)
            self._reads = build(retries=2)

    def put(self, name: str, file: Path | bytes) -> None:
        with self._reporting():
            obstore.put(self._writes, name, file)

    def get(self, name: str) -> bytes:
        with self._reporting():
            return bytes(obstore.get(self._reads, name).bytes())

    def delete(self, name: str) -> None:
        with self._reporting():
            obstore.delete(self._writes, name)

    def list_objects(self, folder: str = "", *, after: str = "") -> Iterator[StoredObject]:
        """Yield objects in the order of their names, from the first one after *after*."""
        pages = obstore.list(self._reads, folder or None, offset=after or None, chunk_size=1000)
        while True:
            with self._reporting():
                page: Sequence[Any] | None = next(pages, None)
            if page is None:
                return
            for item in page:
                yield StoredObject(item["path"], item["size"], item["last_modified"].timestamp())

    def list_folders(self) -> list[str]:
        """Return the first parts of all names."""
        with self._reporting():
            return sorted(obstore.list_with_delimiter(self._reads)["common_prefixes"])

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError, ValueError) as fault:
            kind, problem, cure = _diagnose(str(fault))
            text = f"the object store at {self._endpoint} {problem} for {self.url}: {cure}"
            raise StoreFault(kind, text) from None


def _diagnose(text: str) -> tuple[str, str, str]:
    """Return the kind of a fault, the problem in words, and advice."""
    check = "check `transcripts.dir`, `endpoint`, `region`, `key` and `secret`, and what these credentials may do"
    status = re.search(r"status code: (\d{3})", text)
    if status:
        kind = answer = status[1]
        code = re.search(r"<Code>([A-Za-z0-9.]{1,64})</Code>", text)
        if code:
            kind, answer = code[1], f"{answer} {code[1]}"
        advice = check
        if status[1].startswith(("408", "429", "5")):
            advice = "nothing to set here; it is tried again"
        return kind, f"answers {answer}", advice
    if any(sign in text for sign in ("redirect", "Unable to extract metadata", "Got invalid")):
        return "not an object store", "returned a response that is not an object store's", check
    # Parts of obstore's text that name the cause of a failure, from most to least telling.
    causes = {
        "timed out": ("TimedOut", "timed out", "Timeout"),
        "certificate not trusted": ("UnknownIssuer", "ertificate"),
        "connection refused": ("ConnectionRefused", "Connection refused"),
        "host not found": ("dns error", "failed to lookup"),
        "no credentials": ("169.254.169.254", "Missing", "redential"),
    }
    for cause, signs in causes.items():
        if any(sign in text for sign in signs):
            return "unreachable", f"cannot be reached ({cause})", check
    return "unreachable", "cannot be reached (no connection)", check


# The names in each vendor's client of `transcripts.key`, `transcripts.secret`, `transcripts.token`,
# `transcripts.region` and `transcripts.endpoint`.
_VENDORS: dict[str, tuple[type[S3Store | GCSStore | AzureStore], dict[str, str]]] = {
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
    transcripts: Transcripts, timeout_seconds: float, scheme: str, bucket: str, prefix: str, *, retries: int
) -> S3Store:
    vendor, option_names = _VENDORS[scheme]
    config: dict[str, Any] = {}
    for name, option in option_names.items():
        value = getattr(transcripts, name)
        if value:  # otherwise obstore uses the variables and files of the vendor's own tools
            config[option] = value.value if isinstance(value, Secret) else value
    if scheme == "s3":
        if transcripts.endpoint:
            config["endpoint"] = transcripts.endpoint.rstrip("/").replace("{bucket}", bucket)
        config["virtual_hosted_style_request"] = "{bucket}" in transcripts.endpoint
        config["disable_bulk_delete"] = True  # some servers that speak S3 lack it
    client: dict[str, Any] = {
        "timeout": f"{timeout_seconds}s",
        "connect_timeout": f"{min(5.0, timeout_seconds)}s",
        "allow_http": True,  # for an endpoint that begins with http://
    }
    if transcripts.ca_file:
        client["root_certificate"] = Path(transcripts.ca_file).read_bytes()
    retry: dict[str, Any] = {
        "max_retries": retries,
        "retry_timeout": timedelta(seconds=10),
        "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=1)},
    }
    options: dict[str, Any] = {"config": config, "client_options": client, "retry_config": retry}
    return cast("S3Store", vendor(bucket, prefix=prefix or None, **options))
