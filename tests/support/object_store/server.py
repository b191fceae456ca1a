"""A real S3 server on loopback: moto, told to know its users and to check what they sign.

with s3_server(place) as s3:
    s3.bucket()                 # as the proxy would open it
    s3.stop(); s3.go_on()       # hangs, with its socket open
    s3.restart()                # dies, and comes back with nothing in it
"""

import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from proxy.config.settings import Transcripts
from proxy.config.values import Secret
from proxy.store.transcripts.bucket import Bucket
from tests.support import environments
from tests.support.running_proxy import free_port

PATIENCE = 60.0
BUCKET = "transcripts"
MISSING = environments.missing("object_store")
POLICY = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}'


def open_bucket(url, *, timeout_seconds=60.0, **settings) -> Bucket:
    """A bucket, with secrets as texts."""
    given = {name: value for name, value in settings.items() if value}
    secrets = {name: Secret(f"env:{name}", given.pop(name)) for name in ("key", "secret", "token") if name in given}
    return Bucket(Transcripts(dir=url, **given, **secrets), timeout_seconds)


@dataclass
class S3:
    place: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen | None = None
    key: str = ""
    secret: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def bucket(self, *, at: str = "", prefix: str = "", name: str = BUCKET, **more) -> Bucket:
        """The proxy's client of it; `at` is the URL of what is in front of it."""
        settings = {"endpoint": at or self.url, "key": self.key, "secret": self.secret, **more}
        return open_bucket(f"s3://{name}/{prefix}", **settings)

    def start(self) -> None:
        with (self.place / "s3.log").open("ab") as log:
            self.process = subprocess.Popen(
                [environments.program_of("object_store", "moto_server"), "-H", "127.0.0.1", "-p", str(self.port)],
                stdout=log,
                stderr=log,
            )
        self._ready()
        self._post("/", Action="CreateUser", UserName="proxy")
        self._post("/", Action="PutUserPolicy", UserName="proxy", PolicyName="all", PolicyDocument=POLICY)
        found = self._post("/", Action="CreateAccessKey", UserName="proxy")
        names = ("AccessKeyId", "SecretAccessKey")
        self.key, self.secret = (re.search(f"<{name}>(.*?)</{name}>", found)[1] for name in names)
        self._ask(f"/{BUCKET}", method="PUT")
        self._ask("/moto-api/reset-auth", b"0")  # from here on it admits no other client

    def kill(self) -> None:
        self.resume_process()
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def stop(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume_process(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def _ready(self) -> None:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self._ask("/moto-api/")
            except OSError:
                assert time.monotonic() < end, (self.place / "s3.log").read_text()
                time.sleep(0.05)
            else:
                return

    def _post(self, path: str, **form: str) -> str:
        return self._ask(path, urlencode({"Version": "2010-05-08", **form}).encode())

    def _ask(self, path: str, data: bytes | None = None, method: str | None = None) -> str:
        signs = "AWS4-HMAC-SHA256 Credential=setup/20200101/us-east-1/iam/aws4_request"
        headers = {"authorization": signs} if path == "/" else {"content-type": "text/plain"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.read().decode()


@contextmanager
def s3_server(place: Path) -> Iterator[S3]:
    server = S3(place)
    server.start()
    try:
        yield server
    finally:
        server.kill()
