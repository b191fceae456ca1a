"""Conversations, their requests and messages, and a search in the originals.

Queries name their columns as the API does, so that a row is an answer.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from proxy.admin.conversation_branch import TURNS_LIMIT, find_title, list_turns, open_branch
from proxy.admin.events_page import query_incidents
from proxy.admin.figures import OPEN_SECONDS
from proxy.admin.request_list import list_names
from proxy.admin.routes import AdminContext, AdminRequest, Json
from proxy.config import Config
from proxy.foundation.errors import NotFound, Overloaded
from proxy.foundation.threads import FILES
from proxy.recall.tool import Finder, find_text
from proxy.store.transcripts.archive import SHORT_NAME_CHARACTERS, Transcript, read_transcript
from proxy.store.transcripts.files import file_name, list_files, parse

# Columns without an aggregate are those of the newest request: https://www.sqlite.org/lang_select.html#bareagg
_LIST = """
select conversation, tenant, team, user, session, key, model, upstream, tag,
       policy || '@' || policy_version as policy, last, requests, tokens_raw, tokens_unshortened, tokens_forwarded,
       tokens_would_be, refetches, blocks,
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
             case when conversation != '' and max(at) = max(max(at)) over (partition by conversation, tenant, team)
             then (select coalesce(sum(dollars), 0) from incidents where incidents.conversation = turns.conversation)
             else 0 end as spent
      from turns where (:team = '' or team = :team) and (:user = '' or user = :user)
                       and (:session = '' or session = :session)
      group by conversation, tenant, team, session)
where (:model = '' or model = :model) and (:before = 0 or last < :before)
      and (:text = '' or instr(lower(conversation || ' ' || team || ' ' || model || ' ' || policy || ' ' || tag || ' '
           || key || ' ' || upstream || ' ' || user || ' ' || session), lower(:text)))
order by case :sort when 'saved' then coalesce(saved, 1e300) end, last desc limit :limit
"""


class ConversationsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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


class ConversationQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    at: str = ""
    """The link of the request to show. Empty: that of the newest."""
    session: str | None = None
    """Show one session only; None: all. Agents that begin alike may share a conversation."""


def list_conversations(context: AdminContext, request: AdminRequest) -> Json:
    query: ConversationsQuery = request.query
    parameters = {**msgspec.to_builtins(query), "limit": query.limit + 1}
    rows = context.activity_log.query(_LIST, parameters)
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
        "sessions": _describe_sessions(all_turns),
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


def _describe_sessions(turns: Sequence[Json]) -> list[Json]:
    """Describe all sessions of a conversation, the newest first."""
    sessions: dict[str, Json] = {}
    for turn in reversed(turns):
        name = turn["session"]
        session = sessions.setdefault(name, {"session": name, "user": turn["user"], "requests": 0})
        session["requests"] += 1
    return list(sessions.values())


def _find_titles(config: Config, rows: Sequence[Json]) -> dict[str, str]:
    names_by_tenant: dict[str, set[str]] = {}
    for row in rows:
        names_by_tenant.setdefault(row["tenant"], set()).add(row["conversation"])
    titles = {}
    for tenant, names in names_by_tenant.items():
        for folder in (config.originals / file_name(tenant)).glob("[!.]*"):
            name = folder.name[:SHORT_NAME_CHARACTERS]
            if name in names:
                titles[name] = _read_title(folder)
    return titles


def _read_title(folder: Path) -> str:
    for path in list_files(folder)[:1]:
        with suppress(FileNotFoundError), path.open("rb") as lines:  # it may be removed by now
            return find_title(map(parse, islice(lines, 40)))
    return ""


_SEARCHING = threading.Lock()
"""The lock of the thread that searches, which may still read after its client has left."""


class SearchQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
    if not query.text:
        return {"hits": hits, "whole": True}
    if not _SEARCHING.acquire(blocking=False):
        raise Overloaded("another search is running: retry later", headers=(("retry-after", "10"),))
    try:
        find = find_text(query.text)
        end = time.monotonic() + 10.0
        for saved_conversation in context.archive.newest_first():
            for hit in _find_hits(read_transcript(saved_conversation), find):
                if len(hits) >= query.limit:
                    return {"hits": hits, "whole": False}
                hits.append(hit)
            if time.monotonic() > end or client_left.is_set():
                return {"hits": hits, "whole": False}
    finally:
        _SEARCHING.release()
    return {"hits": hits, "whole": True}


def _find_hits(transcript: Transcript, find: Finder) -> Iterator[Json]:
    title = find_title(transcript.messages.values())
    context_chars = 80
    for at, role, seen_at, match in transcript.search(find):
        yield {
            "conversation": transcript.saved.short_name,
            "title": title,
            "at": at,
            "role": role,
            "seen": seen_at,
            "before": match.text[max(0, match.start - context_chars) : match.start],
            "found": match.text[match.start : match.stop],
            "after": match.text[match.stop : match.stop + context_chars],
        }
