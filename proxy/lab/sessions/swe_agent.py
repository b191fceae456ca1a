"""SWE-agent trajectories: one JSON object with the "trajectory" of its steps and the "history" that was sent.

Its text mode answers a model's command as a user who says what was observed; its other modes call tools, the result
naming the calls it answers in a list. Several agents may have worked in turn: each has a history of its own.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from proxy.lab.replay.values import Json
from proxy.lab.sessions.files import Sheet
from proxy.lab.sessions.history import Chapter, Said, answer, result
from proxy.lab.sessions.shapes import content, picture, plain, strings, table, tables, text

NAME = "SWE-agent"
LOOKS_FOR = '"trajectory" and "history" in one object (SWE-agent)'


def claims(values: Sequence[Any]) -> bool:
    return any(_is_run(each) or tables(each.get("attempts")) for each in tables(list(values)[:50]))


def chapters(sheet: Sheet) -> Iterator[Chapter]:
    rows = tables(list(sheet.values))
    runs = [run for row in rows for run in (tables(row.get("attempts")) or [row]) if _is_run(run)]
    for number, run in enumerate(runs, 1):
        history = tables(run["history"])
        agents = list(dict.fromkeys(text(each.get("agent")) for each in history if text(each.get("agent"))))
        for agent in agents or [""]:
            said = [_said(each) for each in history if text(each.get("agent")) in ("", agent)]
            numbered = str(number) if len(runs) > 1 else ""
            name = " ".join(filter(None, [numbered, agent if len(agents) > 1 else ""]))
            yield Chapter(said, name, _model(run))


def _is_run(row: Json) -> bool:
    history = tables(row.get("history"))
    marked = isinstance(row.get("trajectory"), list) or any("message_type" in each for each in history)
    return marked and bool(history)


def _said(message: Json) -> Said:
    role = text(message.get("role"))
    if role == "assistant":
        thoughts = "\n\n".join(
            filter(None, (text(each.get("thinking")) for each in tables(message.get("thinking_blocks"))))
        )
        return Said(answer(plain(message.get("content")), tables(message.get("tool_calls")), thoughts))
    if role == "tool":
        known_by = next(strings(message.get("tool_call_ids")), text(message.get("tool_call_id")))
        return Said(result(known_by, _parts(message.get("content"))))
    return Said({"role": role or "user", "content": _parts(message.get("content"))})


def _parts(said: object) -> str | list[Json]:
    if isinstance(said, str):
        return said
    parts: list[Json] = []
    for part in tables(said):
        if part.get("type") == "image_url":
            parts.append(picture(table(part.get("image_url")).get("url")))
        elif words := text(part.get("text")):
            parts.append({"type": "text", "text": words})
    return content(parts)


def _model(run: Json) -> str:
    """Where the configuration of the run stands beside it."""
    config = run.get("replay_config")
    agent = table(table(config).get("agent"))
    return text(table(agent.get("model")).get("name"))
