"""Originals: which histories are handed to the transcripts, and how long a request waits for it.

The history, before anything of it is folded away (invariant 8 of docs/why.md): a request of which something is folded
for the first time waits until it is written. What happens if it cannot be is for the policy to say
(`without_originals`); if transcripts are `required`, the request is refused. If `all` is kept, every other
history too, once the upstream has accepted the request. If a history is kept, so is the answer to it.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from proxy.errors import TranscriptsUnavailable
from proxy.history.chain import compute_chain
from proxy.history.identity import Identity
from proxy.history.request import Request
from proxy.path.originals_rule import Writing
from proxy.store.transcripts.saved_lines import History
from proxy.store.transcripts.writer import Originals, Recording, SubmittedHistory
from proxy.wire.answer_assembly import Assembly
from proxy.wire.answer_format import AnswerFormat
from proxy.wire.headers import Headers, find_encoding, find_header
from proxy.wire.request_format import RequestFormat

REQUIRED_TIMEOUT_SECONDS = 5.0
"""How long a request waits for its history to be written before it is refused."""
WRITE_TIMEOUT_SECONDS = 2.0
"""How long it waits if it goes on unfolded instead."""
FAILING_TIMEOUT_SECONDS = 0.2
"""The same while the disk is known to fail: then a queue before it is no reason to wait for each request."""


@dataclass(frozen=True, slots=True)
class Keeper:
    """The transcripts of a worker, if it keeps any."""

    originals: Originals | None = None
    everything: bool = False
    required: bool = False

    @property
    def is_writable(self) -> bool:
        """Return True if originals can be written now, as far as is known."""
        return self.originals is None or not self.originals.problem

    def locate(self, identity: Identity) -> str:
        """The place of a conversation's originals; empty if none are kept."""
        if self.originals is None or len(identity.links) < 2:  # noqa: PLR2004 (the chain begins with the owner)
            return ""
        return self.originals.locate(identity.tenant, identity.links[1].hex())

    def keep(self, identity: Identity, request: Request, policy: str) -> SubmittedHistory | None:
        """Hand over the new messages of a history. There may be none: a request can be a system prompt alone."""
        if self.originals is None or not request.body:
            return None
        return self.originals.keep(_history(identity.tenant, identity.links, request, policy))

    async def write(
        self, identity: Identity, request: Request, policy: str, writing: Writing
    ) -> tuple[SubmittedHistory | None, bool]:
        """Hand the history over before anything of it is folded away. The second value: False if that failed."""
        history = self.keep(identity, request, policy)
        if history is None or writing is Writing.HAND_OVER:
            return history, True
        must = writing is Writing.WRITE_OR_REFUSE
        seconds = WRITE_TIMEOUT_SECONDS if self.is_writable else FAILING_TIMEOUT_SECONDS
        is_written = await self._wait(history.done, REQUIRED_TIMEOUT_SECONDS if must else seconds)
        if must and not is_written:
            raise TranscriptsUnavailable(
                "the proxy must keep the original of what it shortens and cannot write: its operator can make room on "
                "the disk, or allow to go without (`transcripts.required`, `policies.NAME.without_originals`)",
                headers=(("retry-after", "5"),),
            )
        return history, is_written

    async def check_writable(self) -> bool:
        """Find out whether originals can be written, for a history that is handed over later."""
        if self.originals is None:
            return True
        return self.is_writable and await self._wait(self.originals.check_writable(), WRITE_TIMEOUT_SECONDS)

    async def _wait(self, done: Future[bool], seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                # Shielded: a request that stops waiting does not undo the writing.
                return await asyncio.shield(asyncio.wrap_future(done))
        except TimeoutError:
            if self.originals is not None:
                self.originals.note_slow_disk()
            return False

    def keep_unchanged(self, size: int, read: Callable[[], History | None]) -> SubmittedHistory | None:
        """Keeps a history of which nothing was folded away; it is read later, when no request waits for it."""
        if self.originals is None or not self.everything:
            return None
        return self.originals.keep_later(size, read)

    def record_answer(self, history: SubmittedHistory, answer: Headers, reader: AnswerFormat) -> Recording | None:
        """A recording of the answer that now begins."""
        if self.originals is None:
            return None
        kind, encoding = find_header(answer, "content-type") or "", find_encoding(answer)
        return self.originals.record(history, Assembly(kind, encoding, reader=reader))

    async def close(self) -> None:
        if self.originals is not None:
            await asyncio.to_thread(self.originals.close)


def read_history(
    body: bytes, tenant: str, conversation: str, secret: bytes, policy: str, *, requests: RequestFormat
) -> History | None:
    """The history of a request that was not parsed until now."""
    request = requests.parse(body)
    if request is None or not request.body:
        return None
    return _history(tenant, compute_chain(request, tenant, secret, conversation), request, policy)


def _history(tenant: str, links: Sequence[bytes], request: Request, policy: str) -> History:
    origin, *rest = links

    def write_links(known_links: Sequence[str]) -> list[str]:
        return [link.hex() for link in rest[len(known_links) :]]

    def list_bytes(known_bytes: Sequence[bytes]) -> list[bytes]:
        return [message.raw for message in request.body[len(known_bytes) :]]

    steps = request.columns.extend(("links as text", origin), len(rest), write_links)
    messages = request.columns.extend("raw messages", len(request.body), list_bytes)
    head = [message.raw for message in request.head]
    return History(
        tenant, steps[0], steps, messages, head, origin.hex(), policy, request.wire, size=len(request.source)
    )
