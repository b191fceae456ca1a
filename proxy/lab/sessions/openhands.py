"""OpenHands: the events of a conversation, each in a file of its own (`…/events/event-00000-….json`), or in one list.

Actions that came in one answer of the model carry its id and are one message. A condensation names the events it
forgets and puts its summary instead: a chapter. (The events that OpenHands wrote before its SDK are another
format, and are not read.)
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proxy.lab.replay.replay_values import Json, RecordedUsage
from proxy.lab.sessions.session_files import ParsedFile
from proxy.lab.sessions.session_history import (
    Chapter,
    RecordedMessage,
    make_answer,
    make_call,
    make_result,
    mark_repeated,
)
from proxy.lab.sessions.shapes import (
    as_arguments,
    as_count,
    as_object,
    as_objects,
    as_seconds,
    as_text,
    chat_tools,
    iter_strings,
    join_text,
    make_image_link,
    read_usage,
    simplify_content,
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
    return any(each.get("kind") in _KINDS or _is_state(each) for each in as_objects(_events(values)[:50]))


def chapters(sheet: ParsedFile) -> Iterator[Chapter]:
    events = [event for event in as_objects(_events(sheet.values)) if event.get("kind") in _KINDS]
    states = [row for row in as_objects(list(sheet.values)) if _is_state(row)]
    used, model = _usage(states), next(map(_model, states), "")
    tools = next((chat_tools(event.get("tools")) for event in events if event.get("kind") == "SystemPromptEvent"), ())
    view: list[Json] = []
    carried: set[str] = set()
    name, number = "", 0
    for event in events:
        if event.get("kind") != "Condensation":
            view.append(event)
            continue
        yield Chapter(_read_events(view, carried, used), name, model, tools)
        view = _apply_condensation(view, event)
        carried, number = {as_text(each.get("id")) for each in view}, number + 1
        name = f"after condensation {number}"
    yield Chapter(_read_events(view, carried, used), name, model, tools)


def _events(values: Sequence[Any]) -> list[Any]:
    """One list of them, or one after the other; a run of a benchmark has them in its "history"."""
    found: list[Any] = []
    for value in values:
        history = value.get("history") if isinstance(value, dict) else value
        found += history if isinstance(history, list) else [value]
    return found


def _apply_condensation(view: Sequence[Json], event: Json) -> list[Json]:
    forgotten = set(iter_strings(event.get("forgotten_event_ids")))
    kept = [each for each in view if as_text(each.get("id")) not in forgotten]
    offset = as_count(event.get("summary_offset"))
    if summary := as_text(event.get("summary")):
        place = len(kept) if offset is None else min(offset, len(kept))
        stands = {"kind": "CondensationSummaryEvent", "id": as_text(event.get("id")), "summary": summary}
        kept.insert(place, stands)
    return kept


def _read_events(view: Sequence[Json], carried: set[str], used: Mapping[str, RecordedUsage]) -> list[RecordedMessage]:
    messages: list[RecordedMessage] = []
    batch = ""
    for event in view:
        again_here = as_text(event.get("id")) in carried
        response = as_text(event.get("llm_response_id"))
        if event.get("kind") == "ActionEvent" and response and response == batch:
            messages[-1].message["tool_calls"].append(_call(event))
            continue
        batch = response if event.get("kind") == "ActionEvent" else ""
        if (message := _message(event)) is not None:
            recorded = used.get(response) or RecordedUsage()
            answered = message["role"] == "assistant"
            usage = RecordedUsage(recorded.tokens, recorded.cached, recorded.output, as_seconds(event.get("timestamp")))
            messages.append(RecordedMessage(message, usage if answered else None))
            messages[-1:] = mark_repeated(messages[-1:]) if again_here else messages[-1:]
    return messages


def _message(event: Json) -> Json | None:
    match event.get("kind"):
        case "ActionEvent":
            return make_answer(join_text(event.get("thought")), [_call(event)], as_text(event.get("reasoning_content")))
        case "MessageEvent":
            return _read_user_event(event)
        case "SystemPromptEvent":
            return {"role": "system", "content": join_text([as_object(event.get("system_prompt"))])}
        case "CondensationSummaryEvent":
            return {"role": "user", "content": as_text(event.get("summary"))}
        case "ObservationEvent" | "UserRejectObservation" | "AgentErrorEvent":
            return make_result(as_text(event.get("tool_call_id")), _read_output(event))
    return None


def _read_user_event(event: Json) -> Json:
    message = as_object(event.get("llm_message"))
    words = _parts([*_as_parts(message.get("content")), *as_objects(event.get("extended_content"))])
    if message.get("role") == "assistant":
        return make_answer(words, reasoning=as_text(message.get("reasoning_content")))
    return {"role": "user", "content": words}


def _call(event: Json) -> Json:
    made = as_object(event.get("tool_call"))
    function = as_object(made.get("function")) or made
    name = as_text(function.get("name")) or as_text(event.get("tool_name"))
    return make_call(name, as_arguments(function.get("arguments")), as_text(event.get("tool_call_id")))


def _read_output(event: Json) -> str | list[Json]:
    """The result of a tool: its "content"; in older events of some tools its "output" or "error"."""
    if event.get("kind") != "ObservationEvent":
        return as_text(event.get("error")) or f"Action rejected: {as_text(event.get('rejection_reason'))}"
    observation = as_object(event.get("observation"))
    outputs = [observation.get(key) for key in ("content", "output", "error") if observation.get(key)]
    words = [part for output in outputs for part in _as_parts(output)]
    return _parts([*words, *as_objects(event.get("extended_content"))]) if words else as_arguments(observation)


def _as_parts(content: Any) -> list[Json]:  # noqa: ANN401 (any JSON)
    return [{"type": "text", "text": content}] if isinstance(content, str) else as_objects(content)


def _parts(content: Sequence[Json]) -> str | list[Json]:
    parts: list[Json] = []
    for part in content:
        parts += [make_image_link(url) for url in iter_strings(part.get("image_urls"))]
        if words := as_text(part.get("text")):
            parts.append({"type": "text", "text": words})
    return simplify_content(parts)


def _is_state(row: Json) -> bool:
    """True for the state that is saved beside the events."""
    return "llm" in as_object(row.get("agent")) and "stats" in row


def _model(state: Json) -> str:
    return as_text(as_object(as_object(state.get("agent")).get("llm")).get("model"))


def _usage(states: Sequence[Json]) -> dict[str, RecordedUsage]:
    """By the id of the answer."""
    found: dict[str, RecordedUsage] = {}
    for state in states:
        for metrics in as_object(as_object(state.get("stats")).get("usage_to_metrics")).values():
            for usage in as_objects(as_object(metrics).get("token_usages")):
                if (recorded := read_usage(usage)) is not None:
                    found[as_text(usage.get("response_id"))] = recorded
    return found
