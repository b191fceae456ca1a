"""What of a request is handed to the originals, and when.

The history, before anything of it is folded away (law 8): only where transcripts are `required` does the request wait
until that is written, and is refused where it cannot be. Where `all` is kept, every other history too, once the
upstream has accepted the request. Where a history is kept, so is the answer to it.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

from proxy.core.memory import Identity
from proxy.core.model.identity import chain
from proxy.core.model.messages import Request
from proxy.errors import TranscriptsUnavailable
from proxy.store.originals import History, Kept, Originals, Recording
from proxy.wire import chat
from proxy.wire.answers import Assembly
from proxy.wire.headers import Headers, find

WRITE_TIMEOUT_SECONDS = 5.0
"""Seconds that a request waits for its history where it must."""


@dataclass(frozen=True, slots=True)
class Keeper:
    """The originals, and what is to be kept there; without originals, nothing is."""

    originals: Originals | None = None
    everything: bool = False
    required: bool = False

    async def keep_before_loss(self, identity: Identity, request: Request, policy: str) -> Kept | None:
        """Law 8: the history is handed over before anything of it is folded away."""
        if self.originals is None:
            return None
        kept = self.originals.keep(_history(identity.tenant, identity.links, request, policy))
        if self.required and not await _is_written(kept.done):
            raise TranscriptsUnavailable(
                "the proxy must keep the original of what it shortens and cannot write: its operator can make room on "
                "the disk, or set `transcripts.required` to false",
                headers=(("retry-after", "5"),),
            )
        return kept

    def keep_unchanged(self, size: int, read: Callable[[], History | None]) -> Kept | None:
        """Keeps a history of which nothing was folded away; it is read later, where nobody waits for it."""
        if self.originals is None or not self.everything:
            return None
        return self.originals.keep_later(size, read)

    def record_answer(self, kept: Kept | None, answer: Headers) -> Recording | None:
        """A recording of the answer that now begins."""
        if self.originals is None or kept is None:
            return None
        kind, encoding = find(answer, "content-type") or "", find(answer, "content-encoding") or ""
        return self.originals.record(kept, Assembly(kind, encoding))

    async def close(self) -> None:
        if self.originals is not None:
            await asyncio.to_thread(self.originals.close)


@contextmanager
def record_chunks(recording: Recording | None) -> Iterator[Callable[[bytes], None]]:
    """Records an answer while it passes. However it ends, what was heard of it is written."""
    if recording is None:
        yield _ignore
        return
    ended = False
    try:
        yield recording.feed
        ended = True
    finally:
        recording.end(ended=ended)


def _ignore(_chunk: bytes) -> None:
    """For an answer that nobody keeps."""


async def _is_written(done: Future[bool]) -> bool:
    try:
        async with asyncio.timeout(WRITE_TIMEOUT_SECONDS):
            return await asyncio.wrap_future(done)
    except TimeoutError:
        return False


def read_history(body: bytes, tenant: str, conversation: str, secret: bytes, policy: str) -> History | None:
    """The history of a request that nobody had to look into until now."""
    request = chat.parse(body)
    if request is None or not request.body:
        return None
    return _history(tenant, chain(request, tenant, secret, conversation), request, policy)


def _history(tenant: str, links: Sequence[bytes], request: Request, policy: str) -> History:
    origin, *steps = [link.hex() for link in links]
    messages = [message.raw for message in request.body]
    head = [message.raw for message in request.head]
    return History(tenant, steps[0], steps, messages, head, origin, policy)
