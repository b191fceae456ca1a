"""Conversations: which there are, what each did, and what became of each of its messages."""

import asyncio
import json
import time
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy.errors import NotFound
from proxy.server.admin import shelf
from proxy.server.admin.history import History, Opened, Piece, Standing, opened, turn_of
from proxy.server.admin.overview import OPEN_SECONDS
from proxy.server.admin.routes import Asked, Desk, Route
from proxy.store.chronicle import Chronicle

MOST_TURNS = 2_000
LONGEST_NUMBER = 9
_LIST = """
select conversation, tenant, team, key, tag, model, upstream, policy, version, action, max(at) as last,
       min(at) as first, count(*) as requests, sum(before) as raw, sum(after) as forwarded,
       sum(case when cached is null then 0 else prompt end) as read, sum(coalesce(cached, 0)) as cached,
       sum(action = 'created') as blocks, sum(plain - paid) as saved, max(before) as largest
from turns_1
where (:team = '' or team = :team) and (:model = '' or model = :model)
group by conversation
having (:text = '' or instr(lower(conversation || ' ' || team || ' ' || model || ' ' || policy || ' ' || tag || ' '
        || key || ' ' || upstream), lower(:text)))
       and (:before = 0 or last < :before)
order by last desc limit :limit
"""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation in a list. `saved` is in dollars, None where prices or usage are not known."""

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
    blocks: int
    saved: float | None


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
    saved: float | None


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    """A block, a summary, a warning."""

    at: float
    severity: str
    name: str
    details: dict[str, Any]


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
    happened: list[Happened]
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
    values = {**msgspec.to_builtins(query), "limit": query.limit + 1}
    rows = desk.chronicle.rows(_LIST, values)
    shown, more = rows[: query.limit], len(rows) > query.limit
    titles = shelf.titles(desk.config(), ((row["tenant"], row["conversation"]) for row in shown))
    now = time.time()
    return Conversations(
        conversations=[_listed(row, titles.get(row["conversation"], ""), now) for row in shown],
        next=shown[-1]["last"] if more else None,
        teams=_names(desk.chronicle, "team"),
        models=_names(desk.chronicle, "model"),
    )


def _names(chronicle: Chronicle, column: str) -> list[str]:
    rows = chronicle.rows(f"select distinct {column} as name from turns_1 order by 1 limit 500")  # noqa: S608
    return [row["name"] for row in rows if row["name"]]


def _listed(row: dict[str, Any], title: str, now: float) -> Listed:
    return Listed(
        conversation=row["conversation"],
        title=title,
        team=row["team"],
        model=row["model"],
        upstream=row["upstream"],
        tag=row["tag"],
        policy=f"{row['policy']}@{row['version']}",
        open=now - row["last"] < OPEN_SECONDS,
        first=row["first"],
        last=row["last"],
        requests=row["requests"],
        tokens_raw=row["raw"],
        tokens_forwarded=row["forwarded"],
        largest=row["largest"],
        cached_share=round(row["cached"] / row["read"], 4) if row["read"] else None,
        blocks=row["blocks"],
        saved=row["saved"],
    )


async def conversation(desk: Desk, asked: Asked) -> Conversation:
    name = asked.names["conversation"]
    rows = await asyncio.to_thread(_turns, desk.chronicle, name)
    if not rows:
        raise NotFound("the chronicle knows no such conversation; /conversations lists those it knows")
    turn = turn_of(rows, asked.query.at)
    history = await opened(desk, name, turn["tenant"], turn["link"])
    happened = await asyncio.to_thread(_happened, desk.chronicle, name)
    return await asyncio.to_thread(_conversation, name, rows, happened, history)


async def message(desk: Desk, asked: Asked) -> Opened:
    name, place = asked.names["conversation"], asked.names["place"]
    rows = await asyncio.to_thread(_turns, desk.chronicle, name)
    turn = turn_of(rows, asked.query.at) if rows else None
    history = await opened(desk, name, turn["tenant"], turn["link"]) if turn else "there is no such conversation"
    if not isinstance(history, History):
        raise NotFound(history)
    if not (place.isascii() and place.isdigit() and len(place) < LONGEST_NUMBER):
        raise NotFound("a message is asked for by its place in the conversation: a number")
    if int(place) >= len(history.path):
        raise NotFound("the conversation is not so long")
    return await asyncio.to_thread(history.opened, int(place))


def _turns(chronicle: Chronicle, name: str) -> list[dict[str, Any]]:
    query = "select * from (select * from turns_1 where conversation = ? order by at desc limit ?) order by at"
    return chronicle.rows(query, [name, MOST_TURNS])


def _happened(chronicle: Chronicle, name: str) -> list[Happened]:
    rows = chronicle.rows("select * from happenings_1 where conversation = ? order by at limit ?", [name, MOST_TURNS])
    return [
        Happened(at=row["at"], severity=row["severity"], name=row["name"], details=json.loads(row["told"]))
        for row in rows
    ]


def _conversation(
    name: str, rows: list[dict[str, Any]], happened: list[Happened], opened: History | str
) -> Conversation:
    last = rows[-1]
    there = opened if isinstance(opened, History) else None
    return Conversation(
        conversation=name,
        title=there.title if there else "",
        team=last["team"],
        model=last["model"],
        upstream=last["upstream"],
        first=rows[0]["at"],
        last=last["at"],
        open=time.time() - last["at"] < OPEN_SECONDS,
        at=there.path[-1].at if there else last["link"],
        turns=[_turn(row) for row in rows],
        happened=happened,
        block=there.standing if there else None,
        summary=there.summary if there else "",
        head=there.head if there else [],
        pieces=there.pieces() if there else [],
        why_no_pieces="" if there else str(opened),
        forks=there.forks if there else [],
    )


def _turn(row: dict[str, Any]) -> Turn:
    return Turn(
        at=row["at"],
        link=row["link"],
        messages=row["messages"],
        tokens_raw=row["before"],
        tokens_forwarded=row["after"],
        tokens_read=row["prompt"],
        tokens_cached=row["cached"],
        tokens_written=row["written"],
        action=row["action"],
        reason=row["reason"],
        policy=f"{row['policy']}@{row['version']}",
        model=row["model"],
        upstream=row["upstream"],
        saved=None if row["paid"] is None or row["plain"] is None else row["plain"] - row["paid"],
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
