"""Conversations, their requests and messages, also as they were forwarded, and a search in the originals.

The messages of a request come from the saved originals, the block that stood for them from the store. A later block may
cover messages that an earlier request held already, so only those blocks are looked for that could have been there by
then. Queries name their columns as the API does, so that a row is an answer.
"""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Annotated, Literal

from msgspec import Meta, Struct, to_builtins
from msgspec.structs import replace

from proxy import assembly
from proxy.admin.figures import OPEN_SECONDS
from proxy.admin.request_pages import find_request, list_names, query_incidents
from proxy.admin.routes import AdminContext, AdminRequest, Json, Query
from proxy.config.settings import Config
from proxy.foundation.errors import NotFound, Overloaded
from proxy.foundation.lifetime import FILES
from proxy.history.identity import OBSERVED, make_block_key
from proxy.history.messages import NOTE, Message, find_last_assistant
from proxy.history.request import Request
from proxy.recall import find_text
from proxy.shorten.block import Block
from proxy.shorten.fold import is_of_summary
from proxy.shorten.pipeline import estimate_tokens
from proxy.shorten.rules import Facts, Rules
from proxy.shorten.state import ConversationState
from proxy.store.activity_log import ActivityLog
from proxy.store.contract import Store, StoreUnavailable
from proxy.store.transcripts.archive import SHORT_NAME_CHARACTERS, Archive, Transcript, read_transcript, role_and_text
from proxy.store.transcripts.files import MessageLine, file_name, list_files, parse
from proxy.wire.chat_api import CHAT_FORMAT
from proxy.wire.http_head import ApiPath
from proxy.wire.json_body import as_object
from proxy.wire.redaction import Redaction

TURNS_LIMIT = 2_000


class MessageStatus(Struct, frozen=True):
    status: Literal["kept", "pinned", "cleared", "folded", "summarised"]
    step: str = ""
    instead: tuple[Message, ...] = ()
    """The messages that stand in its place: the same for all messages that one note replaces."""


class ShownView(Struct, frozen=True):
    """A history as it was forwarded, and the status of each of the messages that were sent."""

    statuses: tuple[MessageStatus, ...]
    messages: tuple[Message, ...]
    block: Block | None
    refetches: int = 0
    """The number of results with content that had been shortened before."""


def show_without_block(request: Request) -> ShownView:
    return ShownView((MessageStatus("kept"),) * len(request.body), request.body, None)


def show_with_block(request: Request, links: Sequence[bytes], block: Block, rules: Rules) -> ShownView:
    """Return the status of each message under a block. `rules`: those of the block's policy, with its pins."""
    facts = Facts(usable_tokens=block.window)
    state = ConversationState.of(
        request, links, block, replace(rules, new_blocks=False), count=estimate_tokens, facts=facts
    )
    if not state.has_block:
        return show_without_block(request)
    sent_whole = set()
    replacements = defaultdict[int, list[Message]](list)
    for sent_message in state.parted_view:
        if not sent_message.literal:
            sent_whole.add(sent_message.start)
            continue
        for index in range(sent_message.start, max(sent_message.stop, sent_message.start + 1)):
            replacements[index].append(sent_message)
    statuses = []
    for index, message in enumerate(state.body):
        if index in sent_whole:
            may_hold_pin = message.is_user or message.role == "system"
            is_pinned = may_hold_pin and any(pin in message.text for pin in state.pinned_passages)
            statuses.append(MessageStatus("pinned" if is_pinned else "kept"))
            continue
        instead = tuple(replacements[index])
        by_steps = tuple(message for message in instead if message.made != NOTE)
        is_covered = block.summary is not None and index < block.summary.covers
        step = NOTE if instead else ""
        if by_steps:
            statuses.append(MessageStatus("cleared", by_steps[0].made, by_steps))
        elif is_covered or any(map(is_of_summary, instead)):
            statuses.append(MessageStatus("summarised", step, instead))
        else:
            statuses.append(MessageStatus("folded", step, instead))
    return ShownView(tuple(statuses), state.view, block, len(state.refetches))


class ConversationBranch(Struct, frozen=True):
    transcript: Transcript
    lines: list[MessageLine]
    request: Request
    view: ShownView
    is_observed: bool
    """A block was only computed, and the messages forwarded as they came."""
    redaction: Redaction

    def describe(self) -> Json:
        block = self.view.block
        described_block = summary = None
        if block is not None:
            summary = block.summary
            described_block = {
                "covers": block.covers,
                "policy": block.policy,
                "reason": block.reason,
                "observed": self.is_observed,
            }
        return {
            "title": self._redact(find_title(self.lines)),
            "at": self.lines[-1].link,
            "block": described_block,
            "summary": self._redact(summary.text) if summary else "",
            "head": [self._redact(role_and_text(line.message)[1]) for line in self.transcript.head_of(self.lines[-1])],
            "pieces": self._describe_pieces(),
            "why_no_pieces": "",
        }

    def describe_message(self, index: int) -> Json:
        message, status = self.request.body[index], self.view.statuses[index]
        role, text = role_and_text(message.raw)
        told_messages = 1
        sent_texts = []
        for sent_message in status.instead:
            told_messages = max(told_messages, sent_message.stop - sent_message.start)
            sent_texts.append(self._redact(role_and_text(sent_message.raw)[1]))
        return {
            "place": index,
            "role": role,
            "status": status.status,
            "step": status.step,
            "original": self._redact(text),
            "raw": self._redact(message.raw.decode("utf-8", "replace")),
            "instead": sent_texts,
            "tells": told_messages,  # strip.js shows a diff if the note stands for this message only
        }

    def _describe_pieces(self) -> list[Json]:
        tools: dict[str, str] = {}
        pieces = []
        for index, (message, status) in enumerate(zip(self.request.body, self.view.statuses, strict=True)):
            tools |= {call.answered_by: call.name for call in message.calls}
            tool = message.calls[0].name if message.calls else ""
            role, text = role_and_text(message.raw)
            bytes_sent = len(message.raw)
            if status.instead or status.status in ("folded", "summarised"):
                bytes_sent = sum(len(sent.raw) for sent in status.instead if sent.start == index)
            pieces.append(
                {
                    "place": index,
                    "link": self.lines[index].link,  # as in search results
                    "role": role,
                    "tool": tools.get(message.answers) or tool,
                    "bytes": len(message.raw),
                    "bytes_sent": bytes_sent,
                    "status": status.status,
                    "step": status.step,
                    "preview": self._redact(" ".join(text[:400].split())[:200]),
                }
            )
        return pieces

    def _redact(self, text: str) -> str:
        return self.redaction.of_text(text)[0]


def list_turns(activity_log: ActivityLog, conversation: str) -> list[Json]:
    """Return the newest turns of a conversation, the oldest of them first."""
    query = """
        select conversation, tenant, team, at, link, messages, action, reason,
               policy || '@' || policy_version as policy, model, upstream, tokens_before as tokens_raw,
               tokens_after as tokens_forwarded, prompt_tokens as tokens_read, cached_tokens as tokens_cached,
               output_tokens as tokens_written, paid_dollars as paid, plain_dollars - paid_dollars as saved,
               coalesce(tokens_would_be, tokens_after) as tokens_would_be,
               paid_dollars - would_be_dollars as would_save, tokens_unshortened, refetches, user, session, key,
               request_id
        from (select * from turns where conversation = ? order by at desc limit ?) order by at
    """
    return activity_log.query(query, [conversation, TURNS_LIMIT])


async def open_branch(
    config: Config, archive: Archive, store: Store, turn: Json, turns: Sequence[Json]
) -> ConversationBranch:
    """Return the branch up to one of the turns. NotFound: why it cannot be shown."""
    tenant, is_observed = turn["tenant"], turn["action"] == "observed"
    saved_conversation = await FILES.run(next, archive.find(turn["conversation"], tenant), None)
    if saved_conversation is None and config.transcripts.keep == "off":
        raise NotFound("no originals are kept (`transcripts.keep: off`), so there are no messages to show")
    if saved_conversation is None:
        raise NotFound(
            "nothing of it is kept here: originals are kept once something is about to be folded away, may have grown "
            "too old, or stand on another machine; a policy can keep none (`transcripts: false`, `store_text: false`)"
        )
    transcript = await FILES.run(read_transcript, saved_conversation)
    leaf = turn["link"] if turn["link"] in transcript.messages else next(iter(transcript.leaves()), "")
    lines = transcript.path(leaf)
    request = parse_path(lines)
    if request is None or not lines:
        raise NotFound("what is kept of this conversation cannot be read as a history")
    try:
        links = links_of(lines)[: _count_links(request, lines, turn, turns)]
        space = f"{tenant}/{OBSERVED}" if is_observed else tenant
        keys = [make_block_key(space, link) for link in reversed(links)]  # the block that covers most comes first
        stored_value = (await store.find_first(keys))[0] if keys else None
    except StoreUnavailable as fault:
        raise NotFound(f"the blocks cannot be read: {fault}") from None
    block = None if stored_value is None else Block.from_bytes(stored_value.value)
    view = await FILES.run(build_view, config, request, lines, block)
    return ConversationBranch(transcript, lines, request, view, is_observed, assembly.build_redaction(config))


def _count_links(request: Request, lines: list[MessageLine], turn: Json, turns: Sequence[Json]) -> int:
    """Return how many links a block of this turn could have covered."""
    if turn["action"] != "observed" and turn["tokens_forwarded"] >= turn["tokens_raw"]:
        return 0
    maker = turn
    for earlier_turn in turns:
        if earlier_turn["at"] <= turn["at"] and earlier_turn["action"] == "created":
            maker = earlier_turn
    length = len(lines)
    for number, line in enumerate(lines, 1):
        if line.link == maker["link"]:
            length = number
            break
    return (find_last_assistant(request.body[:length]) or 0) + 2


def parse_path(lines: Sequence[MessageLine]) -> Request | None:
    return CHAT_FORMAT.parse(b'{"messages":[' + b",".join(line.message for line in lines) + b"]}")


def links_of(lines: Sequence[MessageLine]) -> list[bytes]:
    """Return the link before the first message, and the one after each."""
    links = [bytes.fromhex(lines[0].after)]
    links += [bytes.fromhex(line.link) for line in lines]
    return links


def build_view(config: Config, request: Request, lines: list[MessageLine], block: Block | None) -> ShownView:
    if block is None:
        return show_without_block(request)
    # The rules as they are now, of the policy that made the block.
    policy = block.policy.partition("@")[0]
    rules = config.policy(policy).rules(policy) if policy in config.all_policies else Rules()
    return show_with_block(request, links_of(lines), block, rules)


def find_title(lines: Iterable[object]) -> str:
    """Return the beginning of the user's first message. Other lines are passed over."""
    chars_max = 140
    for line in lines:
        if isinstance(line, MessageLine):
            role, text = role_and_text(line.message)
            if role == "user":
                title = " ".join(text[: 4 * chars_max].split())
                if len(title) > chars_max:
                    title = title[:chars_max].rpartition(" ")[0] + " …"
                return title
    return ""


async def show_forwarded(context: AdminContext, request: AdminRequest) -> Json:
    request_id = request.names["request"]
    return await rebuild_forwarded(context.config(), context.archive, context.store, context.activity_log, request_id)


async def rebuild_forwarded(
    config: Config, archive: Archive, store: Store, activity_log: ActivityLog, request_id: str
) -> Json:
    """Return the messages of a request as they were sent and, rebuilt, as they were forwarded.

    `differences` lists all in which the forwarded request differed from this. `compacted_by_provider` tells which of
    the forwarded messages the provider left out itself, if that is known. Raise NotFound if nothing can be rebuilt.
    """
    recorded_request = await FILES.run(find_request, activity_log, request_id)
    if recorded_request["turn"] is None:
        raise NotFound(_explain_no_turn(recorded_request))
    turns = await FILES.run(list_turns, activity_log, recorded_request["conversation"])
    for turn in turns:
        if turn["request_id"] == recorded_request["request_id"]:
            branch = await open_branch(config, archive, store, turn, turns)
            return await FILES.run(_describe, branch, turn, recorded_request)
    raise NotFound("its turn is not among the newest of its conversation")


def _explain_no_turn(recorded_request: Json) -> str:
    if recorded_request["outcome"] == "refused":
        return "the proxy refused it and forwarded nothing"
    if recorded_request["compaction"] in ("applied", "created"):
        return "it was forwarded shortened, but is not recorded further: the upstream refused it or broke off"
    if recorded_request["reason"] == "reasoning-removed":
        return "it was forwarded as it came, but for signed reasoning that the upstream had refused"
    return "its history was too short to be looked at, or is not recorded: it was forwarded as it came"


def _describe(branch: ConversationBranch, turn: Json, recorded_request: Json) -> Json:
    def read(raw: bytes) -> object:
        return json.loads(branch.redaction.of_json(raw)[0])

    head = [read(line.message) for line in branch.transcript.head_of(branch.lines[-1])]
    sent_messages = [*head, *(read(line.message) for line in branch.lines)]
    forwarded_messages = sent_messages
    if not branch.is_observed:
        forwarded_messages = [*head, *(read(message.raw) for message in branch.view.messages)]
    return {
        "sent": sent_messages,
        "forwarded": forwarded_messages,
        "differences": _list_differences(branch, turn, recorded_request),
        "compacted_by_provider": {
            "asked_for": turn["reason"] == "provider-compacts",
            "messages": [index for index, message in enumerate(forwarded_messages) if _is_compacted(message)],
            "edits": [edit for answer in branch.transcript.answers_to(turn["link"]) for edit in answer.provider_edits],
        },
    }


def _list_differences(branch: ConversationBranch, turn: Json, recorded_request: Json) -> list[str]:
    differences = ["the model, tools and other members of the body are not kept; only the messages are"]
    altered_count = sum(bool(line.altered) for line in branch.lines)
    if altered_count:
        differences.append(f"secrets were removed from {altered_count} of the messages")
    if branch.lines[-1].link != turn["link"]:
        differences.append("the end of this history is not kept; this is the newest branch that is")
    if turn["reason"] == "reasoning-removed":
        differences.append("reasoning was removed from all messages, because the upstream refused its signature")
    block = branch.view.block
    if block is None and turn["tokens_forwarded"] < turn["tokens_raw"]:
        differences.append("its block is not kept here, so these are the messages as sent")
    if block is not None and not branch.is_observed and block.policy != turn["policy"]:
        differences.append(f"its block is of {block.policy}, and {turn['policy']} was in force")
    if not recorded_request["route"].endswith(ApiPath.CHAT):
        differences.append("these are the chat messages that say the same as those of its API")
    if recorded_request["turn"]["placed"]:
        differences.append(f"added for the provider's cache: {recorded_request['turn']['placed']}")
    return differences


def _is_compacted(message: object) -> bool:
    """Return True for a message with a compaction of the provider: of those before it, the model reads nothing else."""
    content = as_object(message).get("content")
    if not isinstance(content, list):
        return False
    kinds = ("compaction", "compaction_summary", "context_compaction")
    return any(as_object(part).get("type") in kinds for part in content)


class ConversationsQuery(Query, frozen=True):
    team: str = ""
    model: str = ""
    user: str = ""
    session: str = ""
    text: str = ""
    """Text that a name of the conversation contains."""
    before: Annotated[float, Meta(ge=0)] = 0.0
    """Continue a list: the `next` of the page before."""
    limit: Annotated[int, Meta(ge=1, le=200)] = 25
    sort: Annotated[str, Meta(pattern=r"^(last|saved)\Z")] = "last"
    """`saved`: the smallest saving first, in one page. Conversations without a known price come last."""


class ConversationQuery(Query, frozen=True):
    at: str = ""
    """The link of the request to show. Empty: that of the newest."""
    session: str | None = None
    """Show one session only; None: all. Agents that begin alike may share a conversation."""


def list_conversations(context: AdminContext, request: AdminRequest) -> Json:
    query: ConversationsQuery = request.query
    parameters = {**to_builtins(query), "limit": query.limit + 1}
    # Columns without an aggregate are those of the newest request: https://www.sqlite.org/lang_select.html#bareagg
    sql = """
        select conversation, tenant, team, user, session, key, model, upstream, tag,
               policy || '@' || policy_version as policy, last, requests, tokens_raw, tokens_unshortened,
               tokens_forwarded, tokens_would_be, refetches, blocks,
               spent, would_save, paid, plain - paid - spent as saved,
               round(tokens_cached * 1.0 / nullif(tokens_read, 0), 4) as cached_share
        from (select conversation, tenant, team, user, session, key, model, upstream, tag, policy, policy_version,
                     max(at) as last, count(*) as requests,
                     sum(tokens_before) as tokens_raw, sum(tokens_after) as tokens_forwarded,
                     sum(tokens_unshortened) as tokens_unshortened, sum(refetches) as refetches,
                     sum(coalesce(tokens_would_be, tokens_after)) as tokens_would_be,
                     sum(case when cached_tokens is null then 0 else prompt_tokens end) as tokens_read,
                     sum(cached_tokens) as tokens_cached, sum(action = 'created') as blocks, sum(paid_dollars) as paid,
                     sum(plain_dollars) as plain, sum(paid_dollars - would_be_dollars) as would_save,
                     case when conversation != ''
                               and max(at) = max(max(at)) over (partition by conversation, tenant, team)
                     then (select coalesce(sum(dollars), 0) from incidents
                           where incidents.conversation = turns.conversation)
                     else 0 end as spent
              from turns where (:team = '' or team = :team) and (:user = '' or user = :user)
                               and (:session = '' or session = :session)
              group by conversation, tenant, team, session)
        where (:model = '' or model = :model) and (:before = 0 or last < :before)
              and (:text = '' or instr(lower(conversation || ' ' || team || ' ' || model || ' ' || policy || ' ' || tag
                   || ' ' || key || ' ' || upstream || ' ' || user || ' ' || session), lower(:text)))
        order by case :sort when 'saved' then coalesce(saved, 1e300) end, last desc limit :limit
    """
    rows = context.activity_log.query(sql, parameters)
    has_more = len(rows) > query.limit and query.sort == "last"
    rows = rows[: query.limit]
    titles = _find_titles(context.config(), rows)
    for row in rows:
        del row["tenant"]
        row["title"] = titles.get(row["conversation"], "")
        row["open"] = _is_open(row["last"])
    return {
        "conversations": rows,
        "next": rows[-1]["last"] if has_more else None,
        "teams": list_names(context.activity_log, "turns", "team"),
        "models": list_names(context.activity_log, "turns", "model"),
    }


def _is_open(last: float) -> bool:
    return time.time() - last < OPEN_SECONDS


async def show_conversation(context: AdminContext, request: AdminRequest) -> Json:
    all_turns, turns, turn = await _look_up(context, request)
    try:
        branch = await open_branch(context.config(), context.archive, context.store, turn, all_turns)
        messages = await FILES.run(branch.describe)
    except NotFound as missing:
        messages = {"title": "", "block": None, "summary": "", "head": [], "pieces": [], "why_no_pieces": str(missing)}
    sessions: dict[str, Json] = {}
    for turn in reversed(all_turns):
        session = sessions.setdefault(
            turn["session"], {"session": turn["session"], "user": turn["user"], "requests": 0}
        )
        session["requests"] += 1
    last_turn = turns[-1]
    for turn in turns:
        del turn["tenant"]
    incidents = await FILES.run(
        query_incidents,
        context.activity_log,
        "conversation = ? order by at limit ?",
        [last_turn["conversation"], TURNS_LIMIT],
    )
    return {
        **{name: last_turn[name] for name in ("conversation", "team", "model", "upstream", "user", "session", "key")},
        "first": turns[0]["at"],
        "last": last_turn["at"],
        "open": _is_open(last_turn["at"]),
        "at": last_turn["link"],
        "turns": turns,
        "sessions": list(sessions.values()),  # the newest first
        "happened": incidents,
        "spent": sum(incident["dollars"] for incident in incidents),
        **messages,
    }


async def show_message(context: AdminContext, request: AdminRequest) -> Json:
    all_turns, _, turn = await _look_up(context, request)
    branch = await open_branch(context.config(), context.archive, context.store, turn, all_turns)
    place = request.names["place"]
    for index in range(len(branch.lines)):
        if place == str(index):
            return await FILES.run(branch.describe_message, index)
    raise NotFound("there is no message of this index")


async def _look_up(context: AdminContext, request: AdminRequest) -> tuple[list[Json], list[Json], Json]:
    """Return all turns, those of the session asked for, and the one asked for."""
    all_turns = await FILES.run(list_turns, context.activity_log, request.names["conversation"])
    if not all_turns:
        raise NotFound("unknown conversation: GET /conversations lists all")
    session = request.query.session
    turns = [turn for turn in all_turns if session in (None, turn["session"])]
    if not turns:
        raise NotFound("unknown session of this conversation")
    chosen_turn = turns[-1]
    for turn in turns:
        if turn["link"] == request.query.at:
            chosen_turn = turn
    return all_turns, turns, chosen_turn


def _find_titles(config: Config, rows: Sequence[Json]) -> dict[str, str]:
    names_by_tenant: dict[str, set[str]] = {}
    for row in rows:
        names_by_tenant.setdefault(row["tenant"], set()).add(row["conversation"])
    titles = {}
    for tenant, names in names_by_tenant.items():
        for folder in (config.originals / file_name(tenant)).glob("[!.]*"):
            name = folder.name[:SHORT_NAME_CHARACTERS]
            # The beginning of the first file has the first message.
            for path in list_files(folder)[:1] if name in names else ():
                with suppress(FileNotFoundError), path.open("rb") as lines:  # it may be removed by now
                    titles[name] = find_title(map(parse, islice(lines, 40)))
    return titles


_SEARCHING = threading.Lock()
"""The lock of the thread that searches, which may still read after its client has left."""


class SearchQuery(Query, frozen=True):
    text: Annotated[str, Meta(max_length=500)] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


async def search(context: AdminContext, request: AdminRequest) -> Json:
    """Search originals, one search at a time. It ends after some hits or seconds, or if the client leaves."""
    client_left = threading.Event()
    try:
        return await FILES.run(_search, context, request, client_left)
    finally:
        client_left.set()


def _search(context: AdminContext, request: AdminRequest, client_left: threading.Event) -> Json:
    query: SearchQuery = request.query
    hits: list[Json] = []
    context_chars = 80
    if not query.text:
        return {"hits": hits, "whole": True}
    if not _SEARCHING.acquire(blocking=False):
        raise Overloaded("another search is running: retry later", headers=(("retry-after", "10"),))
    try:
        find = find_text(query.text)
        end = time.monotonic() + 10.0
        for saved_conversation in context.archive.newest_first():
            transcript = read_transcript(saved_conversation)
            title = find_title(transcript.messages.values())
            for at, role, seen_at, match in transcript.search(find):
                if len(hits) >= query.limit:
                    return {"hits": hits, "whole": False}
                hits.append(
                    {
                        "conversation": saved_conversation.short_name,
                        "title": title,
                        "at": at,
                        "role": role,
                        "seen": seen_at,
                        "before": match.text[max(0, match.start - context_chars) : match.start],
                        "found": match.text[match.start : match.stop],
                        "after": match.text[match.stop : match.stop + context_chars],
                    }
                )
            if time.monotonic() > end or client_left.is_set():
                return {"hits": hits, "whole": False}
    finally:
        _SEARCHING.release()
    return {"hits": hits, "whole": True}
