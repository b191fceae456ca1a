"""SWE-agent trajectories: one JSON object with the "trajectory" of its steps and the "history" that was sent.

Its text mode answers a model's command as a user who says what was observed; its other modes call tools, the result
naming the calls it answers in a list. Several agents may have worked in turn: each has a history of its own.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from proxy.lab.replay.replay_values import Json
from proxy.lab.sessions.session_files import ParsedFile
from proxy.lab.sessions.session_history import Chapter, RecordedMessage, make_answer, make_result
from proxy.lab.sessions.shapes import (
    as_object,
    as_objects,
    as_text,
    iter_strings,
    join_text,
    make_image_link,
    simplify_content,
)

NAME = "SWE-agent"
LOOKS_FOR = '"trajectory" and "history" in one object (SWE-agent)'


def claims(values: Sequence[Any]) -> bool:
    return any(_is_run(each) or as_objects(each.get("attempts")) for each in as_objects(list(values)[:50]))


def chapters(sheet: ParsedFile) -> Iterator[Chapter]:
    rows = as_objects(list(sheet.values))
    runs = [run for row in rows for run in (as_objects(row.get("attempts")) or [row]) if _is_run(run)]
    for number, run in enumerate(runs, 1):
        history = as_objects(run["history"])
        agents = list(dict.fromkeys(as_text(each.get("agent")) for each in history if as_text(each.get("agent"))))
        for agent in agents or [""]:
            messages = [_read_message(each) for each in history if as_text(each.get("agent")) in ("", agent)]
            numbered = str(number) if len(runs) > 1 else ""
            name = " ".join(filter(None, [numbered, agent if len(agents) > 1 else ""]))
            yield Chapter(messages, name, _model(run))


def _is_run(row: Json) -> bool:
    history = as_objects(row.get("history"))
    marked = isinstance(row.get("trajectory"), list) or any("message_type" in each for each in history)
    return marked and bool(history)


def _read_message(message: Json) -> RecordedMessage:
    role = as_text(message.get("role"))
    if role == "assistant":
        thoughts = "\n\n".join(
            filter(None, (as_text(each.get("thinking")) for each in as_objects(message.get("thinking_blocks"))))
        )
        return RecordedMessage(
            make_answer(join_text(message.get("content")), as_objects(message.get("tool_calls")), thoughts)
        )
    if role == "tool":
        known_by = next(iter_strings(message.get("tool_call_ids")), as_text(message.get("tool_call_id")))
        return RecordedMessage(make_result(known_by, _parts(message.get("content"))))
    return RecordedMessage({"role": role or "user", "content": _parts(message.get("content"))})


def _parts(content: object) -> str | list[Json]:
    if isinstance(content, str):
        return content
    parts: list[Json] = []
    for part in as_objects(content):
        if part.get("type") == "image_url":
            parts.append(make_image_link(as_object(part.get("image_url")).get("url")))
        elif words := as_text(part.get("text")):
            parts.append({"type": "text", "text": words})
    return simplify_content(parts)


def _model(run: Json) -> str:
    """The model, from the configuration that some runs include."""
    config = run.get("replay_config")
    agent = as_object(as_object(config).get("agent"))
    return as_text(as_object(agent.get("model")).get("name"))
