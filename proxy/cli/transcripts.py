"""`transcripts`: list, show, search, export and prune saved conversations; only `prune --yes` changes them.

What was forwarded in place of a message follows from the history and its block, computed by the same functions as when
it was forwarded.
"""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proxy import assembly
from proxy.admin.conversation_branch import links_of, parse_path
from proxy.admin.views import View, show_with_block
from proxy.assembly import build_redaction
from proxy.cli import options
from proxy.cli.options import add_command, format_bytes, format_count, format_table
from proxy.config import Config
from proxy.history.identity import make_block_key
from proxy.history.messages import Message
from proxy.recall.search import Finder, find_pattern, find_text, render_match
from proxy.shorten.block import Block
from proxy.shorten.rules import Rules
from proxy.store.contract import MEBIBYTE, StoreUnavailable
from proxy.store.transcripts.archive import (
    Archive,
    Retention,
    Transcript,
    read_transcript,
    role_and_text,
)
from proxy.store.transcripts.files import AnswerLine, MessageLine
from proxy.wire.redaction import Redaction

_WIDTH_CHARACTERS = 120
_MARGIN_CHARACTERS = 17
SHORT_CHARACTERS = 16


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

    def read_blocks(self, tenant: str, links: tuple[str, ...]) -> dict[str, bytes]:
        """The blocks stored for these links."""
        keys = {make_block_key(tenant, bytes.fromhex(link)): link for link in links}
        try:
            found = assembly.read_blocks(self.config, list(keys))
        except StoreUnavailable as fault:
            print(f"blocks cannot be read: {fault}", file=sys.stderr)  # noqa: T201
            return {}
        return {keys[key]: block for key, block in found.items()}


@dataclass(frozen=True, slots=True)
class TranscriptPrinter:
    """A conversation as lines for a terminal: its messages, the answers, or what was forwarded in place of each."""

    redaction: Redaction
    full: bool = False

    def lines(self, found: Transcript, path: list[MessageLine], view: View | None) -> Iterator[str]:
        for head in found.head_of(path[-1]):
            yield self._line("", *role_and_text(head.message))
        for index, line in enumerate(path):
            yield self._line(f"{index + 1}", *role_and_text(line.message))
            if view is None:
                yield from map(self._answer, found.answers_to(line.at))
            else:
                yield from self._lines_instead(view.messages, index, line.message)
        if view is not None and view.block is not None:
            for message in view.messages:
                if message.start >= len(path):
                    yield self._line("", "> seen", role_and_text(message.raw)[1])
            sent, seen = sum(len(line.message) for line in path), sum(len(message.raw) for message in view.messages)
            yield ""
            yield f"sent: {len(path)} messages, {sent:,} bytes; seen: {len(view.messages)} messages, {seen:,} bytes"
            block = view.block
            yield f"block: covers {block.covers} messages, policy {block.policy}, because of {block.reason}"

    def _lines_instead(self, forwarded: Sequence[Message], index: int, raw: bytes) -> Iterator[str]:
        """Messages that were forwarded in place of one; none: the message itself."""
        for message in forwarded:
            if message.start == index and message.raw != raw:
                many = message.stop - index
                label = "> seen" if many <= 1 else f"> seen for {many}"
                yield self._line("", label, role_and_text(message.raw)[1])
        if not any(message.start <= index < message.stop for message in forwarded):
            yield self._line("", "> left out", "")

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


_EXAMPLES = {
    "list": ("transcripts list --json",),
    "show": ("transcripts show 0ff46b35 --compacted",),
    "search": ('transcripts search "connection refused"',),
    "export": ("transcripts export 0ff46b35 --request --output request.json",),
    "prune": ("transcripts prune --days 7", "transcripts prune --days 7 --yes"),
}

Act = Callable[[TranscriptSource, argparse.Namespace], int]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(commands, "transcripts", "the saved originals: list, show, search, export, prune")
    acts = parser.add_subparsers(metavar="ACT", required=True)
    options.add_json(_add(acts, "list", list_all, "every conversation, the newest last"))
    show = _add(acts, "show", show_one, "one conversation, message by message")
    show.add_argument("--compacted", action="store_true", help="what the model saw beside what was sent")
    show.add_argument("--full", action="store_true", help="every message whole")
    search = _add(acts, "search", search_all, "find a text in all of them; exit 1 if it is in none")
    search.add_argument("text", metavar="TEXT")
    search.add_argument("--regex", action="store_true", help="TEXT is a regular expression")
    options.add_json(search)
    search.add_argument("--case", action="store_true", help="distinguish capital and small letters")
    export = _add(acts, "export", export_one, "one conversation as the messages that a client sends")
    export.add_argument("--request", action="store_true", help="as the body of a request")
    export.add_argument("--model", metavar="M", help="the request's model (default: the one that answered last)")
    export.add_argument("--output", metavar="FILE", type=Path, help="write to this file instead of standard output")
    for one in (show, export):
        one.add_argument("id", metavar="ID", help="a conversation, or how it begins; TENANT/ID where several have it")
        one.add_argument("--leaf", metavar="L", default="", help="up to this message (default: the newest)")
    prune = _add(acts, "prune", prune_all, "remove the oldest; a dry run unless --yes")
    prune.add_argument(
        "--days",
        type=options.parse_number,
        metavar="N",
        help="conversations idle for more than N days (default: as configured; 0: no limit)",
    )
    prune.add_argument(
        "--mib",
        type=options.parse_whole_number,
        metavar="N",
        help="the oldest, beyond N MiB in all (default: as configured; 0: no limit)",
    )
    options.add_json(prune)
    prune.add_argument("--yes", action="store_true", help="really remove them")


def _add(
    acts: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, act: Act, what: str
) -> argparse.ArgumentParser:
    parser = add_command(acts, name, what, *_EXAMPLES[name])
    options.add_config_and_state(parser)
    parser.set_defaults(run=lambda args: _run(act, args))
    return parser


def _run(act: Act, args: argparse.Namespace) -> int:
    config = options.read_config(args)
    try:
        return act(TranscriptSource(config, assembly.open_archive(config)), args)
    except BrokenPipeError:  # the reader of the pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (NotFoundError, OSError) as fault:
        return options.print_error(options.describe_fault(fault))


def list_all(source: TranscriptSource, args: argparse.Namespace) -> int:
    found = sorted(source.archive.read_each(read_transcript), key=lambda one: one.last_seen)
    blocks = [len(source.read_blocks(one.tenant, tuple(one.messages))) for one in found]
    if args.json:
        for one, count in zip(found, blocks, strict=True):
            print(json.dumps(_as_dict(one, count)))  # noqa: T201
        return 0
    head = ("CONVERSATION", "TENANT", "FIRST", "LAST", "MESSAGES", "ANSWERS", "BLOCKS", "SIZE")
    rows = [
        (one.saved.short_name, one.tenant, one.first_seen[:SHORT_CHARACTERS],
         one.last_seen[:SHORT_CHARACTERS], len(one.messages), len(one.answers), count, format_bytes(one.saved.bytes))
        for one, count in zip(found, blocks, strict=True)
    ]  # fmt: skip
    _print_table(head, rows, source)
    return 0


def _print_table(head: Sequence[str], rows: Sequence[Sequence[object]], source: TranscriptSource) -> None:
    print(format_table(head, rows) if rows else f"nothing is kept in {source.archive.location}")  # noqa: T201


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
    view = _find_view(source, found, path) if args.compacted else None
    for line in TranscriptPrinter(build_redaction(source.config), args.full).lines(found, path, view):
        print(line)  # noqa: T201
    others = [other[:SHORT_CHARACTERS] for other in found.leaves() if other != leaf]
    if others and not args.leaf:
        print(f"\nforks: --leaf {' | '.join(others)}", file=sys.stderr)  # noqa: T201
    return 0


def search_all(source: TranscriptSource, args: argparse.Namespace) -> int:
    find = _make_finder(args)
    hits = 0
    for one in source.archive.read_each(read_transcript):
        name = one.saved.short_name
        for at, role, seen, match in one.search(find):
            hits += 1
            place = f"{at[:SHORT_CHARACTERS] or '-':16}  {seen[:SHORT_CHARACTERS]}"
            if args.json:
                known = {"conversation": one.saved.name, "tenant": one.tenant, "message": at, "seen": seen}
                options.print_json({**known, "role": role, "text": render_match(match)})
                continue
            print(f"{name}  {place}  {role:10} {render_match(match)}")  # noqa: T201
    return 0 if hits else 1


def _make_finder(args: argparse.Namespace) -> Finder:
    if not args.regex:
        return find_text(args.text, distinguish_case=args.case)
    try:
        return find_pattern(re.compile(args.text, 0 if args.case else re.IGNORECASE))
    except re.error as fault:
        raise NotFoundError(f"not a regular expression: {fault}") from None


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
        print(f"{format_count(altered, 'message')} not as sent: secrets were removed", file=sys.stderr)  # noqa: T201
    return 0


def prune_all(source: TranscriptSource, args: argparse.Namespace) -> int:
    settings, is_given = source.config.transcripts, (args.days, args.mib) != (None, None)
    days = args.days or 0 if is_given else settings.days
    mib = args.mib or 0 if is_given else settings.mib
    expired = source.archive.find_expired(Retention(days, mib * MEBIBYTE), time.time())
    if args.json:
        options.print_json(
            [{"conversation": saved.name, "tenant": saved.tenant, "bytes": saved.bytes} for saved in expired]
        )
    for saved in () if args.json else expired:
        written = time.strftime("%Y-%m-%d %H:%M", time.gmtime(saved.written))
        print(f"{saved.short_name}  {saved.tenant}  {written}  {format_bytes(saved.bytes)}")  # noqa: T201
    freed = sum(saved.remove() for saved in expired) if args.yes else 0
    if args.json:
        return 0
    if not args.yes:
        total = format_bytes(sum(saved.bytes for saved in expired))
        print(f"{format_count(len(expired), 'conversation')}, {total}: --yes removes them")  # noqa: T201
        return 0
    print(f"Freed {format_bytes(freed)}.")  # noqa: T201
    return 0


def _pick_leaf(found: Transcript, wanted: str) -> str:
    leaves = [at for at in found.messages if at.startswith(wanted)] if wanted else found.leaves()[:1]
    if len(leaves) != 1:
        raise NotFoundError(f"{len(leaves)} messages of {found.saved.short_name} begin with {wanted!r}")
    return leaves[0]


def _find_view(source: TranscriptSource, found: Transcript, path: list[MessageLine]) -> View:
    """The messages as the newest block that stands for them shortens them."""
    blocks = source.read_blocks(found.tenant, tuple(line.at for line in path))
    newest = next((line.at for line in reversed(path) if line.at in blocks), "")
    request, block = parse_path(path), Block.from_bytes(blocks.get(newest, b""))
    view = show_with_block(request, links_of(path), block, Rules()) if request and block else None
    if view is None or view.block is None:
        raise NotFoundError(f"no block is stored for {found.saved.short_name}: the model saw what was sent")
    return view
