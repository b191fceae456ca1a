"""OpenHands: the events of a conversation, each in a file of its own (`…/events/event-00000-….json`), or in one list.

Actions that came in one answer of the model carry its id and are one message. A condensation names the events it
forgets and where its summary stands instead: a chapter. (The events that OpenHands wrote before its SDK are another
format, and are not read.)
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proxy.lab.replay.values import Json, Recorded
from proxy.lab.sessions.files import Sheet
from proxy.lab.sessions.history import Chapter, Said, again, answer, call, result
from proxy.lab.sessions.shapes import (
    content,
    moment,
    named,
    picture,
    plain,
    strings,
    table,
    tables,
    text,
    usage,
    whole,
    written,
)

NAME = "OpenHands"
LOOKS_FOR = 'objects with "kind": "ActionEvent", "ObservationEvent" and the like (OpenHands events)'
_KINDS = (
    "SystemPromptEvent",
    "MessageEvent",
    "ActionEvent",
    "ObservationEvent",
    "UserRejectObservation",
    "AgentErrorEvent",
    "Condensation",
    "CondensationSummaryEvent",
    "ConversationStateUpdateEvent",
)


def claims(values: Sequence[Any]) -> bool:
    return any(each.get("kind") in _KINDS or _is_state(each) for each in tables(_events(values)[:50]))


def chapters(sheet: Sheet) -> Iterator[Chapter]:
    events = [event for event in tables(_events(sheet.values)) if event.get("kind") in _KINDS]
    states = [row for row in tables(list(sheet.values)) if _is_state(row)]
    used, model = _usage(states), next(map(_model, states), "")
    tools = next((named(event.get("tools")) for event in events if event.get("kind") == "SystemPromptEvent"), ())
    view: list[Json] = []
    carried: set[str] = set()
    name, number = "", 0
    for event in events:
        if event.get("kind") != "Condensation":
            view.append(event)
            continue
        yield Chapter(_said(view, carried, used), name, model, tools)
        view = _condensed(view, event)
        carried, number = {text(each.get("id")) for each in view}, number + 1
        name = f"after condensation {number}"
    yield Chapter(_said(view, carried, used), name, model, tools)


def _events(values: Sequence[Any]) -> list[Any]:
    """One list of them, or one after the other; a run of a benchmark has them in its "history"."""
    found: list[Any] = []
    for each in values:
        history = each.get("history") if isinstance(each, dict) else each
        found += history if isinstance(history, list) else [each]
    return found


def _condensed(view: Sequence[Json], event: Json) -> list[Json]:
    forgotten = set(strings(event.get("forgotten_event_ids")))
    kept = [each for each in view if text(each.get("id")) not in forgotten]
    offset = whole(event.get("summary_offset"))
    if summary := text(event.get("summary")):
        place = len(kept) if offset is None else min(offset, len(kept))
        stands = {"kind": "CondensationSummaryEvent", "id": text(event.get("id")), "summary": summary}
        kept.insert(place, stands)
    return kept


def _said(view: Sequence[Json], carried: set[str], used: Mapping[str, Recorded]) -> list[Said]:
    said: list[Said] = []
    batch = ""
    for event in view:
        again_here = text(event.get("id")) in carried
        response = text(event.get("llm_response_id"))
        if event.get("kind") == "ActionEvent" and response and response == batch:
            said[-1].message["tool_calls"].append(_call(event))
            continue
        batch = response if event.get("kind") == "ActionEvent" else ""
        if (message := _message(event)) is not None:
            recorded = used.get(response) or Recorded()
            answered = message["role"] == "assistant"
            told = Recorded(recorded.tokens, recorded.cached, recorded.output, moment(event.get("timestamp")))
            said.append(Said(message, told if answered else None))
            said[-1:] = again(said[-1:]) if again_here else said[-1:]
    return said


def _message(event: Json) -> Json | None:
    match event.get("kind"):
        case "ActionEvent":
            return answer(plain(event.get("thought")), [_call(event)], text(event.get("reasoning_content")))
        case "MessageEvent":
            return _spoken(event)
        case "SystemPromptEvent":
            return {"role": "system", "content": plain([table(event.get("system_prompt"))])}
        case "CondensationSummaryEvent":
            return {"role": "user", "content": text(event.get("summary"))}
        case "ObservationEvent" | "UserRejectObservation" | "AgentErrorEvent":
            return result(text(event.get("tool_call_id")), _observed(event))
    return None


def _spoken(event: Json) -> Json:
    said = table(event.get("llm_message"))
    words = _parts([*_listed(said.get("content")), *tables(event.get("extended_content"))])
    if said.get("role") == "assistant":
        return answer(words, reasoning=text(said.get("reasoning_content")))
    return {"role": "user", "content": words}


def _call(event: Json) -> Json:
    made = table(event.get("tool_call"))
    function = table(made.get("function")) or made
    name = text(function.get("name")) or text(event.get("tool_name"))
    return call(name, written(function.get("arguments")), text(event.get("tool_call_id")))


def _observed(event: Json) -> str | list[Json]:
    """What a tool says stands in its "content"; in older events of some tools in its "output" or its "error"."""
    if event.get("kind") != "ObservationEvent":
        return text(event.get("error")) or f"Action rejected: {text(event.get('rejection_reason'))}"
    observation = table(event.get("observation"))
    told = [observation.get(key) for key in ("content", "output", "error") if observation.get(key)]
    words = [part for each in told for part in _listed(each)]
    return _parts([*words, *tables(event.get("extended_content"))]) if words else written(observation)


def _listed(said: Any) -> list[Json]:  # noqa: ANN401 (any JSON)
    return [{"type": "text", "text": said}] if isinstance(said, str) else tables(said)


def _parts(said: Sequence[Json]) -> str | list[Json]:
    parts: list[Json] = []
    for part in said:
        parts += [picture(url) for url in strings(part.get("image_urls"))]
        if words := text(part.get("text")):
            parts.append({"type": "text", "text": words})
    return content(parts)


def _is_state(row: Json) -> bool:
    """What is saved beside the events."""
    return "llm" in table(row.get("agent")) and "stats" in row


def _model(state: Json) -> str:
    return text(table(table(state.get("agent")).get("llm")).get("model"))


def _usage(states: Sequence[Json]) -> dict[str, Recorded]:
    """By the id of the answer."""
    found: dict[str, Recorded] = {}
    for state in states:
        for metrics in table(table(state.get("stats")).get("usage_to_metrics")).values():
            for told in tables(table(metrics).get("token_usages")):
                if (recorded := usage(told)) is not None:
                    found[text(told.get("response_id"))] = recorded
    return found
