"""Conversations on their way into the originals, with the chain that the proxy would give them.

with originals(folder) as kept:
    keep(kept, exchange(chat(user("hi")), text_turn("Hello.")))
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from proxy.config.settings import Transcripts
from proxy.history.identity import compute_chain
from proxy.store.transcripts.archive import Archive, Transcript, read_transcript
from proxy.store.transcripts.files import History
from proxy.store.transcripts.writer import OriginalsWriter, Recording
from proxy.wire.answer_assembly import Assembly
from proxy.wire.chat_api import CHAT_FORMAT
from tests.support.completions import Turn
from tests.support.messages import KEY, TENANT, parse_request


@dataclass(frozen=True, slots=True)
class RecordedExchange:
    """A request, and what was answered to it."""

    request: bytes
    answer: Turn | None = None
    tenant: str = TENANT

    @property
    def history(self) -> History:
        return history_of(self.request, self.tenant)


exchange = RecordedExchange


def history_of(source: bytes, tenant: str = TENANT) -> History:
    """What the proxy hands over for a request."""
    request = parse_request(source)
    return History(tenant, compute_chain(request, tenant, KEY), request)


def transcript_settings(**values) -> Transcripts:
    """Settings that nobody checks: a test's files are small, and it waits for milliseconds. Nothing is removed."""
    return Transcripts.model_construct(**{"days": 0, "mib": 0, **values})


@contextmanager
def originals(
    folder: Path, *, warn=lambda _: None, clock=None, redaction=None, **settings
) -> Iterator[OriginalsWriter]:
    made = OriginalsWriter(folder, transcript_settings(**settings), warn, redaction=redaction, clock=clock)
    yield made
    assert made.close()


def keep(kept: OriginalsWriter, *talk: RecordedExchange) -> None:
    """Each is written before this returns."""
    for one in talk:
        history = kept.keep(one.history)
        kept.hurry()
        assert history.done.result(timeout=60)
        if one.answer is not None:
            recording = Recording(kept, history, Assembly(CHAT_FORMAT, "text/event-stream"))
            for frame in one.answer.frames(usage=True):
                recording.feed(frame)
            written = recording.end(ended=True)
            kept.hurry()
            assert written.result(timeout=60)


def transcripts(folder: Path) -> list[Transcript]:
    return [read_transcript(saved) for saved in Archive(folder).find()]


def find_only(folder: Path) -> Transcript:
    (found,) = transcripts(folder)
    return found


def texts(text) -> list:
    return [json.loads(one.message)["content"] for one in text]
