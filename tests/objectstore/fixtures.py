"""What tests of the object store ask for: the server, a place of one's own in it, and the weather before it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import pytest

from objectstore.server import MISSING, S3, s3_server
from objectstore.weather import Sky, weather
from proxy.store.originals import Keeping, Originals
from proxy.store.transcripts import uploads as module
from proxy.store.transcripts.objects import stored_at
from proxy.store.transcripts.reading import transcript
from proxy.store.transcripts.s3 import Bucket
from proxy.store.transcripts.uploads import Sending, Uploads

SENDING = Sending(seconds=0.05)
_PLACES = count()


@pytest.fixture(scope="session")
def s3_process(tmp_path_factory) -> Iterator[S3]:
    if MISSING:
        pytest.skip(MISSING)
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(s3_process: S3) -> Iterator[S3]:
    yield s3_process
    while s3_process.opened:
        s3_process.opened.pop().close()


@pytest.fixture
def sky(s3: S3) -> Iterator[Sky]:
    with weather(s3.url) as relay:
        yield relay


@pytest.fixture
def bucket(s3: S3, sky: Sky) -> Bucket:
    """Nobody else writes below its prefix, and everything passes by the weather."""
    return s3.bucket(at=sky.url, prefix=f"test-{next(_PLACES)}", seconds=5.0)


@pytest.fixture
def quick(monkeypatch):
    """A second is long for a test."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(module, "LONGEST_WAIT", 0.2)


@pytest.fixture
def spool(tmp_path):
    return tmp_path / "spool"


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def writing(bucket, spool, warnings, quick):
    """`with writing("w1") as kept:` is one worker's life; what differs from the default is told."""

    @contextmanager
    def live(writer="w0", *, at=spool, to=bucket, tell=lambda _: None, **told):
        keeping = {name: told[name] for name in ("sync", "rotate") if name in told}
        uploads = Uploads(to, at, replace(SENDING, **told), warnings.append, tell)
        kept = Originals(at, writer, Keeping(**keeping), warnings.append, uploads=uploads)
        kept.uploads = uploads
        yield kept
        assert kept.close()

    return live


@pytest.fixture
def stored(bucket, spool):
    """Every conversation as a reader finds it."""
    return lambda at=spool: [transcript(one) for one in stored_at(bucket, at)]
