"""mini-swe-agent trajectories: "messages" as they were sent, each with an "extra" that was not.

With a model of the Responses API an answer is the whole response object, its items in "output", and the results are
items as well. A message of the role "exit" tells how the run ended and was never sent.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from proxy.lab.replay.values import Json
from proxy.lab.sessions.files import Sheet
from proxy.lab.sessions.history import Chapter, Said
from proxy.lab.sessions.responses import RESULTS, Items
from proxy.lab.sessions.shapes import moment, table, tables, text, usage

NAME = "mini-swe-agent"
LOOKS_FOR = '"messages" and a "trajectory_format" or "info" with "mini_version" (mini-swe-agent)'
_SENT = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content")


def claims(values: Sequence[Any]) -> bool:
    return any(_is_run(each) for each in tables(list(values)[:50]))


def chapters(sheet: Sheet) -> Iterator[Chapter]:
    runs = [row for row in tables(list(sheet.values)) if _is_run(row)]
    for number, run in enumerate(runs, 1):
        yield Chapter(_said(tables(run["messages"])), str(number) if len(runs) > 1 else "", _model(run))


def _is_run(row: Json) -> bool:
    marked = "trajectory_format" in row or "mini_version" in table(row.get("info"))
    return marked and isinstance(row.get("messages"), list)


def _said(messages: Sequence[Json]) -> list[Said]:
    items = Items()
    for message in messages:
        extra = table(message.get("extra"))
        response = table(extra.get("response"))
        if message.get("object") == "response":
            for item in tables(message.get("output")):
                items.add(item)
            items.answered(usage(message.get("usage"), at=moment(extra.get("timestamp"))))
        elif message.get("type") == "message" or message.get("type") in RESULTS:
            items.add(message)
        elif text(message.get("role")) not in ("", "exit"):
            answered = message["role"] == "assistant"
            told = usage(response.get("usage"), at=moment(extra.get("timestamp"))) if answered else None
            sent = {key: message[key] for key in _SENT if key in message}
            items.said.append(Said(sent, told))
    return items.said


def _model(run: Json) -> str:
    return text(table(table(table(run.get("info")).get("config")).get("model")).get("model_name"))
