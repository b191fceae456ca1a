"""`transcripts`: list, show, search, export, verify and prune saved conversations; only `prune --yes` changes them.

What was forwarded in place of a message follows from the history and its block, computed by the same functions as when
it was forwarded.
"""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from proxy import assembly
from proxy.admin.history import show_with_block
from proxy.assembly import build_redaction
from proxy.cli import options
from proxy.cli.options import format_bytes, format_table
from proxy.config import Config
from proxy.core.messages import Message, block_key
from proxy.core.overlay import Block
from proxy.core.rules import Rules
from proxy.store.contract import MEBIBYTE, StoreUnavailable
from proxy.store.transcripts.archive import (
    Archive,
    Retention,
    Transcript,
    Verification,
    read_transcript,
    role_and_text,
    verify,
)
from proxy.store.transcripts.files import AnswerLine, MessageLine
from proxy.wire import chat
from proxy.wire.redaction import Redaction


class NotFoundError(Exception):
    """No such conversation; the text says which there are."""


@dataclass(frozen=True, slots=True)
class TranscriptSource:
    config: Config
    archive: Archive

    def find_one(self, asked: str) -> Transcript:
        """The conversation of this id, or the only one that begins like it; `TENANT/ID` picks a tenant."""
        tenant, _, name = asked.rpartition("/")
        found = list(self.archive.find(name, tenant))
        if len({saved.name for saved in found}) > 1 or not found:
            what = f"{len(found)} conversations begin with" if found else "there is no conversation"
            raise NotFoundError(f"{what} {name!r} in {self.archive.location}; `transcripts list` shows all")
        if len(found) > 1:
            tenants = ", ".join(saved.tenant for saved in found)
            raise NotFoundError(f"several tenants have a conversation {name!r}: {tenants}; write TENANT/{name}")
        return read_transcript(found[0])

    def read_state(self, tenant: str = "", links: tuple[str, ...] = ()) -> tuple[bytes | None, dict[str, bytes]]:
        """The key of the chain, and the blocks stored for these links."""
        keys = {block_key(tenant, bytes.fromhex(link)): link for link in links}
        try:
            key, found = assembly.read_blocks(self.config, list(keys))
        except StoreUnavailable as fault:
            print(f"blocks and keys cannot be read: {fault}", file=sys.stderr)  # noqa: T201
            return None, {}
        return key, {keys[promise]: block for promise, block in found.items()}


def open_source(config: Config) -> TranscriptSource:
    return TranscriptSource(config, assembly.open_archive(config))


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


SHORT_CHARACTERS = 16

Act = Callable[[TranscriptSource, argparse.Namespace], int]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("transcripts", help="the saved originals: list, show, search, export, verify, prune")
    acts = parser.add_subparsers(metavar="ACT", required=True)
    _add(acts, "list", list_all, "every conversation, the newest last").add_argument("--json", action="store_true")
    show = _add(acts, "show", show_one, "one conversation, message by message")
    show.add_argument("--compacted", action="store_true", help="what the model saw beside what was sent")
    show.add_argument("--full", action="store_true", help="every message whole")
    search = _add(acts, "search", search_all, "find a text in all of them; exit 1 if it is in none")
    search.add_argument("text", metavar="TEXT")
    search.add_argument("--regex", action="store_true", help="TEXT is a regular expression")
    search.add_argument("--case", action="store_true", help="distinguish capital and small letters")
    export = _add(acts, "export", export_one, "one conversation as the messages that a client sends")
    export.add_argument("--request", action="store_true", help="as the body of a request")
    export.add_argument("--model", metavar="M", help="the request's model (default: the one that answered last)")
    export.add_argument("--output", metavar="FILE", type=Path, help="write there instead")
    for one in (show, export):
        one.add_argument("id", metavar="ID", help="a conversation, or how it begins; TENANT/ID where several have it")
        one.add_argument("--leaf", metavar="L", default="", help="up to this message (default: the newest)")
    check = _add(acts, "verify", verify_all, "does every message follow the one before? exit 1 if not")
    check.add_argument("id", metavar="ID", nargs="?", default="", help="only this conversation")
    prune = _add(acts, "prune", prune_all, "remove the oldest; a dry run unless --yes")
    prune.add_argument("--days", type=float, help="those that were silent longer (default: as configured)")
    prune.add_argument("--mib", type=int, help="the oldest beyond so many MiB (default: as configured)")
    prune.add_argument("--yes", action="store_true", help="really remove them")


def _add(
    acts: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, act: Act, what: str
) -> argparse.ArgumentParser:
    parser = acts.add_parser(name, help=what, description=what)
    options.add_config(parser)
    parser.add_argument("--state", metavar="DIR", help="directory of the proxy's state (default ./state)")
    parser.set_defaults(run=lambda args: _run(act, args))
    return parser


def _run(act: Act, args: argparse.Namespace) -> int:
    given: dict[options.Place, object] = {("state", "dir"): args.state} if args.state else {}
    try:
        return act(open_source(options.load_configuration(args, given).config), args)
    except BrokenPipeError:  # the reader of the pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (NotFoundError, OSError) as fault:
        print(fault, file=sys.stderr)  # noqa: T201
        return 1


def list_all(source: TranscriptSource, args: argparse.Namespace) -> int:
    found = sorted(source.archive.read_each(read_transcript), key=lambda one: one.last_seen)
    blocks = [len(source.read_state(one.tenant, tuple(one.messages))[1]) for one in found]
    if args.json:
        for one, count in zip(found, blocks, strict=True):
            print(json.dumps(_as_dict(one, count)))  # noqa: T201
        return 0
    head = ("CONVERSATION", "TENANT", "FIRST", "LAST", "MESSAGES", "ANSWERS", "BLOCKS", "SIZE")
    rows = [
        (one.saved.name[:SHORT_CHARACTERS], one.tenant, one.first_seen[:SHORT_CHARACTERS], one.last_seen[:SHORT_CHARACTERS],
         len(one.messages), len(one.answers), count, format_bytes(one.saved.bytes))
        for one, count in zip(found, blocks, strict=True)
    ]  # fmt: skip
    print(format_table(head, rows) if rows else f"nothing is kept in {source.archive.location}")  # noqa: T201
    return 0


def _as_dict(one: Transcript, blocks: int) -> dict[str, object]:
    return {
        "conversation": one.saved.name,
        "tenant": one.tenant,
        "first": one.first_seen,
        "last": one.last_seen,
        "messages": len(one.messages),
        "answers": len(one.answers),
        "blocks": blocks,
        "bytes": one.saved.bytes,
    }


def show_one(source: TranscriptSource, args: argparse.Namespace) -> int:
    found = source.find_one(args.id)
    leaf = _pick_leaf(found, args.leaf)
    path = found.path(leaf)
    beside = _find_beside(source, found, path) if args.compacted else None
    for line in TranscriptPrinter(build_redaction(source.config), args.full).lines(found, path, beside):
        print(line)  # noqa: T201
    others = [other[:SHORT_CHARACTERS] for other in found.leaves() if other != leaf]
    if others and not args.leaf:
        print(f"\nforks: --leaf {' | '.join(others)}", file=sys.stderr)  # noqa: T201
    return 0


def search_all(source: TranscriptSource, args: argparse.Namespace) -> int:
    try:
        pattern = re.compile(args.text if args.regex else re.escape(args.text), 0 if args.case else re.IGNORECASE)
    except re.error as fault:
        raise NotFoundError(f"not a regular expression: {fault}") from None
    hits = 0
    for one in source.archive.read_each(read_transcript):
        name = one.saved.name[:SHORT_CHARACTERS]
        for at, role, seen, found in one.search(pattern):
            hits += 1
            context = " ".join(found.string[max(0, found.start() - 40) : found.end() + 60].split())
            place = f"{at[:SHORT_CHARACTERS] or '-':16}  {seen[:SHORT_CHARACTERS]}"
            print(f"{name}  {place}  {role:10} {context}")  # noqa: T201
    return 0 if hits else 1


def export_one(source: TranscriptSource, args: argparse.Namespace) -> int:
    found = source.find_one(args.id)
    path = found.path(_pick_leaf(found, args.leaf))
    messages = [head.message for head in found.head_of(path[-1])] + [line.message for line in path]
    body = b"[\n" + b",\n".join(messages) + b"\n]"
    if args.request:
        model = args.model or next((one.model for one in reversed(found.answers) if one.model), None)
        if model is None:
            raise NotFoundError("no answer names the model: add --model M")
        body = b'{"model":%s,"messages":%s}' % (json.dumps(model).encode(), body)
    if args.output:
        args.output.write_bytes(body + b"\n")
    else:
        sys.stdout.buffer.write(body + b"\n")
    altered = sum(bool(line.altered) for line in path)
    if altered:
        print(f"{altered} messages are not as they were sent: secrets were taken out", file=sys.stderr)  # noqa: T201
    return 0


def verify_all(source: TranscriptSource, args: argparse.Namespace) -> int:
    key, _ = source.read_state()
    found = [source.find_one(args.id)] if args.id else source.archive.read_each(read_transcript)
    results = [verify(one, key) for one in found]
    head = ("CONVERSATION", "MESSAGES", "DERIVED", "ALTERED", "TWICE", "TORN", "FAULTS")
    location = source.archive.location
    print(format_table(head, map(_verification_row, results)) if results else f"nothing is kept in {location}")  # noqa: T201
    for remark in _remarks(results, key):
        print(remark)  # noqa: T201
    faults = [f"{one.transcript.saved.name[:SHORT_CHARACTERS]}: {fault}" for one in results for fault in one.faults]
    for fault in faults:
        print(fault, file=sys.stderr)  # noqa: T201
    return 1 if faults else 0


def _verification_row(result: Verification) -> tuple[object, ...]:
    read = result.transcript
    counts = len(read.messages), result.derived, result.altered, read.duplicates, read.torn, len(result.faults)
    return (read.saved.name[:SHORT_CHARACTERS], *counts)


def _remarks(results: list[Verification], key: bytes | None) -> Iterator[str]:
    """Remarks that are not faults."""
    if results and key is None:
        yield "There is no key in the state: links are not derived again, only their order is checked."
    if altered := sum(result.altered for result in results):
        yield f"{altered} lines were altered before they were written (secrets): their links stand for the originals."
    if others := sum(result.other_key for result in results):
        yield f"{others} conversations have the key of an earlier store: only their order is checked."
    if torn := sum(result.transcript.torn for result in results):
        yield f"{torn} lines are torn: a process was killed over them. The next write to that file cuts them off."


def prune_all(source: TranscriptSource, args: argparse.Namespace) -> int:
    settings, is_given = source.config.transcripts, (args.days, args.mib) != (None, None)
    days = args.days or 0 if is_given else settings.days
    mib = args.mib or 0 if is_given else settings.mib
    expired = source.archive.find_expired(Retention(days, mib * MEBIBYTE), time.time())
    for saved in expired:
        written = time.strftime("%Y-%m-%d %H:%M", time.gmtime(saved.written))
        print(f"{saved.name[:SHORT_CHARACTERS]}  {saved.tenant}  {written}  {format_bytes(saved.bytes)}")  # noqa: T201
    if not args.yes:
        total = format_bytes(sum(saved.bytes for saved in expired))
        print(f"{len(expired)} conversations, {total}: --yes removes them")  # noqa: T201
        return 0
    print(f"Freed {format_bytes(sum(saved.remove() for saved in expired))}.")  # noqa: T201
    return 0


def _pick_leaf(found: Transcript, wanted: str) -> str:
    leaves = [at for at in found.messages if at.startswith(wanted)] if wanted else found.leaves()[:1]
    if len(leaves) != 1:
        raise NotFoundError(f"{len(leaves)} messages of {found.saved.name[:SHORT_CHARACTERS]} begin with {wanted!r}")
    return leaves[0]


def _find_beside(source: TranscriptSource, found: Transcript, path: list[MessageLine]) -> ForwardedView:
    links = tuple(line.at for line in path)
    _, blocks = source.read_state(found.tenant, links)
    newest = next((link for link in reversed(links) if link in blocks), None)
    beside = ForwardedView.of(path, blocks[newest]) if newest is not None else None
    if beside is None:
        raise NotFoundError(f"no block stands for {found.saved.name[:SHORT_CHARACTERS]}: the model saw what was sent")
    return beside
