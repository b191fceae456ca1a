"""mini-swe-agent trajectories: "messages" as they were sent, each with an "extra" that was not.

A message of the role "exit" tells how the run ended and was never sent. Runs of a Responses model are not read.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from proxy.lab.replay.replay_values import Json
from proxy.lab.sessions.session_files import ParsedFile
from proxy.lab.sessions.session_history import Chapter, RecordedMessage
from proxy.lab.sessions.shapes import as_object, as_objects, as_seconds, as_text, read_usage

NAME = "mini-swe-agent"
LOOKS_FOR = '"messages" and a "trajectory_format" or "info" with "mini_version" (mini-swe-agent)'
_RESPONSES = "runs of a model of the Responses API, not read"
_SENT = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")


def claims(values: Sequence[Any]) -> bool:
    return any(_is_run(each) for each in as_objects(list(values)[:50]))


def chapters(sheet: ParsedFile) -> Iterator[Chapter]:
    runs = [row for row in as_objects(list(sheet.values)) if _is_run(row)]
    for number, run in enumerate(runs, 1):
        messages, name = as_objects(run["messages"]), str(number) if len(runs) > 1 else ""
        if any(message.get("object") == "response" for message in messages):
            yield Chapter([], name, _model(run), notes={_RESPONSES: 1})
        else:
            yield Chapter(_read_messages(messages), name, _model(run))


def _is_run(row: Json) -> bool:
    marked = "trajectory_format" in row or "mini_version" in as_object(row.get("info"))
    return marked and isinstance(row.get("messages"), list)


def _read_messages(messages: Sequence[Json]) -> list[RecordedMessage]:
    read = []
    for message in messages:
        if as_text(message.get("role")) in ("", "exit"):
            continue
        extra = as_object(message.get("extra"))
        usage = read_usage(as_object(extra.get("response")).get("usage"), at=as_seconds(extra.get("timestamp")))
        sent = {key: message[key] for key in _SENT if key in message}
        read.append(RecordedMessage(sent, usage if message["role"] == "assistant" else None))
    return read


def _model(run: Json) -> str:
    return as_text(as_object(as_object(as_object(run.get("info")).get("config")).get("model")).get("model_name"))
