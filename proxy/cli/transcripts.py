"""`transcripts`: the saved originals, as a person looks for them. Nothing here changes anything but `prune --yes`."""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from proxy.admin.message_status import speaker
from proxy.assembly import redacting
from proxy.cli import options
from proxy.cli.conversation import Beside, Page
from proxy.cli.shelf import NotThere, Shelf, opened
from proxy.cli.table import size, table
from proxy.store.promises import MEBIBYTE
from proxy.store.transcripts.lines import Said
from proxy.store.transcripts.proof import Report, proven
from proxy.store.transcripts.reading import Glance, Transcript, glance, transcript
from proxy.store.transcripts.retention import Retention, beyond, remove

SHORT = 16


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
    search.add_argument("--case", action="store_true", help="heed capitals")
    export = _add(acts, "export", export_one, "one conversation as the messages that a client sends")
    export.add_argument("--request", action="store_true", help="as the body of a request")
    export.add_argument("--model", metavar="M", help="the request's model (default: the one that answered last)")
    export.add_argument("--output", metavar="FILE", type=Path, help="write there instead")
    for one in (show, export):
        one.add_argument("id", metavar="ID", help="a conversation, or how it begins; TENANT/ID where several have it")
        one.add_argument("--leaf", metavar="L", default="", help="up to this message (default: the newest)")
    verify = _add(acts, "verify", verify_all, "does every message follow the one before? exit 1 if not")
    verify.add_argument("id", metavar="ID", nargs="?", default="", help="only this conversation")
    prune = _add(acts, "prune", prune_all, "remove the oldest; a dry run unless --yes")
    prune.add_argument("--days", type=float, help="those that were silent longer (default: as configured)")
    prune.add_argument("--mib", type=int, help="the oldest beyond so many MiB (default: as configured)")
    prune.add_argument("--yes", action="store_true", help="really remove them")


def list_all(shelf: Shelf, args: argparse.Namespace) -> int:
    found = sorted(shelf.each(glance), key=lambda one: one.last)
    blocks = [len(shelf.peek(one.tenant, tuple(one.links))[1]) for one in found]
    if args.json:
        for one, count in zip(found, blocks, strict=True):
            print(json.dumps(_told(one, count)))  # noqa: T201
        return 0
    rows = [
        (one.stored.name[:SHORT], one.tenant, one.first[:SHORT], one.last[:SHORT], len(one.links), one.answers, count,
         size(one.stored.bytes))
        for one, count in zip(found, blocks, strict=True)
    ]  # fmt: skip
    head = ("CONVERSATION", "TENANT", "FIRST", "LAST", "MESSAGES", "ANSWERS", "BLOCKS", "SIZE")
    print(table(head, rows) if rows else f"nothing is kept in {shelf.where}")  # noqa: T201
    return 0


def show_one(shelf: Shelf, args: argparse.Namespace) -> int:
    found = shelf.one(args.id)
    leaf = _leaf(found, args.leaf)
    path = found.path(leaf)
    beside = _beside(shelf, found, path) if args.compacted else None
    for line in Page(redacting(shelf.config), args.full).lines(found, path, beside):
        print(line)  # noqa: T201
    others = [other[:SHORT] for other in found.leaves() if other != leaf]
    if others and not args.leaf:
        print(f"\nforks: --leaf {' | '.join(others)}", file=sys.stderr)  # noqa: T201
    return 0


def search_all(shelf: Shelf, args: argparse.Namespace) -> int:
    try:
        pattern = re.compile(args.text if args.regex else re.escape(args.text), 0 if args.case else re.IGNORECASE)
    except re.error as fault:
        raise NotThere(f"not a regular expression: {fault}") from None
    hits = 0
    for one in shelf.each(transcript):
        name = one.stored.name[:SHORT]
        for at, role, seen, text in _texts(one):
            if found := pattern.search(text):
                hits += 1
                print(f"{name}  {at[:SHORT]:16}  {seen[:SHORT]}  {role:10} {_around(found)}")  # noqa: T201
    return 0 if hits else 1


def export_one(shelf: Shelf, args: argparse.Namespace) -> int:
    found = shelf.one(args.id)
    path = found.path(_leaf(found, args.leaf))
    messages = [head.message for head in found.head_of(path[-1])] + [said.message for said in path]
    body = b"[\n" + b",\n".join(messages) + b"\n]"
    if args.request:
        model = args.model or next((one.model for one in reversed(found.answers) if one.model), None)
        if model is None:
            raise NotThere("no answer tells the model: say --model M")
        body = b'{"model":%s,"messages":%s}' % (json.dumps(model).encode(), body)
    if args.output:
        args.output.write_bytes(body + b"\n")
    else:
        sys.stdout.buffer.write(body + b"\n")
    altered = sum(bool(said.altered) for said in path)
    if altered:
        print(f"{altered} messages are not as they were sent: secrets were taken out", file=sys.stderr)  # noqa: T201
    return 0


def verify_all(shelf: Shelf, args: argparse.Namespace) -> int:
    key, _ = shelf.peek()
    found = [shelf.one(args.id)] if args.id else shelf.each(transcript)
    reports = [proven(one, key) for one in found]
    head = ("CONVERSATION", "MESSAGES", "DERIVED", "ALTERED", "TWICE", "TORN", "FAULTS")
    rows = [_row(report) for report in reports]
    print(table(head, rows) if rows else f"nothing is kept in {shelf.where}")  # noqa: T201
    for remark in _remarks(reports, key):
        print(remark)  # noqa: T201
    faults = [f"{one.transcript.stored.name[:SHORT]}: {fault}" for one in reports for fault in one.faults]
    for fault in faults:
        print(fault, file=sys.stderr)  # noqa: T201
    return 1 if faults else 0


def prune_all(shelf: Shelf, args: argparse.Namespace) -> int:
    told, asked = shelf.config.transcripts, (args.days, args.mib)
    days = told.days if asked == (None, None) else args.days or 0
    mib = told.mib if asked == (None, None) else args.mib or 0
    gone = beyond(shelf.stored(), Retention(days, mib * MEBIBYTE), time.time())
    for one in gone:
        written = time.strftime("%Y-%m-%d %H:%M", time.gmtime(one.written))
        print(f"{one.name[:SHORT]}  {one.tenant}  {written}  {size(one.bytes)}")  # noqa: T201
    if not args.yes:
        print(f"{len(gone)} conversations, {size(sum(one.bytes for one in gone))}: --yes removes them")  # noqa: T201
        return 0
    print(f"{size(sum(map(remove, gone)))} are free again")  # noqa: T201
    return 0


# --- how it is told --------------------------------------------------------------------------------------------------


def _add(
    acts: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, act: "Act", what: str
) -> argparse.ArgumentParser:
    parser = acts.add_parser(name, help=what, description=what)
    options.add_config(parser)
    parser.add_argument("--state", metavar="DIR", help="directory of the proxy's state (default ./state)")
    parser.set_defaults(run=lambda args: _run(act, args))
    return parser


def _run(act: "Act", args: argparse.Namespace) -> int:
    given: dict[options.Place, object] = {("state", "dir"): args.state} if args.state else {}
    try:
        with closing(opened(options.loaded(args, given).config)) as shelf:
            return act(shelf, args)
    except BrokenPipeError:  # whoever reads along has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (NotThere, OSError) as fault:
        print(fault, file=sys.stderr)  # noqa: T201
        return 1


def _leaf(found: Transcript, wanted: str) -> str:
    leaves = [at for at in found.messages if at.startswith(wanted)] if wanted else found.leaves()[:1]
    if len(leaves) != 1:
        raise NotThere(f"{len(leaves)} messages of {found.stored.name[:SHORT]} begin with {wanted!r}")
    return leaves[0]


def _beside(shelf: Shelf, found: Transcript, path: list[Said]) -> Beside:
    links = tuple(said.at for said in path)
    _, blocks = shelf.peek(found.tenant, links)
    newest = next((link for link in reversed(links) if link in blocks), None)
    beside = Beside.of(path, blocks[newest]) if newest is not None else None
    if beside is None:
        raise NotThere(f"no block stands for {found.stored.name[:SHORT]}: the model saw what was sent")
    return beside


def _texts(found: Transcript) -> Iterator[tuple[str, str, str, str]]:
    """All that was said: at which link, by whom, when, and what."""
    for head in found.heads.values():
        role, words = speaker(head.message)
        yield "-", role, head.seen, words
    for said in found.messages.values():
        role, words = speaker(said.message)
        yield said.at, role, said.seen, words
    for answer in found.answers:
        yield answer.to, "answer", answer.seen, speaker(answer.message)[1]


def _around(found: re.Match[str]) -> str:
    start, stop = max(0, found.start() - 40), found.end() + 60
    return " ".join(found.string[start:stop].split())


def _told(one: Glance, blocks: int) -> dict[str, object]:
    return {
        "conversation": one.stored.name,
        "tenant": one.tenant,
        "first": one.first,
        "last": one.last,
        "messages": len(one.links),
        "answers": one.answers,
        "blocks": blocks,
        "bytes": one.stored.bytes,
    }


def _row(report: Report) -> tuple[object, ...]:
    of = report.transcript
    counts = len(of.messages), report.derived, report.altered, of.twice, of.torn, len(report.faults)
    return (of.stored.name[:SHORT], *counts)


def _remarks(reports: list[Report], key: bytes | None) -> Iterator[str]:
    """What is no fault and still has to be known."""
    if reports and key is None:
        yield "There is no key in the state: links are not derived again, only their order is checked."
    if altered := sum(report.altered for report in reports):
        yield f"{altered} lines were altered before they were written (secrets): their links stand for the originals."
    if others := sum(report.other_key for report in reports):
        yield f"{others} conversations have the key of an earlier store: only their order is checked."
    if torn := sum(report.transcript.torn for report in reports):
        yield f"{torn} lines are torn: a process was killed over them. The next that writes there cuts them off."
    if orphans := sum(report.orphans for report in reports):
        yield f"{orphans} answers are to messages that are not kept."


Act = Callable[[Shelf, argparse.Namespace], int]
