"""Conversations: which there are, what each did, and what became of each of its messages.

The queries name their columns as the API does, so that a row of the chronicle is an answer once it is checked.
"""

import asyncio
import time
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy.admin import shelf
from proxy.admin.history import History, Opened, Piece, Standing, opened
from proxy.admin.overview import OPEN_SECONDS
from proxy.admin.records import Event, event_of
from proxy.admin.routes import Asked, Desk, Route
from proxy.errors import NotFound
from proxy.store.chronicle import Chronicle

MOST_TURNS = 2_000
LONGEST_NUMBER = 9
_LIST = """
select conversation, tenant, team, model, upstream, tag, policy || '@' || version as policy, sums.*,
       round(warm * 1.0 / nullif(read, 0), 4) as cached_share, spent, plain_all - paid_all - spent as saved
from (select conversation as name, min(at) as first, max(at) as last, count(*) as requests,
             sum(before) as tokens_raw, sum(after) as tokens_forwarded, max(before) as largest,
             sum(case when cached is null then 0 else prompt end) as read, sum(cached) as warm,
             sum(action = 'created') as blocks, sum(paid) as paid_all, sum(plain) as plain_all,
             (select coalesce(sum(json_extract(told, '$.dollars')), 0) from happenings_1
              where happenings_1.conversation = turns_1.conversation and name = 'summary-ended') as spent
      from turns_1 group by conversation) as sums
join turns_1 as newest on newest.conversation = name and newest.at = last
where (:team = '' or team = :team) and (:model = '' or model = :model) and (:before = 0 or last < :before)
      and (:text = '' or instr(lower(conversation || ' ' || team || ' ' || model || ' ' || newest.policy || ' ' || tag
           || ' ' || key || ' ' || upstream), lower(:text)))
group by conversation order by last desc limit :limit
"""
_TURNS = """
select conversation, tenant, team, at, link, messages, action, reason, policy || '@' || version as policy, model,
       upstream, before as tokens_raw, after as tokens_forwarded, prompt as tokens_read, cached as tokens_cached,
       written as tokens_written, paid, plain - paid as saved
from (select * from turns_1 where conversation = ? order by at desc limit ?) order by at
"""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation in a list: who it is of as its newest request says, and the sums of all. Money is in dollars, None
    where prices or usage are not known.
    """

    conversation: str
    title: str
    team: str
    model: str
    upstream: str
    tag: str
    policy: str
    open: bool
    first: float
    last: float
    requests: int
    tokens_raw: int
    tokens_forwarded: int
    largest: int
    cached_share: float | None
    """By the upstream's own usage."""
    blocks: int
    paid: float | None
    """For prompts."""
    spent: float
    """For summaries."""
    saved: float | None
    """What is left of what the histories as sent would have cost, once both are paid."""


class Conversations(msgspec.Struct, frozen=True, kw_only=True):
    conversations: list[Listed]
    next: float | None
    """Ask for those `before` this one next; None: there are no more."""
    teams: list[str]
    models: list[str]


class ConversationsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    team: str = ""
    model: str = ""
    text: str = ""
    """In the names of anything about it; what was said is found by /search."""
    before: Annotated[float, Meta(ge=0)] = 0.0
    limit: Annotated[int, Meta(ge=1, le=200)] = 25


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One request."""

    at: float
    link: str
    messages: int
    tokens_raw: int
    tokens_forwarded: int
    tokens_read: int
    """As the upstream counted them; 0: it did not say."""
    tokens_cached: int | None
    tokens_written: int
    action: str
    reason: str
    policy: str
    model: str
    upstream: str
    paid: float | None
    """For its prompt."""
    saved: float | None


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    conversation: str
    title: str
    team: str
    model: str
    upstream: str
    first: float
    last: float
    open: bool
    at: str
    """The request whose history is shown below, by its link."""
    turns: list[Turn]
    happened: list[Event]
    spent: float
    """For its summaries, in dollars."""
    block: Standing | None
    summary: str
    head: list[str]
    """The instructions that led it."""
    pieces: list[Piece]
    why_no_pieces: str
    forks: list[str]


class ConversationQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    at: str = ""
    """A request, by the link that `turns` tells; without one the newest."""


async def conversations(desk: Desk, asked: Asked) -> Conversations:
    return await asyncio.to_thread(_conversations, desk, asked.query)


def _conversations(desk: Desk, query: ConversationsQuery) -> Conversations:
    rows = desk.chronicle.rows(_LIST, {**msgspec.to_builtins(query), "limit": query.limit + 1})
    shown, more = rows[: query.limit], len(rows) > query.limit
    titles = shelf.titles(desk.config(), ((row["tenant"], row["conversation"]) for row in shown))
    return Conversations(
        conversations=[_listed(row, titles.get(row["conversation"], "")) for row in shown],
        next=shown[-1]["last"] if more else None,
        teams=_names(desk.chronicle, "team"),
        models=_names(desk.chronicle, "model"),
    )


def _names(chronicle: Chronicle, column: str) -> list[str]:
    rows = chronicle.rows(f"select distinct {column} as name from turns_1 order by 1 limit 500")  # noqa: S608
    return [row["name"] for row in rows if row["name"]]


def _listed(row: dict[str, Any], title: str) -> Listed:
    about = {"title": title, "open": _is_open(row["last"]), "paid": row["paid_all"]}
    return msgspec.convert({**row, **about}, Listed)


def _is_open(last: float) -> bool:
    return time.time() - last < OPEN_SECONDS


async def conversation(desk: Desk, asked: Asked) -> Conversation:
    turns, history = await _looked_at(desk, asked)
    happened = await asyncio.to_thread(_happened, desk.chronicle, turns[0]["conversation"])
    return await asyncio.to_thread(_conversation, turns, happened, history)


async def message(desk: Desk, asked: Asked) -> Opened:
    _, history = await _looked_at(desk, asked)
    if not isinstance(history, History):
        raise NotFound(history)
    place = asked.names["place"]
    if not (place.isascii() and place.isdigit() and len(place) < LONGEST_NUMBER):
        raise NotFound("a message is asked for by its place in the conversation: a number")
    if int(place) >= len(history.path):
        raise NotFound("the conversation is not so long")
    return await asyncio.to_thread(history.opened, int(place))


async def _looked_at(desk: Desk, asked: Asked) -> tuple[list[dict[str, Any]], History | str]:
    """The requests of a conversation, and its history as of the one that was asked for, or else the newest."""
    values = [asked.names["conversation"], MOST_TURNS]
    turns = await asyncio.to_thread(desk.chronicle.rows, _TURNS, values)
    if not turns:
        raise NotFound("the chronicle knows no such conversation; /conversations lists those it knows")
    turn = next((each for each in reversed(turns) if each["link"] == asked.query.at), turns[-1])
    return turns, await opened(desk, turn, turns)


def _happened(chronicle: Chronicle, name: str) -> list[Event]:
    rows = chronicle.rows("select * from happenings_1 where conversation = ? order by at limit ?", [name, MOST_TURNS])
    return [event_of(row) for row in rows]


def _conversation(turns: list[dict[str, Any]], happened: list[Event], opened: History | str) -> Conversation:
    last = turns[-1]
    there = opened if isinstance(opened, History) else None
    return Conversation(
        conversation=last["conversation"],
        title=there.title if there else "",
        team=last["team"],
        model=last["model"],
        upstream=last["upstream"],
        first=turns[0]["at"],
        last=last["at"],
        open=_is_open(last["at"]),
        at=there.path[-1].at if there else last["link"],
        turns=msgspec.convert(turns, list[Turn]),
        happened=happened,
        spent=sum(each.details.get("dollars", 0.0) for each in happened if each.name == "summary-ended"),
        block=there.standing if there else None,
        summary=there.summary if there else "",
        head=there.head if there else [],
        pieces=there.pieces() if there else [],
        why_no_pieces="" if there else str(opened),
        forks=there.forks if there else [],
    )


_MISSING = (HTTPStatus.NOT_FOUND,)
ROUTES = (
    Route("GET", "/conversations", "Live and recent conversations", conversations, Conversations, ConversationsQuery),
    Route(
        "GET",
        "/conversations/{conversation}",
        "What a conversation did, request by request, and what became of its messages",
        conversation,
        Conversation,
        ConversationQuery,
        faults=_MISSING,
    ),
    Route(
        "GET",
        "/conversations/{conversation}/messages/{place}",
        "A message as it was sent, beside what is forwarded instead",
        message,
        Opened,
        ConversationQuery,
        faults=_MISSING,
    ),
)
