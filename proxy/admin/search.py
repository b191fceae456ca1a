"""Search in the saved originals."""

import threading
import time
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from proxy.admin.conversation_branch import cut_title
from proxy.admin.routes import AdminContext, AdminRequest, Json, Route, run_in_admin_thread
from proxy.errors import Overloaded
from proxy.recall.tool import Finder, find_text
from proxy.store.transcripts.archive import Transcript, read_transcript
from proxy.wire.caller import Caller

CONTEXT_CHARACTERS = 80
SEARCH_SECONDS = 10.0
_SEARCHING = threading.Lock()
"""Held by the thread that searches, and not by the request: a client may leave while its thread still reads."""


class SearchQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[str, Meta(max_length=500)] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


async def search(context: AdminContext, request: AdminRequest) -> Json:
    """Return hits, newest conversations first, and whether all were searched: it ends after some hits or seconds.

    One search at a time. If its client leaves, it ends with the conversation that it is at.
    """
    client_left = threading.Event()
    try:
        return await run_in_admin_thread(_search_alone, context, request, client_left)
    finally:
        client_left.set()


def _search_alone(context: AdminContext, request: AdminRequest, client_left: threading.Event) -> Json:
    if not _SEARCHING.acquire(blocking=False):
        raise Overloaded("another search is running: retry later", headers=(("retry-after", "10"),))
    try:
        return _search(context, request, client_left)
    finally:
        _SEARCHING.release()


def _search(context: AdminContext, request: AdminRequest, client_left: threading.Event) -> Json:
    query: SearchQuery = request.query
    hits: list[Json] = []
    if not query.text:
        return {"hits": hits, "whole": True}
    find = find_text(query.text)
    end = time.monotonic() + SEARCH_SECONDS
    for saved in context.archive.newest_first(Caller(request.visitor.team).tenant):
        for hit in _find_hits(read_transcript(saved), find):
            if len(hits) >= query.limit:
                return {"hits": hits, "whole": False}
            hits.append(hit)
        if time.monotonic() > end or client_left.is_set():
            return {"hits": hits, "whole": False}
    return {"hits": hits, "whole": True}


def _find_hits(transcript: Transcript, find: Finder) -> Iterator[Json]:
    title = next((text for _, role, _, text in transcript.texts() if role == "user"), "")
    for at, role, seen, match in transcript.search(find):
        yield {
            "conversation": transcript.saved.short_name,
            "title": cut_title(title),
            "at": at,
            "role": role,
            "seen": seen,
            "before": match.text[max(0, match.start - CONTEXT_CHARACTERS) : match.start],
            "found": match.text[match.start : match.stop],
            "after": match.text[match.stop : match.stop + CONTEXT_CHARACTERS],
        }


ROUTES = (Route("GET", "/search", search, SearchQuery, for_teams=True),)
