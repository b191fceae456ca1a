"""OpenHands before its SDK: trajectories of numbered actions and observations, as one list or in a run's "history".

An action that a model called for carries the whole answer it came from (`tool_call_metadata`); several may share it.
Older agents wrote their commands into the text: there an action is taken for a call, and what names it as its cause
for the result. A condensation forgets events by their numbers: a chapter.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from proxy.lab.replay.values import Json
from proxy.lab.sessions.files import Sheet
from proxy.lab.sessions.history import Chapter, Said, again, answer, call, result
from proxy.lab.sessions.shapes import moment, named, plain, table, tables, text, usage, whole, written

NAME = "OpenHands actions"
LOOKS_FOR = 'objects with "action" and "args", or "observation" and "cause" (OpenHands trajectories)'
_SILENT = ("change_agent_state", "recall", "null", "condensation_request", "start", "loop_recovery")


def claims(values: Sequence[Any]) -> bool:
    return any(_is_event(each) for history in _histories(values) for each in history[:50])


def chapters(sheet: Sheet) -> Iterator[Chapter]:
    histories = [history for history in _histories(sheet.values) if any(map(_is_event, history))]
    for number, history in enumerate(histories, 1):
        name = str(number) if len(histories) > 1 else ""
        yield from _run([event for event in history if _is_event(event)], name)


def _histories(values: Sequence[Any]) -> list[list[Json]]:
    """The list of a file, the "history" of each row of a benchmark, or loose events."""
    loose = [event for event in tables(list(values)) if _is_event(event)]
    found = [loose] if loose else []
    for each in values:
        history = each.get("history") or each.get("trajectory") if isinstance(each, dict) else each
        if isinstance(history, list):
            pairs = [event for pair in history if isinstance(pair, list) for event in tables(pair)]
            found.append(pairs or tables(history))
    return found


def _is_event(row: Json) -> bool:
    acts = isinstance(row.get("action"), str) and isinstance(row.get("args"), dict)
    return acts or (isinstance(row.get("observation"), str) and "content" in row and "extras" in row)


def _run(events: Sequence[Json], name: str) -> Iterator[Chapter]:
    tools = next((named(_args(event).get("tools")) for event in events if event.get("action") == "system"), ())
    view: list[Json] = []
    carried, number, chapter = 0, 0, name
    for event in events:
        if event.get("action") != "condensation":
            view.append(event)
            continue
        yield Chapter(_said(view, carried), chapter, tools=tools)
        view = _condensed(view, _args(event))
        carried, number = len(view), number + 1
        chapter = f"{name} after condensation {number}".strip()
    yield Chapter(_said(view, carried), chapter, tools=tools)


def _condensed(view: Sequence[Json], args: Json) -> list[Json]:
    kept = [event for event in view if not _forgotten(whole(event.get("id")), args)]
    if summary := text(args.get("summary")):
        place = min(whole(args.get("summary_offset")) or 0, len(kept))
        kept.insert(place, {"source": "user", "action": "message", "args": {"content": summary}})
    return kept


def _forgotten(number: int | None, args: Json) -> bool:
    """By a list of numbers, or by the first and the last of them."""
    listed = args.get("forgotten_event_ids")
    first, last = whole(args.get("forgotten_events_start_id")), whole(args.get("forgotten_events_end_id"))
    within = None not in (number, first, last) and first <= number <= last  # type: ignore[operator]
    return within or (number is not None and isinstance(listed, list) and number in listed)


def _said(view: Sequence[Json], carried: int) -> list[Said]:
    said: list[Said] = []
    answers: set[str] = set()
    for place, event in enumerate(view):
        fresh = list(_messages(event, answers))
        said += again(fresh) if place < carried else fresh
    return said


def _messages(event: Json, answers: set[str]) -> Iterator[Said]:
    """What an event says to the model or the model by it; `answers` are those that were told already."""
    acted, args = text(event.get("action")), _args(event)
    response = table(table(event.get("tool_call_metadata")).get("model_response"))
    at = moment(event.get("timestamp"))
    if text(event.get("observation")):
        yield from _observed(event)
    elif acted == "system":
        yield Said({"role": "system", "content": text(args.get("content"))})
    elif acted == "message" and event.get("source") == "user":
        yield Said({"role": "user", "content": text(args.get("content"))})
    elif acted in _SILENT or event.get("source") != "agent":
        return
    elif response:
        if text(response.get("id")) not in answers:
            answers.add(text(response.get("id")))
            yield Said(_answer(response), usage(response.get("usage"), at=at))
    else:
        yield Said(_spelled(event), usage(None, at=at))


def _answer(response: Json) -> Json:
    message = table((tables(response.get("choices")) or [{}])[0].get("message"))
    calls = [call(text(_function(each).get("name")), written(_function(each).get("arguments")), text(each.get("id")))
             for each in tables(message.get("tool_calls"))]  # fmt: skip
    return answer(plain(message.get("content")), calls, text(message.get("reasoning_content")))


def _function(made: Json) -> Json:
    return table(made.get("function"))


def _spelled(event: Json) -> Json:
    """An action without the answer it came from."""
    acted, args = text(event.get("action")), _args(event)
    if acted == "message":
        return answer(text(args.get("content")))
    words = text(args.get("thought"))
    rest = {key: value for key, value in args.items() if key != "thought"}
    return answer(words, [call(acted, written(rest), _number(event.get("id")))])


def _observed(event: Json) -> Iterator[Said]:
    if text(event.get("observation")) in (*_SILENT, "agent_state_changed"):
        return
    known_by = text(table(event.get("tool_call_metadata")).get("tool_call_id")) or _number(event.get("cause"))
    if known_by:
        yield Said(result(known_by, text(event.get("content"))))


def _number(named_by: object) -> str:
    return f"event {named_by}" if isinstance(named_by, int) else ""


def _args(event: Json) -> Json:
    return table(event.get("args"))
