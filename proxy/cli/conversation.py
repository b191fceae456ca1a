"""A saved conversation as text: messages, answers, and what was forwarded instead of them.

What was forwarded follows from the history and its block, computed by the same functions as when it was forwarded.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from proxy.admin.history import show_with_block
from proxy.core.messages import Message
from proxy.core.overlay import Block
from proxy.core.rules import Rules
from proxy.store.transcripts.archive import Transcript, role_and_text
from proxy.store.transcripts.files import AnswerLine, MessageLine
from proxy.wire import chat
from proxy.wire.redaction import Redaction

_WIDTH_CHARACTERS = 120
_MARGIN_CHARACTERS = 17


@dataclass(frozen=True, slots=True)
class ForwardedView:
    """A block, and the messages that are forwarded with it."""

    block: Block
    view: tuple[Message, ...]

    @classmethod
    def of(cls, path: list[MessageLine], stored: bytes) -> "ForwardedView | None":
        """None where the block cannot be read, or is not of this history."""
        request = chat.parse(b'{"messages":[' + b",".join(said.message for said in path) + b"]}")
        block = Block.from_bytes(stored)
        if request is None or block is None:
            return None
        links = [bytes.fromhex(link) for link in (path[0].after, *(said.at for said in path))]
        view = show_with_block(request, links, block, Rules())
        return cls(block, view.messages) if view.block is not None else None

    def instead_of(self, place: int, said: MessageLine) -> Iterator[tuple[str, bytes]]:
        """Forwarded messages in place of one message, each with a label; none: the message itself."""
        for message in self.view:
            if message.start == place and message.raw != said.message:
                many = message.stop - place
                yield "seen" if many <= 1 else f"seen for {many}", message.raw
        if not any(message.start <= place < message.stop for message in self.view):
            yield "left out", b""

    def after(self, place: int) -> Iterator[tuple[str, bytes]]:
        """Forwarded messages after the last one of the conversation."""
        yield from (("seen", message.raw) for message in self.view if message.start >= place)


@dataclass(frozen=True, slots=True)
class TranscriptPrinter:
    """Prints a conversation on a terminal."""

    redaction: Redaction
    full: bool = False

    def lines(self, found: Transcript, path: list[MessageLine], beside: ForwardedView | None) -> Iterator[str]:
        for head in found.head_of(path[-1]):
            yield self._line("", *role_and_text(head.message))
        for place, said in enumerate(path):
            yield self._line(f"{place + 1}", *role_and_text(said.message))
            if beside is None:
                yield from map(self._answer, found.answers_to(said.at))
            else:
                yield from self._lines_of_view(beside.instead_of(place, said))
        if beside is not None:
            yield from self._lines_of_view(beside.after(len(path)))
            yield from _sum(path, beside)

    def _lines_of_view(self, instead: Iterable[tuple[str, bytes]]) -> Iterator[str]:
        for word, raw in instead:
            yield self._line("", f"> {word}", role_and_text(raw)[1])

    def _answer(self, answer: AnswerLine) -> str:
        usage = answer.usage
        about = [answer.model, answer.finish, "cut off" if answer.cut else ""]
        about += [f"{usage[name]} {name}" for name in ("prompt_tokens", "completion_tokens") if name in usage]
        return self._line("", "< answer", f"[{', '.join(filter(None, about))}] {role_and_text(answer.message)[1]}")

    def _line(self, number: str, who: str, text: str) -> str:
        clean, _ = self.redaction.of_text(text)
        return f"{number:>5} {who:10} {self._fit_line(clean)}".rstrip()

    def _fit_line(self, text: str) -> str:
        if self.full:
            return text.replace("\n", "\n" + " " * _MARGIN_CHARACTERS)
        line = " ".join(text[: 2 * _WIDTH_CHARACTERS].split())
        return line if len(text) <= _WIDTH_CHARACTERS else f"{line[:_WIDTH_CHARACTERS]} … ({len(text):,} characters)"


def _sum(path: list[MessageLine], beside: ForwardedView) -> Iterator[str]:
    block, sent = beside.block, sum(len(said.message) for said in path)
    seen = sum(len(message.raw) for message in beside.view)
    yield ""
    yield f"sent: {len(path)} messages, {sent:,} bytes; seen: {len(beside.view)} messages, {seen:,} bytes"
    yield f"block: covers {block.covers} messages, policy {block.policy}, because of {block.reason}"
