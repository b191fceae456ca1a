"""What tests of the object store ask for: the server, a place of one's own in it, and faults before it."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from proxy.store.transcripts import uploads as module
from proxy.store.transcripts.archive import Archive, read_transcript
from proxy.store.transcripts.bucket import Bucket
from proxy.store.transcripts.uploads import Uploads
from proxy.store.transcripts.writer import OriginalsWriter
from tests.support.object_store.faulty_relay import FaultyRelay, faulty_relay
from tests.support.object_store.server import MISSING, S3, s3_server
from tests.support.transcripts import transcript_settings

_PLACES = count()


@pytest.fixture(scope="session")
def s3(tmp_path_factory) -> Iterator[S3]:
    if MISSING:
        pytest.skip(MISSING)
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def relay(s3: S3) -> Iterator[FaultyRelay]:
    with faulty_relay(s3.url) as relay:
        yield relay


@pytest.fixture
def bucket(s3: S3, relay: FaultyRelay) -> Bucket:
    """Only this test writes below its prefix, and everything passes through the relay with faults."""
    return s3.bucket(at=relay.url, prefix=f"test-{next(_PLACES)}", timeout_seconds=5.0)


@pytest.fixture
def short_waits(monkeypatch):
    """A second is long for a test."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(module, "LONGEST_PAUSE_SECONDS", 0.2)


@pytest.fixture
def spool(tmp_path):
    return tmp_path / "spool"


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def writing(bucket, spool, warnings, short_waits, monkeypatch):
    """`with writing() as kept:` is one worker's life; settings that differ from the default are given."""

    @contextmanager
    def live(*, at=spool, to=bucket, tell=lambda _: None, **settings):
        for constant in settings.keys() & {"UPLOAD_BYTES", "UPLOADS_AT_ONCE_MAX"}:
            monkeypatch.setattr(module, constant, settings.pop(constant))
        transcripts = transcript_settings(**{"upload_seconds": 0.05, **settings})
        uploads = Uploads(to, at, transcripts, warnings.append, tell)
        kept = OriginalsWriter(at, transcripts, warnings.append, uploads=uploads)
        kept.uploads = uploads
        yield kept
        assert kept.close()

    return live


@pytest.fixture
def stored_conversations(bucket, spool):
    """Every conversation as a reader finds it."""
    return lambda at=spool: [read_transcript(saved) for saved in Archive(at, bucket).find()]
