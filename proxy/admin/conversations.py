"""Conversations: which there are, what each did, what became of each of its messages, and search in them.

The queries name their columns as the API does, so a row of the activity database is an answer without changes.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy.admin.activity import OPEN_SECONDS, find_event
from proxy.admin.context import AdminContext, AdminRequest, Json, Route, run_in_admin_thread
from proxy.admin.history import ConversationBranch, open_history, shorten
from proxy.config import Config
from proxy.errors import NotFound, Overloaded
from proxy.recall.tool import Finder, find_text
from proxy.store.activity_log import ActivityLog
from proxy.store.transcripts.archive import SHORT_NAME_CHARACTERS, Transcript, read_transcript, role_and_text
from proxy.store.transcripts.files import file_name, list_files
from proxy.store.transcripts.saved_lines import MessageLine, parse
from proxy.wire.http import Caller

TURNS_LIMIT = 2_000
INDEX_DIGITS_LIMIT = 9
TITLE_LINES = 40
"""Lines at the beginning in which the first words of the user are looked for."""
CONTEXT_CHARACTERS = 80
SEARCH_SECONDS = 10.0
_SEARCHING = threading.Lock()
"""Held by the thread that searches, and not by the request: a client may leave while its thread still reads."""
_LIST = """
select conversation, tenant, team, user, session, key, model, upstream, tag,
       policy || '@' || policy_version as policy, first, last, requests, tokens_raw, tokens_forwarded,
       sums.tokens_would_be, largest, blocks, spent, would_save, paid_all as paid,
       plain_all - paid_all - spent as saved, round(warm * 1.0 / nullif(read, 0), 4) as cached_share
from (select conversation as name, tenant as owner, team as of_team, session as named, min(at) as first,
             max(at) as last, count(*) as requests,
             sum(tokens_before) as tokens_raw, sum(tokens_after) as tokens_forwarded, max(tokens_before) as largest,
             sum(case when cached_tokens is null then 0 else prompt_tokens end) as read, sum(cached_tokens) as warm,
             sum(action = 'created') as blocks, sum(paid_dollars) as paid_all, sum(plain_dollars) as plain_all,
             sum(coalesce(tokens_would_be, tokens_after)) as tokens_would_be,
             sum(paid_dollars - would_be_dollars) as would_save,
             case when conversation != '' and max(at) = max(max(at)) over (partition by conversation, tenant, team)
             then (select coalesce(sum(dollars), 0) from incidents where incidents.conversation = turns.conversation)
             else 0 end as spent
      from turns where (:team = '' or team = :team) and (:user = '' or user = :user)
                       and (:session = '' or session = :session)
      group by conversation, tenant, team, session) as sums
join turns as newest on newest.conversation = name and newest.tenant = owner and newest.team = of_team
                        and newest.session = named and newest.at = last
where (:model = '' or model = :model) and (:before = 0 or last < :before)
      and (:text = '' or instr(lower(conversation || ' ' || team || ' ' || model || ' ' || newest.policy || ' ' || tag
           || ' ' || key || ' ' || upstream || ' ' || user || ' ' || session), lower(:text)))
group by conversation, tenant, team, session order by last desc limit :limit
"""
_TURNS = """
select conversation, tenant, team, at, link, messages, action, reason, policy || '@' || policy_version as policy, model,
       upstream, tokens_before as tokens_raw, tokens_after as tokens_forwarded, prompt_tokens as tokens_read,
       cached_tokens as tokens_cached, output_tokens as tokens_written, paid_dollars as paid,
       plain_dollars - paid_dollars as saved, coalesce(tokens_would_be, tokens_after) as tokens_would_be,
       paid_dollars - would_be_dollars as would_save, user, session, key
from (select * from turns where conversation = :conversation and (:team = '' or team = :team)
      order by at desc limit :limit) order by at
"""
_OF_CONVERSATION = ("conversation", "tenant", "team")
"""Columns of a turn that are the same in all turns of a conversation."""


class ConversationsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    team: str = ""
    model: str = ""
    user: str = ""
    session: str = ""
    text: str = ""
    """Part of any name: of the conversation, its team, model, policy, tag, key, upstream, user or session."""
    before: Annotated[float, Meta(ge=0)] = 0.0
    """Only conversations whose last request was earlier: the `next` of the page before."""
    limit: Annotated[int, Meta(ge=1, le=200)] = 25


class ConversationQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    at: str = ""
    """Link of the request to show the history of; without it the newest."""
    session: str | None = None
    """Only the requests of this session; without it, of all. Agents that begin alike may share a conversation."""


class SearchQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(max_length=500)] = ""
    case: bool = False
    tenant: Annotated[str, Meta(max_length=200)] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


def list_conversations(context: AdminContext, request: AdminRequest) -> Json:
    query: ConversationsQuery = request.query
    team = request.visitor.team or query.team
    values = {**msgspec.to_builtins(query), "team": team, "limit": query.limit + 1}
    rows = context.activity_log.query(_LIST, values)
    shown, more = rows[: query.limit], len(rows) > query.limit
    titles = find_titles(context.config(), [(row.pop("tenant"), row["conversation"]) for row in shown])
    return {
        "conversations": [
            {**row, "title": titles.get(row["conversation"], ""), "open": _is_open(row["last"])} for row in shown
        ],
        "next": shown[-1]["last"] if more else None,
        "teams": [request.visitor.team] if request.visitor.team else _names(context.activity_log, "team"),
        "models": _names(context.activity_log, "model", request.visitor.team),
    }


def _names(activity_log: ActivityLog, column: str, team: str = "") -> list[str]:
    query = f"select distinct {column} as name from turns where ? in ('', team) order by 1 limit 500"  # noqa: S608
    return [row["name"] for row in activity_log.query(query, [team]) if row["name"]]


def _is_open(last: float) -> bool:
    return time.time() - last < OPEN_SECONDS


async def show_conversation(context: AdminContext, request: AdminRequest) -> Json:
    turns, shown, history = await _look_up(context, request)
    happened = await run_in_admin_thread(_events, context.activity_log, turns[0]["conversation"])
    if isinstance(history, str):
        messages: Json = {"title": "", "block": None, "summary": "", "head": [], "pieces": [], "forks": []}
        messages["why_no_pieces"] = history
    else:
        messages = await run_in_admin_thread(history.describe)
    last = shown[-1]
    return {
        **{name: last[name] for name in ("conversation", "team", "model", "upstream", "user", "session", "key")},
        "first": shown[0]["at"],
        "last": last["at"],
        "open": _is_open(last["at"]),
        "at": last["link"],
        "turns": [{name: value for name, value in turn.items() if name not in _OF_CONVERSATION} for turn in shown],
        "sessions": _describe_sessions(turns),
        "happened": happened,
        "spent": sum(event["dollars"] for event in happened),
        **messages,
    }


async def show_message(context: AdminContext, request: AdminRequest) -> Json:
    _, _, history = await _look_up(context, request)
    if not isinstance(history, ConversationBranch):
        raise NotFound(history)
    index = request.names["place"]
    if not (index.isascii() and index.isdigit() and len(index) < INDEX_DIGITS_LIMIT):
        raise NotFound("the message index is not a number")
    if int(index) >= len(history.path):
        raise NotFound("message index out of range")
    return await run_in_admin_thread(history.message, int(index))


async def _look_up(
    context: AdminContext, request: AdminRequest
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], ConversationBranch | str]:
    """The requests of a conversation, those of the session asked for, and the history as of one of these.

    That is the request that was asked for, or else the newest.
    """
    values = {"conversation": request.names["conversation"], "team": request.visitor.team, "limit": TURNS_LIMIT}
    turns = await run_in_admin_thread(context.activity_log.query, _TURNS, values)
    if not turns:
        raise NotFound("unknown conversation: GET /conversations lists all")
    session = request.query.session
    shown = [turn for turn in turns if session is None or turn["session"] == session]
    if not shown:
        raise NotFound("unknown session of this conversation")
    turn = next((turn for turn in reversed(shown) if turn["link"] == request.query.at), shown[-1])
    return turns, shown, await open_history(context, turn, turns)


def _describe_sessions(turns: Sequence[dict[str, Any]]) -> list[Json]:
    """The sessions of a conversation, as clients name them, the one that was heard of last first."""
    found: dict[str, Json] = {}
    for turn in turns:
        before = found.pop(turn["session"], {"requests": 0})
        figures = {"user": turn["user"], "model": turn["model"], "last": turn["at"]}
        found[turn["session"]] = {"session": turn["session"], **figures, "requests": before["requests"] + 1}
    return list(reversed(found.values()))


def _events(activity_log: ActivityLog, name: str) -> Sequence[Json]:
    rows = activity_log.query("select * from incidents where conversation = ? order by at limit ?", [name, TURNS_LIMIT])
    return [find_event(row) for row in rows]


async def search(context: AdminContext, request: AdminRequest) -> Json:
    """Hits, newest conversations first, and whether all were searched: it ends after some hits and some seconds.

    One at a time. One whose client has left ends with the conversation that it is at.
    """
    is_unwanted = threading.Event()
    try:
        return await run_in_admin_thread(_search_alone, context, request, is_unwanted)
    finally:
        is_unwanted.set()


def _search_alone(context: AdminContext, request: AdminRequest, is_unwanted: threading.Event) -> Json:
    if not _SEARCHING.acquire(blocking=False):
        raise Overloaded("another search is running: retry later", headers=(("retry-after", "10"),))
    try:
        return _search(context, request, is_unwanted)
    finally:
        _SEARCHING.release()


def _search(context: AdminContext, request: AdminRequest, is_unwanted: threading.Event) -> Json:
    query: SearchQuery = request.query
    hits: list[Json] = []
    if not query.text:
        return {"hits": hits, "whole": True}
    find = find_text(query.text, distinguish_case=query.case)
    end = time.monotonic() + SEARCH_SECONDS
    team = request.visitor.team
    tenant = Caller(team).tenant if team else query.tenant
    for saved in context.archive.newest_first(tenant):
        for hit in _find_hits(read_transcript(saved), find):
            if len(hits) >= query.limit:
                return {"hits": hits, "whole": False}
            hits.append(hit)
        if time.monotonic() > end or is_unwanted.is_set():
            return {"hits": hits, "whole": False}
    return {"hits": hits, "whole": True}


def _find_hits(transcript: Transcript, find: Finder) -> Iterator[Json]:
    title = next((text for _, role, _, text in transcript.texts() if role == "user"), "")
    for at, role, seen, match in transcript.search(find):
        yield {
            "conversation": transcript.saved.short_name,
            "title": shorten(title),
            "at": at,
            "role": role,
            "seen": seen,
            "before": match.text[max(0, match.start - CONTEXT_CHARACTERS) : match.start],
            "found": match.text[match.start : match.stop],
            "after": match.text[match.stop : match.stop + CONTEXT_CHARACTERS],
        }


def find_titles(config: Config, wanted: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The first words of the user in each of these (tenant, conversation), where they are kept on this disk."""
    places = {tenant: _places_by_name(config.originals / file_name(tenant)) for tenant in {pair[0] for pair in wanted}}
    found = ((name, places[tenant].get(name)) for tenant, name in wanted)
    return {name: _read_title(place) for name, place in found if place is not None}


def _places_by_name(folder: Path) -> dict[str, Path]:
    return {place.name[:SHORT_NAME_CHARACTERS]: place for place in folder.iterdir()} if folder.is_dir() else {}


def _read_title(place: Path) -> str:
    for path in list_files(place)[:1]:
        with suppress(FileNotFoundError), path.open("rb") as lines:  # it may be removed by now
            for raw in islice(lines, TITLE_LINES):
                line = parse(raw)
                role, words = role_and_text(line.message) if isinstance(line, MessageLine) else ("", "")
                if role == "user":
                    return shorten(words)
    return ""


ROUTES = (
    Route("GET", "/conversations", list_conversations, ConversationsQuery, rows="conversations", for_teams=True),
    Route("GET", "/conversations/{conversation}", show_conversation, ConversationQuery, rows="turns", for_teams=True),
    Route("GET", "/conversations/{conversation}/messages/{place}", show_message, ConversationQuery, for_teams=True),
    Route("GET", "/search", search, SearchQuery, rows="hits", for_teams=True),
)
