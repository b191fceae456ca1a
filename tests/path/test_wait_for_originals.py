"""A request that waits for its original: not longer than it must, and a slow disk is known from then on."""

import asyncio
import threading

import pytest

from proxy.decide.conversation import Writing
from proxy.foundation.errors import TranscriptsUnavailable
from proxy.history.identity import Identity
from proxy.serve import services as module
from proxy.serve.services import Keeper
from proxy.store.transcripts import writer
from proxy.store.transcripts.files import TranscriptFolder
from proxy.store.transcripts.writer import OriginalsWriter
from tests.support.messages import KEY, TENANT, body, parse_request, user
from tests.support.proxy_client import until

REQUEST = parse_request(body(user("Hello there")))
IDENTITY = Identity.of(REQUEST, TENANT, KEY, "", "")


@pytest.fixture
def disk(monkeypatch):
    """Set: it writes."""
    writes, write = threading.Event(), TranscriptFolder._write
    monkeypatch.setattr(TranscriptFolder, "_write", lambda *line: writes.wait(10) and write(*line))
    monkeypatch.setattr(module, "WRITE_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(module, "REQUIRED_TIMEOUT_SECONDS", 0.1)
    yield writes
    writes.set()


@pytest.fixture
async def keeper(tmp_path, disk):
    made = Keeper(OriginalsWriter(tmp_path))
    yield made
    disk.set()
    await made.close()


async def test_a_slow_disk_is_waited_for_once_and_known_until_it_writes(keeper, disk):
    kept, is_written = await keeper.write(IDENTITY, REQUEST, "", Writing.WRITE)
    assert (is_written, keeper.is_writable) == (False, False)
    disk.set()
    assert await asyncio.wrap_future(kept.done)
    await until(lambda: keeper.is_writable)


async def test_what_a_request_waits_for_is_written_at_once(keeper, disk, monkeypatch):
    monkeypatch.setattr(writer, "GATHER_SECONDS", 60.0)
    monkeypatch.setattr(module, "WRITE_TIMEOUT_SECONDS", 30.0)
    disk.set()
    _, is_written = await keeper.write(IDENTITY, REQUEST, "", Writing.WRITE)
    assert is_written
    assert await keeper.check_writable()


async def test_only_the_first_fold_of_a_message_waits(keeper):
    async with asyncio.timeout(60):
        kept, is_written = await keeper.write(IDENTITY, REQUEST, "", Writing.HAND_OVER)
    assert (is_written, kept.done.done()) == (True, False)


async def test_where_it_must_be_written_a_slow_disk_is_a_refusal(keeper):
    with pytest.raises(TranscriptsUnavailable):
        await keeper.write(IDENTITY, REQUEST, "", Writing.WRITE_OR_REFUSE)


async def test_without_transcripts_nothing_is_kept_and_everything_may_be_folded():
    assert await Keeper().write(IDENTITY, REQUEST, "", Writing.WRITE_OR_REFUSE) == (None, True)
