"""OpenAI chat messages and request bodies, one or many, as JSON or JSON lines.

A log of requests holds a conversation many times over, each time a little longer. Only the longest of them is replayed:
its replay makes all the shorter ones again.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

from proxy.lab.replay.replay_values import Json
from proxy.lab.sessions.responses import Items
from proxy.lab.sessions.session_files import ParsedFile
from proxy.lab.sessions.session_history import Chapter, RecordedMessage
from proxy.lab.sessions.shapes import as_arguments, as_object, as_objects, as_text, chat_tools, read_usage

NAME = "OpenAI messages"
LOOKS_FOR = 'messages with "role", or request bodies with "messages" or "input"'
ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def claims(values: Sequence[Any]) -> bool:
    return any(_is_message(each) or _body(each) for each in _flat(values))


def chapters(sheet: ParsedFile) -> Iterator[Chapter]:
    rows = list(_flat(sheet.values))
    loose = [row for row in rows if _is_message(row)]
    bodies = [body for row in rows if (body := _body(row))]
    if loose:
        yield Chapter([RecordedMessage(message) for message in loose])
    histories = [_messages(body) for body in bodies]
    kept = [place for place, stage in enumerate(_stages(histories)) if not stage]
    merged = len(bodies) - len(kept)
    for number, place in enumerate(kept, 1):
        body, history = bodies[place], histories[place]
        notes = {"requests that were stages of a later one, counted with it": merged} if number == 1 and merged else {}
        name = str(number) if len(kept) > 1 or loose else ""
        yield Chapter(
            _read_messages(history, body), name, as_text(body.get("model")), chat_tools(body.get("tools")), notes=notes
        )


def _flat(values: Sequence[Any]) -> Iterator[Json]:
    """The objects of a list and of a list of lists alike."""
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        elif isinstance(value, dict):
            yield value


def _is_message(row: Json) -> bool:
    return row.get("role") in ROLES and ("content" in row or "tool_calls" in row or "function_call" in row)


def _body(row: Json) -> Json:
    """The request in a row: the row itself, or what a log keeps of it beside the answer."""
    for found in (
        row,
        as_object(row.get("request")),
        as_object(row.get("body")),
        as_object(as_object(row.get("request")).get("body")),
    ):
        if as_objects(found.get("messages")) or as_objects(found.get("input")):
            answered = row.get("response") or row.get("answer")
            return {**found, "response": answered} if isinstance(answered, dict) else found
    return {}


def _messages(body: Json) -> list[Json]:
    """The history a body carries; one of the Responses API is put into the form of chat messages."""
    if as_objects(body.get("messages")):
        return as_objects(body["messages"])
    items = Items()
    for item in as_objects(body.get("input")):
        items.add(item)
    head = [{"role": "system", "content": words}] if (words := as_text(body.get("instructions"))) else []
    return [*head, *(message.message for message in items.messages)]


def _read_messages(history: Sequence[Json], body: Json) -> list[RecordedMessage]:
    """With what the model answered at last, where that was kept."""
    response = as_object(body.get("response"))
    response = as_object(response.get("body")) or response
    answered = [as_object(choice.get("message")) for choice in as_objects(response.get("choices"))[:1]]
    messages = [RecordedMessage(message) for message in history]
    return [
        *messages,
        *(RecordedMessage(message, read_usage(response.get("usage"))) for message in answered if message),
    ]


def _stages(histories: Sequence[Sequence[Json]]) -> list[bool]:
    """Of each history: does a later one begin with all of it, and go on?"""
    links = [_links(history) for history in histories]
    inner = {link for chain in links for link in chain[:-1]}
    last_with = {chain[-1]: place for place, chain in enumerate(links) if chain}
    return [not chain or chain[-1] in inner or last_with[chain[-1]] != place for place, chain in enumerate(links)]


def _links(history: Sequence[Json]) -> list[bytes]:
    """A name for each beginning of a history."""
    chain, link = [], b""
    for message in history:
        link = blake2b(link + as_arguments(message).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        chain.append(link)
    return chain
