"""The door to an object store that speaks S3: put, get, list, delete; each a signed request over the standard library.

Why no client library: four verbs are all we need, from threads that may wait, and the ones there are weigh more than
the rest of the proxy. What a library would add to them (when to try again, how long to wait, what to tell) must be
decided here anyway, because a request may never feel it. One bucket may be used from many threads: whoever asks takes
an idle connection, or makes one.

A store that does not answer well is a `StoreFault`: whose fault it is and what to do. What it says of itself is not
repeated, but for its code: the text beside it may hold what was signed.
"""

import contextlib
import hashlib
import http.client
import io
import re
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import unquote_plus, urlsplit
from xml.etree import ElementTree as ET

from proxy.store.transcripts.signature import EMPTY, Asked, Credentials, Query, signed

__all__ = ["Bucket", "Credentials", "Object", "Place", "StoreFault"]

Body = io.BufferedReader | io.BytesIO
_PIECE = 256 * 1024  # is sent at a time
PAGE = 1000  # names in one answer to a list
WAITS = (0.1, 0.5)  # before a read is tried again
SECONDS = 20.0  # of silence, on connecting and while it answers
_URL = re.compile(r"s3://([^/]+)(?:/(.*))?")
_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,64})</Code>")
_REGION = re.compile(rb"<Region>([a-z0-9-]{1,64})</Region>")

# What the operator can do about an answer, by its code or else its status.
_CURES = {
    "AccessDenied": "allow these credentials to put, get, list and delete there",
    "InvalidAccessKeyId": "correct `transcripts.key`",
    "SignatureDoesNotMatch": "correct `transcripts.secret`",
    "ExpiredToken": "renew `transcripts.key` and `transcripts.secret`",
    "InvalidToken": "correct `transcripts.key` and `transcripts.secret`",
    "RequestTimeTooSkewed": "set this machine's clock",
    "NoSuchBucket": "create the bucket, or correct `transcripts.dir`",
    "AuthorizationHeaderMalformed": "correct `transcripts.region`",
    "PermanentRedirect": "correct `transcripts.region` or `transcripts.endpoint`",
    "301": "correct `transcripts.region` or `transcripts.endpoint`",
    "403": "correct `transcripts.key` and `transcripts.secret`",
    "404": "correct `transcripts.endpoint` and `transcripts.dir`",
}
_SERVERS_FAULT = "nothing here can cure that: it is tried again"


class StoreFault(OSError):
    """An object store that cannot be reached, or does not do what it is asked. `passes`: to ask again may be enough.

    The same fault is of the same `kind`.
    """

    def __init__(self, kind: str, why: str, *, passes: bool = False) -> None:
        super().__init__(why)
        self.kind = kind
        self.passes = passes


@dataclass(frozen=True, slots=True)
class Place:
    """Where objects are kept. Without an endpoint: at AWS, in this region."""

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    region: str = "us-east-1"

    @classmethod
    def of(cls, url: str, endpoint: str = "", region: str = "us-east-1") -> "Place":
        """What `s3://bucket/prefix` means. ValueError: it means nothing."""
        found = _URL.fullmatch(url)
        if not found:
            raise ValueError("not a place in an object store: say s3://bucket or s3://bucket/prefix")
        prefix = (found[2] or "").strip("/")
        return cls(found[1], f"{prefix}/" if prefix else "", endpoint, region)

    @property
    def origin(self) -> str:
        """At AWS a bucket has a host of its own; elsewhere it leads the path, or the endpoint says `{bucket}`."""
        if self.endpoint:
            return self.endpoint.rstrip("/").replace("{bucket}", self.bucket)
        host = f"s3.{self.region}.amazonaws.com"
        return f"https://{host}" if "." in self.bucket else f"https://{self.bucket}.{host}"

    @property
    def root(self) -> str:
        """The path to the bucket at its origin."""
        named = "{bucket}" in self.endpoint if self.endpoint else "." not in self.bucket
        return urlsplit(self.origin).path + ("/" if named else f"/{self.bucket}/")

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


@dataclass(frozen=True, slots=True)
class Object:
    """An object as a list shows it; its name is what follows the prefix."""

    name: str
    bytes: int
    written: float


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    data: bytes
    etag: str = ""
    bucket_region: str = ""

    @property
    def code(self) -> str:
        found = _CODE.search(self.data)
        return found[1].decode() if found else str(self.status)

    @property
    def region(self) -> str:
        """Where the bucket really is, if it says so."""
        found = _REGION.search(self.data)
        return found[1].decode() if found else self.bucket_region


class Bucket:
    """A place in an object store, and what lets us in."""

    def __init__(
        self, place: Place, credentials: Credentials, *, ca_file: str | None = None, seconds: float = SECONDS
    ) -> None:
        self.place = place
        self._credentials = credentials
        self._seconds = seconds
        self._tls = ssl.create_default_context(cafile=ca_file) if place.origin.startswith("https:") else None
        self._idle: list[http.client.HTTPConnection] = []

    def put(self, name: str, file: Body) -> None:
        """The whole file under this name. To do it again changes nothing."""
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        if not self._ask("PUT", name, body=file, digest=digest).etag:
            raise self._nonsense()  # a friendly web server: what it swallows is nowhere

    def get(self, name: str) -> bytes:
        return self._asked("GET", name).data

    def delete(self, name: str) -> None:
        self._ask("DELETE", name)

    def objects(self, under: str = "") -> Iterator[Object]:
        """Everything whose name begins like this, in the order of their names."""
        for page in self._pages(("prefix", self.place.prefix + under)):
            for entry in page.iterfind("{*}Contents"):
                try:
                    when = datetime.fromisoformat(_told(entry, "LastModified")).timestamp()
                    yield Object(_told(entry, "Key").removeprefix(self.place.prefix), int(_told(entry, "Size")), when)
                except ValueError:
                    raise self._nonsense() from None

    def folders(self) -> list[str]:
        """The first parts of all names."""
        pages = self._pages(("prefix", self.place.prefix), ("delimiter", "/"))
        found = [_told(entry, "Prefix") for page in pages for entry in page.iterfind("{*}CommonPrefixes")]
        return [name.removeprefix(self.place.prefix).rstrip("/") for name in found]

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    # --- on the wire -------------------------------------------------------------------------------------------------

    def _pages(self, *query: tuple[str, str]) -> Iterator[ET.Element]:
        asked, more = [("list-type", "2"), ("encoding-type", "url"), ("max-keys", str(PAGE)), *query], ""
        while True:
            answer = self._asked("GET", query=[*asked, ("continuation-token", more)] if more else asked)
            try:
                page = ET.fromstring(answer.data)  # noqa: S314 (expat bounds what entities do; the store is trusted)
            except ET.ParseError:
                raise self._nonsense() from None
            if not page.tag.endswith("ListBucketResult"):
                raise self._nonsense()
            yield page
            more = _told(page, "NextContinuationToken")
            if not more and _told(page, "IsTruncated") == "true":
                raise self._nonsense()  # it knows the first version of this call only, and would tell no more than this
            if not more:
                return

    def _asked(self, method: str, name: str = "", *, query: Query = ()) -> _Answer:
        """Whoever reads has asked for much before, and does not begin anew because of one hiccup."""
        for wait in WAITS:
            try:
                return self._ask(method, name, query=query)
            except StoreFault as fault:
                if not fault.passes:
                    raise
                time.sleep(wait)
        return self._ask(method, name, query=query)

    def _ask(
        self, method: str, name: str = "", *, query: Query = (), body: Body | None = None, digest: str = EMPTY
    ) -> _Answer:
        path = self.place.root + (self.place.prefix + name if name else "")
        asked = Asked(method, urlsplit(self.place.origin).netloc, path.rstrip("/") or "/", query, digest)
        try:
            answer = self._exchange(asked, body)
        except (OSError, http.client.HTTPException) as fault:
            cure = "see that it runs, and that `transcripts.endpoint` is right"
            cut = isinstance(fault, ConnectionResetError | http.client.HTTPException)
            raise self._fault("unreachable", f"cannot be reached ({_kind(fault)})", cure, passes=cut) from None
        if answer.status >= http.client.MULTIPLE_CHOICES:
            raise self._refusal(answer)
        return answer

    def _exchange(self, asked: Asked, body: Body | None) -> _Answer:
        """Over an idle connection, which the store may have left meanwhile, or else over a new one."""
        while self._idle:
            try:
                line = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            try:
                return self._over(line, asked, body)
            except (ConnectionError, http.client.BadStatusLine):
                continue
        return self._over(self._connection(), asked, body)

    def _over(self, line: http.client.HTTPConnection, asked: Asked, body: Body | None) -> _Answer:
        headers = signed(asked, self.place.region, self._credentials, datetime.now(UTC))
        if body is not None:
            headers |= {"content-length": str(body.seek(0, io.SEEK_END)), "content-type": "application/x-ndjson"}
            body.seek(0)
        done = False
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may say why before it has heard all
                line.request(asked.method, asked.target, body, headers)
            answer = line.getresponse()
            data = answer.read()
            done = not answer.will_close
            told = (answer.getheader(name, "") for name in ("etag", "x-amz-bucket-region"))
            return _Answer(answer.status, data, *told)
        finally:
            if done:
                self._idle.append(line)
            else:
                line.close()

    def _connection(self) -> http.client.HTTPConnection:
        told = urlsplit(self.place.origin)
        host = told.hostname or ""
        if self._tls is not None:
            return http.client.HTTPSConnection(
                host, told.port, timeout=self._seconds, context=self._tls, blocksize=_PIECE
            )
        return http.client.HTTPConnection(host, told.port, timeout=self._seconds, blocksize=_PIECE)

    def _refusal(self, answer: _Answer) -> StoreFault:
        cure = _CURES.get(answer.code) or _CURES.get(str(answer.status), "")
        if answer.region and answer.region != self.place.region:
            cure = f"the bucket is in another region: set `transcripts.region` to {answer.region}"
        told = f"{answer.status} {answer.code}" if answer.code != str(answer.status) else answer.code
        return self._fault(answer.code, f"answers {told}", cure or _SERVERS_FAULT, passes=not cure)

    def _nonsense(self) -> StoreFault:
        return self._fault("nonsense", "answers, but not as one", _CURES["404"])

    def _fault(self, kind: str, why: str, cure: str, *, passes: bool = False) -> StoreFault:
        said = f"the object store at {self.place.origin} {why} for {self.place}: {cure}"
        return StoreFault(kind, said, passes=passes)


def _kind(fault: OSError | http.client.HTTPException) -> str:
    """What went wrong, in the system's words or by its kind: never what was sent."""
    return (
        (fault.strerror or str(fault) or type(fault).__name__) if isinstance(fault, OSError) else type(fault).__name__
    )


def _told(entry: ET.Element, name: str) -> str:
    text = entry.findtext(f"{{*}}{name}") or ""
    return unquote_plus(text) if name in {"Key", "Prefix"} else text
