"""`transcripts`: list, show, search, export, prune and delete saved conversations.

`show --compacted` applies the stored block to the saved history, with the functions that serve requests.

`delete` orders that a person's or a team's conversations are deleted, everywhere. The order goes into the registry,
like a key. Every machine whose proxy runs obeys it within seconds, any other at its next start; if no proxy uses this
state folder, the command obeys it here at once.
"""

import argparse
import asyncio
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from msgspec import Struct

from proxy import assembly
from proxy.admin.conversations import ShownView, build_view, parse_path, rebuild_forwarded
from proxy.assembly import build_redaction
from proxy.cli import options
from proxy.cli.operated import find_state_folder, format_time, list_running, name_running, open_operated
from proxy.cli.options import CommandFailed, add_command, format_bytes, format_count, format_table, print_note
from proxy.config.settings import Config
from proxy.foundation.errors import NotFound
from proxy.history.identity import make_block_key
from proxy.history.messages import Message
from proxy.recall import find_pattern, find_text, render_match
from proxy.shorten.block import Block
from proxy.store.activity_log import ActivityLog
from proxy.store.contract import MEBIBYTE, StoreUnavailable
from proxy.store.deletions import TEAM_PREFIX, Deletion, list_user_names
from proxy.store.transcripts.archive import (
    SHORT_NAME_CHARACTERS,
    Archive,
    Retention,
    Transcript,
    read_transcript,
    role_and_text,
)
from proxy.store.transcripts.files import MessageLine


class TranscriptSource(Struct, frozen=True):
    config: Config
    archive: Archive

    def find_one(self, text: str) -> Transcript:
        """Find the conversation with this id, or the only one whose id begins so; `TENANT/ID` picks a tenant."""
        tenant, _, name = text.rpartition("/")
        matches = list(self.archive.find(name, tenant))
        if len(matches) == 1:
            return read_transcript(matches[0])
        if len({conversation.name for conversation in matches}) == 1:
            tenants = ", ".join(conversation.tenant for conversation in matches)
            raise CommandFailed(f"several tenants have a conversation {name!r}: {tenants}; write TENANT/{name}")
        problem = f"{len(matches)} conversations begin with" if matches else "there is no conversation"
        raise CommandFailed(f"{problem} {name!r} in {self.archive.location}; `transcripts list` shows all")

    def read_blocks(self, tenant: str, links: Iterable[str]) -> list[bytes]:
        """Return the blocks that are stored for these links, in their order."""
        keys = [make_block_key(tenant, bytes.fromhex(link)) for link in links]
        try:
            blocks = assembly.read_blocks(self.config, keys)
        except StoreUnavailable as fault:
            print(f"blocks cannot be read: {fault}", file=sys.stderr)  # noqa: T201
            return []
        return [blocks[key] for key in keys if key in blocks]


Line = tuple[int | str, str, str]
"""A message to print: its number, who speaks, and the text."""


def _list_lines(transcript: Transcript, path: list[MessageLine], view: ShownView | None) -> Iterator[Line]:
    for head in transcript.head_of(path[-1]):
        yield "", *role_and_text(head.message)
    for index, line in enumerate(path):
        yield index + 1, *role_and_text(line.message)
        if view is not None:
            yield from _list_forwarded(view.messages, index, line.message)
            continue
        for answer in transcript.answers_to(line.link):
            counts = ("prompt_tokens", "completion_tokens")
            tokens = [f"{answer.usage[name]} {name}" for name in counts if name in answer.usage]
            notes = filter(None, [answer.model, answer.finish, "cut off" if answer.cut else "", *tokens])
            yield "", "< answer", f"[{', '.join(notes)}] {role_and_text(answer.message)[1]}"
    if view is not None:
        for message in view.messages:
            if message.start >= len(path):
                yield "", "> seen", role_and_text(message.raw)[1]


def _list_forwarded(forwarded_messages: Sequence[Message], index: int, raw: bytes) -> Iterator[Line]:
    is_forwarded = False
    for message in forwarded_messages:
        is_forwarded = is_forwarded or message.start <= index < message.stop
        if message.start == index and message.raw != raw:
            label = f"> seen for {message.stop - index}" if message.stop - index > 1 else "> seen"
            yield "", label, role_and_text(message.raw)[1]
    if not is_forwarded:
        yield "", "> left out", ""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(commands, "transcripts", "the saved originals: list, show, search, export, prune, delete")
    acts = parser.add_subparsers(metavar="ACT", required=True)
    listing = _add(acts, "list", list_all, "every conversation, the newest last", "transcripts list --json")
    show = _add(acts, "show", show_one, "one conversation, message by message", "transcripts show 0ff46b35 --compacted")
    show.add_argument("--compacted", action="store_true", help="also the messages that the model saw instead")
    show.add_argument("--full", action="store_true", help="every message whole")
    summary = "find a text in all of them; exit 1 if it is in none"
    search = _add(acts, "search", search_all, summary, 'transcripts search "connection refused"')
    search.add_argument("text", metavar="TEXT")
    search.add_argument("--regex", action="store_true", help="TEXT is a regular expression; case is ignored")
    summary = "one conversation as the messages that a client sends, or one request as it was forwarded"
    example = "transcripts export --forwarded cp-3f2a9c0d1e5b7a68"
    export = _add(acts, "export", export_one, summary, "transcripts export 0ff46b35 --request > request.json", example)
    export.add_argument("--request", action="store_true", help="as the body of a request")
    help_text = (
        "the messages of this request as sent and as forwarded, rebuilt; REQUEST is its x-compaction-request-id. Equal "
        "as JSON to what the upstream got, and not byte for byte; `differences` says what else is missing"
    )
    export.add_argument("--forwarded", metavar="REQUEST", default="", help=help_text)
    export.add_argument("--model", metavar="M", help="the request's model (default: the one that answered last)")
    help_text = "a conversation, or how it begins; TENANT/ID if several have it"
    show.add_argument("id", metavar="ID", help=help_text)
    export.add_argument("id", metavar="ID", nargs="?", default="", help=help_text)
    for act in (show, export):
        act.add_argument("--leaf", metavar="L", default="", help="up to this message (default: the newest)")
    summary = "remove the oldest; a dry run unless --yes"
    prune = _add(acts, "prune", prune_all, summary, "transcripts prune --days 7", "transcripts prune --days 7 --yes")
    bounds = (
        ("--days", options.parse_number, "conversations idle for more than N days"),
        ("--mib", options.parse_whole_number, "the oldest, beyond N MiB in all"),
    )
    for name, parse, meaning in bounds:
        help_text = f"{meaning} (0: no limit; without --days and --mib, both are as configured)"
        prune.add_argument(name, type=parse, metavar="N", help=help_text)
    prune.add_argument("--yes", action="store_true", help="really remove them")
    _add_delete(acts)
    listing.add_argument("--user", default="", metavar="U", help="only those of this user")
    listing.add_argument("--team", default="", metavar="T", help="only those of this team")
    for act in (listing, search, prune):
        options.add_json(act)


def _add(
    acts: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    act: Callable[[TranscriptSource, argparse.Namespace], int],
    summary: str,
    *examples: str,
) -> argparse.ArgumentParser:
    def run(args: argparse.Namespace) -> int:
        config = options.read_config(args)
        _describe_source(config)
        try:
            return act(TranscriptSource(config, assembly.open_archive(config)), args)
        except BrokenPipeError:
            raise
        except OSError as fault:
            return options.print_error(options.describe_fault(fault))

    parser = add_command(acts, name, summary, *examples)
    options.add_config_and_state(parser)
    parser.set_defaults(run=run)
    return parser


def _describe_source(config: Config) -> None:
    """Report on standard error whether a proxy writes here. Raise CommandFailed if there is no such folder."""
    if config.transcripts.is_remote:
        return
    folder = Path(config.state.dir).absolute()
    if not config.originals.is_dir():
        find_state_folder(config.state.dir)
    if running := list_running(folder):
        print_note(f"{config.originals.absolute()} is in use by {name_running(running)}")
    else:
        print_note(f"no proxy uses {folder} now")


def list_all(source: TranscriptSource, args: argparse.Namespace) -> int:
    rows = []
    has_others = False
    wanted_user = build_redaction(source.config).of_name(args.user)
    for transcript in source.archive.read_all():
        has_others = True
        is_of_user = not wanted_user or any(wanted_user in list_user_names(user) for user in transcript.users)
        if is_of_user and (not args.team or transcript.tenant == TEAM_PREFIX + args.team):
            rows.append(_describe(source, transcript))
    rows.sort(key=itemgetter("last"))
    if args.json:
        for row in rows:
            options.print_json(row)
    elif rows:
        table = []
        for row in rows:
            for name in ("conversation", "first", "last"):
                row[name] = row[name][:SHORT_NAME_CHARACTERS]
            row["bytes"] = format_bytes(row["bytes"])
            del row["users"]  # they are too long for a table, and `--json` has them
            table.append(tuple(row.values()))
        columns = ("CONVERSATION", "TENANT", "FIRST", "LAST", "MESSAGES", "ANSWERS", "BLOCKS", "FETCHED", "SIZE")
        print(format_table(columns, table))  # noqa: T201
    elif has_others:
        wanted = [f"{name} {getattr(args, name)}" for name in ("user", "team") if getattr(args, name)]
        print(f"no conversation in {source.archive.location} is of {' and '.join(wanted)}")  # noqa: T201
    else:
        print(f"nothing is kept in {source.archive.location}")  # noqa: T201
    return 0


def _describe(source: TranscriptSource, transcript: Transcript) -> dict[str, Any]:
    times = transcript.list_times() or [""]
    blocks = source.read_blocks(transcript.tenant, transcript.messages)
    view = None
    if blocks:
        view = _find_view(source, transcript, transcript.path(transcript.leaves()[0]))
    return {
        "conversation": transcript.saved.name,
        "tenant": transcript.tenant,
        "first": times[0],
        "last": times[-1],
        "messages": len(transcript.messages),
        "answers": len(transcript.answers),
        "blocks": len(blocks),
        "fetched_again": view.refetches if view is not None else 0,
        "bytes": transcript.saved.bytes,
        "users": sorted(transcript.users),
    }


def show_one(source: TranscriptSource, args: argparse.Namespace) -> int:
    transcript = source.find_one(args.id)
    leaf = _pick_leaf(transcript, args.leaf)
    path = transcript.path(leaf)
    view = None
    if args.compacted:
        view = _find_view(source, transcript, path)
        if view is None:
            raise CommandFailed(f"no block is stored for {transcript.saved.short_name}: the model saw what was sent")
    redaction = build_redaction(source.config)
    max_characters = 120
    for number, speaker, text in _list_lines(transcript, path, view):
        clean, _ = redaction.of_text(text)
        if args.full:
            line = clean.replace("\n", "\n" + " " * 17)
        else:
            line = " ".join(clean[: 2 * max_characters].split())
            if len(clean) > max_characters:
                line = f"{line[:max_characters]} … ({len(clean):,} characters)"
        print(f"{number:>5} {speaker:10} {line}".rstrip())  # noqa: T201
    if view is not None and view.block is not None:
        sent_bytes = sum(len(line.message) for line in path)
        seen_bytes = sum(len(message.raw) for message in view.messages)
        seen = f"{len(view.messages)} messages, {seen_bytes:,} bytes"
        print(f"\nsent: {len(path)} messages, {sent_bytes:,} bytes; seen: {seen}")  # noqa: T201
        block = view.block
        print(f"block: covers {block.covers} messages, policy {block.policy}, because of {block.reason}")  # noqa: T201
    forks = [other_leaf[:SHORT_NAME_CHARACTERS] for other_leaf in transcript.leaves() if other_leaf != leaf]
    if forks and not args.leaf:
        print(f"\nforks: --leaf {' | '.join(forks)}", file=sys.stderr)  # noqa: T201
    return 0


def search_all(source: TranscriptSource, args: argparse.Namespace) -> int:
    find = find_text(args.text)
    if args.regex:
        try:
            find = find_pattern(re.compile(args.text, re.IGNORECASE))
        except re.error as fault:
            raise CommandFailed(f"not a regular expression: {fault}") from None
    hits = 0
    for transcript in source.archive.read_all():
        conversation = transcript.saved
        for link, role, seen_at, match in transcript.search(find):
            hits += 1
            text = render_match(match)
            if args.json:
                values = {
                    "conversation": conversation.name,
                    "tenant": transcript.tenant,
                    "message": link,
                    "seen": seen_at,
                }
                options.print_json({**values, "role": role, "text": text})
                continue
            short_link = link[:SHORT_NAME_CHARACTERS] or "-"
            print(f"{conversation.short_name}  {short_link:16}  {seen_at[:SHORT_NAME_CHARACTERS]}  {role:10} {text}")  # noqa: T201
    return int(hits == 0)


def export_one(source: TranscriptSource, args: argparse.Namespace) -> int:
    if bool(args.id) == bool(args.forwarded):
        raise CommandFailed("name one: a conversation (ID), or a request (--forwarded REQUEST)")
    if args.forwarded:
        return _export_forwarded(source, args.forwarded)
    transcript = source.find_one(args.id)
    path = transcript.path(_pick_leaf(transcript, args.leaf))
    messages = [head.message for head in transcript.head_of(path[-1])]
    altered_count = 0
    for line in path:
        messages.append(line.message)
        altered_count += bool(line.altered)
    body = b"[\n" + b",\n".join(messages) + b"\n]"
    if args.request:
        models = [args.model, *(answer.model for answer in reversed(transcript.answers))]
        model = next(filter(None, models), None)
        if model is None:
            raise CommandFailed("no answer names the model: add --model M")
        body = b'{"model":%s,"messages":%s}' % (json.dumps(model).encode(), body)
    sys.stdout.buffer.write(body + b"\n")
    if altered_count:
        print(f"{format_count(altered_count, 'message')} not as sent: secrets were removed", file=sys.stderr)  # noqa: T201
    return 0


def _export_forwarded(source: TranscriptSource, request_id: str) -> int:
    async def rebuild() -> dict[str, Any]:
        async with assembly.use_store(source.config) as store:
            with closing(ActivityLog(Path(source.config.state.dir))) as activity_log:
                return await rebuild_forwarded(source.config, source.archive, store, activity_log, request_id)

    try:
        options.print_json(asyncio.run(rebuild()))
    except (NotFound, StoreUnavailable) as fault:
        raise CommandFailed(f"{request_id}: {fault}") from None
    return 0


def prune_all(source: TranscriptSource, args: argparse.Namespace) -> int:
    days, mib = args.days or 0, args.mib or 0
    if args.days is None and args.mib is None:
        days, mib = source.config.transcripts.days, source.config.transcripts.mib
    expired_conversations = source.archive.find_expired(Retention(days, mib * MEBIBYTE), time.time())
    entries = []
    total_bytes = freed_bytes = 0
    for conversation in expired_conversations:
        total_bytes += conversation.bytes
        entries.append({"conversation": conversation.name, "tenant": conversation.tenant, "bytes": conversation.bytes})
        if not args.json:
            written_at = format_time(conversation.written_at)
            print(f"{conversation.short_name}  {conversation.tenant}  {written_at}  {format_bytes(conversation.bytes)}")  # noqa: T201
    if args.json:
        options.print_json(entries)
    elif not args.yes:
        count = format_count(len(entries), "conversation")
        print(f"{count}, {format_bytes(total_bytes)}: --yes removes them")  # noqa: T201
    if not args.yes:
        return 0
    for conversation in expired_conversations:
        freed_bytes += conversation.remove()
    if not args.json:
        print(f"Freed {format_bytes(freed_bytes)}.")  # noqa: T201
    return 0


def _pick_leaf(transcript: Transcript, prefix: str) -> str:
    named_links = [link for link in transcript.messages if link.startswith(prefix)]
    leaves = named_links if prefix else transcript.leaves()[:1]
    if len(leaves) != 1:
        raise CommandFailed(f"{len(leaves)} messages of {transcript.saved.short_name} begin with {prefix!r}")
    return leaves[0]


def _find_view(source: TranscriptSource, transcript: Transcript, path: list[MessageLine]) -> ShownView | None:
    """Return the view of the newest block, or None if none is stored."""
    stored_blocks = source.read_blocks(transcript.tenant, [line.link for line in path])
    request, block = parse_path(path), None
    if stored_blocks:
        block = Block.from_bytes(stored_blocks[-1])
    if request is None or block is None:
        return None
    view = build_view(source.config, request, path, block)
    return view if view.block is not None else None


def _add_delete(acts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        acts,
        "delete",
        "delete conversations for good: originals, blocks, summaries and activity, on every replica",
        "transcripts delete --user ann@example.com",
        "transcripts delete --team research --before 2026-11-01 --yes",
    )
    parser.add_argument(
        "--conversation", type=_parse_conversation, metavar="ID", help="only this one; TENANT/ID names it as well"
    )
    parser.add_argument(
        "--user", default="", metavar="U", help="only of this user, as requests name users; or an id in that name"
    )
    parser.add_argument("--team", default="", metavar="T", help="only of this team")
    parser.add_argument(
        "--before", type=_parse_date, default=0.0, metavar="DATE", help="only if the last request is older (UTC)"
    )
    options.add_yes(parser)
    options.add_operated(parser)
    parser.set_defaults(run=_delete)


def _delete(args: argparse.Namespace) -> int:
    if not (args.conversation or args.user or args.team or args.before):
        return options.print_error("name what to delete: --conversation, --user, --team or --before")
    operated = open_operated(args, to_change=False)
    user = operated.find_stored_name(args.user)
    if user != args.user:
        print_note(f"users are stored without secrets and shortened: this one, and any other such, as {user!r}")
    order = Deletion.order(conversation=args.conversation or "", user=user, team=args.team, before=args.before)
    conditions = ", ".join(f"{name} {getattr(args, name)}" for name in order.conditions if name != "before")
    conditions = conditions or "everybody"
    if order.before:
        conditions += f", older than {format_time(order.before)} UTC"
    here = operated.describe_extent(order, conditions)
    if not options.confirm(args, f"delete for good all conversations of {conditions}{here}"):
        return 1
    print(operated.delete(order, args))  # noqa: T201
    print_note(operated.describe())
    return 0


def _parse_conversation(text: str) -> str:
    """Return the id without its tenant, which is not needed: the id is a hash over the tenant, too."""
    name = text.rpartition("/")[2]
    if len(name) < SHORT_NAME_CHARACTERS:
        raise argparse.ArgumentTypeError(
            f"must be at least {SHORT_NAME_CHARACTERS} characters, as `list --json` has it"
        )
    return name


def _parse_date(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
        seconds = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        seconds = 0.0
    if seconds <= 0:
        raise argparse.ArgumentTypeError("must be a date such as 2026-11-01 or 2026-11-01T12:00")
    return seconds
