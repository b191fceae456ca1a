"""OpenAI chat messages: logged request bodies or lists of messages, mini-swe-agent's runs, collections.

A log of requests holds a conversation many times over, each time a little longer. Only the longest of them is replayed.
A collection has one conversation a line, with the usage of each answer `i` (docs/replay-your-sessions.md).
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any

from proxy.lab.replay.replay_values import Json, RecordedUsage
from proxy.lab.sessions.codex import Items
from proxy.lab.sessions.session_files import ParsedFile
from proxy.lab.sessions.session_history import (
    Chapter,
    Format,
    RecordedMessage,
    as_arguments,
    as_count,
    as_object,
    as_objects,
    as_seconds,
    as_text,
    chat_tools,
    read_usage,
)

_RESPONSES = "runs of a model of the Responses API, not read"
_SENT = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")


def claims_mini_swe_agent(values: Sequence[Any]) -> bool:
    return any(_is_run(row) for row in as_objects(list(values)[:50]))


def read_mini_swe_agent(sheet: ParsedFile) -> Iterator[Chapter]:
    runs = [row for row in as_objects(list(sheet.values)) if _is_run(row)]
    for number, run in enumerate(runs, 1):
        messages, name = as_objects(run["messages"]), str(number) if len(runs) > 1 else ""
        if any(message.get("object") == "response" for message in messages):
            yield Chapter([], name, _find_run_model(run), notes={_RESPONSES: 1})
        else:
            yield Chapter(_read_run(messages), name, _find_run_model(run))


def _is_run(row: Json) -> bool:
    is_marked = "trajectory_format" in row or "mini_version" in as_object(row.get("info"))
    return is_marked and isinstance(row.get("messages"), list)


def _read_run(messages: Sequence[Json]) -> list[RecordedMessage]:
    read = []
    for message in messages:
        if as_text(message.get("role")) in ("", "exit"):
            continue
        extra = as_object(message.get("extra"))
        usage = read_usage(as_object(extra.get("response")).get("usage"), at=as_seconds(extra.get("timestamp")))
        sent_fields = {key: message[key] for key in _SENT if key in message}
        read.append(RecordedMessage(sent_fields, usage if message["role"] == "assistant" else None))
    return read


def _find_run_model(run: Json) -> str:
    return as_text(as_object(as_object(as_object(run.get("info")).get("config")).get("model")).get("model_name"))


def claims_collection(values: Sequence[Any]) -> bool:
    return any(_is_record(row) for row in as_objects(list(values)[:50]))


def read_collection(sheet: ParsedFile) -> Iterator[Chapter]:
    source = sheet.place.name.partition(".")[0]
    for number, row in enumerate(as_objects(list(sheet.values))):
        if _is_record(row):
            used = {
                place: usage
                for usage_row in as_objects(row.get("usage"))
                if (place := as_count(usage_row.get("i"))) is not None
                and (usage := _read_counts(usage_row)) is not None
            }
            messages = [
                RecordedMessage(message, used.get(place)) for place, message in enumerate(as_objects(row["messages"]))
            ]
            yield Chapter(messages, str(number), as_text(row.get("model")), chat_tools(row.get("tools")), source)


def _is_record(row: Json) -> bool:
    return isinstance(row.get("messages"), list) and "id" in row and ("usage" in row or "style" in row)


def _read_counts(used: Json) -> RecordedUsage | None:
    tokens, at = as_count(used.get("in")), as_seconds(used.get("ts"))
    return RecordedUsage(tokens, at) if tokens or at else None


ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def claims_messages(values: Sequence[Any]) -> bool:
    return any(_is_message(row) or _body(row) for row in _flat(values))


def read_messages(sheet: ParsedFile) -> Iterator[Chapter]:
    rows = list(_flat(sheet.values))
    loose = [row for row in rows if _is_message(row)]
    bodies = [body for row in rows if (body := _body(row))]
    if loose:
        yield Chapter([RecordedMessage(message) for message in loose])
    histories = [_messages(body) for body in bodies]
    longest = [place for place, stage in enumerate(_stages(histories)) if not stage]
    merged_count = len(bodies) - len(longest)
    for number, place in enumerate(longest, 1):
        body, history = bodies[place], histories[place]
        notes = (
            {"requests that were stages of a later one, counted with it": merged_count}
            if number == 1 and merged_count
            else {}
        )
        name = str(number) if len(longest) > 1 or loose else ""
        yield Chapter(
            _read_messages(history, body), name, as_text(body.get("model")), chat_tools(body.get("tools")), notes=notes
        )


def _flat(values: Sequence[Any]) -> Iterator[Json]:
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        elif isinstance(value, dict):
            yield value


def _is_message(row: Json) -> bool:
    return row.get("role") in ROLES and ("content" in row or "tool_calls" in row or "function_call" in row)


def _body(row: Json) -> Json:
    """A log may keep the request below `request` or `body`, with the answer."""
    for candidate in (
        row,
        as_object(row.get("request")),
        as_object(row.get("body")),
        as_object(as_object(row.get("request")).get("body")),
    ):
        if as_objects(candidate.get("messages")) or as_objects(candidate.get("input")):
            answer = row.get("response") or row.get("answer")
            return {**candidate, "response": answer} if isinstance(answer, dict) else candidate
    return {}


def _messages(body: Json) -> list[Json]:
    """A history of the Responses API becomes chat messages."""
    if as_objects(body.get("messages")):
        return as_objects(body["messages"])
    items = Items()
    for item in as_objects(body.get("input")):
        items.add(item)
    head = [{"role": "system", "content": words}] if (words := as_text(body.get("instructions"))) else []
    return [*head, *(message.message for message in items.messages)]


def _read_messages(history: Sequence[Json], body: Json) -> list[RecordedMessage]:
    response = as_object(body.get("response"))
    response = as_object(response.get("body")) or response
    answers = [as_object(choice.get("message")) for choice in as_objects(response.get("choices"))[:1]]
    messages = [RecordedMessage(message) for message in history]
    return [
        *messages,
        *(RecordedMessage(message, read_usage(response.get("usage"))) for message in answers if message),
    ]


def _stages(histories: Sequence[Sequence[Json]]) -> list[bool]:
    links = [_links(history) for history in histories]
    inner = {link for chain in links for link in chain[:-1]}
    last_with = {chain[-1]: place for place, chain in enumerate(links) if chain}
    return [not chain or chain[-1] in inner or last_with[chain[-1]] != place for place, chain in enumerate(links)]


def _links(history: Sequence[Json]) -> list[bytes]:
    chain, link = [], b""
    for message in history:
        link = blake2b(link + as_arguments(message).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        chain.append(link)
    return chain


FORMATS = (
    Format(
        "mini-swe-agent",
        '"messages" and a "trajectory_format" or "info" with "mini_version" (mini-swe-agent)',
        claims_mini_swe_agent,
        read_mini_swe_agent,
    ),
    Format(
        "recorded conversations",
        'lines with "id", "messages" and "usage" (a collection of conversations)',
        claims_collection,
        read_collection,
    ),
    Format(
        "OpenAI messages",
        'messages with "role", or request bodies with "messages" or "input"',
        claims_messages,
        read_messages,
    ),
)
