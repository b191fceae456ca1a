"""The model that works through the task: what it says depends on the request alone, as with a real one.

It knows how far it is by its own last words ("Step 17: …"), and how to close by the user's first. Whatever else is
in the history may be replaced; without these two it is lost. Asked for a summary, it says just these two.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from proxy.wire.formats import REQUEST_FORMATS
from proxy.wire.http_head import ApiPath
from tests.end_to_end.agents.task import PLAN, Action, thought_of
from tests.support import apis
from tests.support.scripted_upstream import Request, Turn, stream, text_turn
from tests.support.upstream_replies import Reply, answer

BEFORE_THE_FIRST = -1
APIS = {f"/v1{api.path}": api for api in apis.APIS}
_STEP = re.compile(r"\bStep (\d+)\b")
_CLOSING = re.compile(r"close with the word ([a-z]+)")
_HEADING = re.compile(r"^#+ .+$", re.MULTILINE)
_FENCE = re.compile(r"(```)(\w*)")
_SUMMARY = re.compile(r"(?<!not a )\bsummar", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Habits:
    """How one agent's model speaks: which step a request asks for, how it acts, how it ends."""

    next_step: Callable[[dict[str, Any]], int | None]  # None: a side request, such as for a title
    act: Callable[[Action], Turn]
    closes: Callable[[str], Turn]


def model(habits: Habits, window: int | None = None) -> Callable[[Request], Reply]:
    """The upstream's script; above its window it refuses, as the API's provider does."""

    def speak(body: dict[str, Any]) -> Turn:
        turn = next_turn(body, habits)
        return turn.numbered(f"{step_of(body, habits):03}") if turn.tool_calls else turn

    answer_fitting = answering(speak)

    def script(request: Request) -> Reply:
        if is_chat(request) and not fits(request, window):
            streams = bool(request.json.get("stream"))
            return APIS[request.path].refuse_long(tokens_of(request), window, room_wanted(request), streams=streams)
        return answer_fitting(request)

    return script


def answering(speak: Callable[[dict[str, Any]], Turn]) -> Callable[[Request], Reply]:
    """An upstream's script: *speak* says a turn to each chat request."""

    def script(request: Request) -> Reply:
        if not is_chat(request):
            return answer({"error": {"message": "There is nothing here."}}, 404)
        return render(request, speak(body_of(request)).using(prompt=tokens_of(request)))

    return script


def render(request: Request, turn: Turn) -> Reply:
    """The turn in the API that was asked, streamed or whole."""
    body, api = body_of(request), APIS[request.path]
    if api is not apis.CHAT:
        said = (turn.text or "", turn.prompt_tokens, turn.message.get("tool_calls", ()), body["model"])
        return stream(*api.events(*said)) if body.get("stream") else answer(api.whole(*said))
    if not body.get("stream"):
        return answer(turn.completion(body["model"]))
    wants_usage = bool((body.get("stream_options") or {}).get("include_usage"))
    return stream(*turn.frames(usage=wants_usage, model=body["model"], split=_pieces))


def next_turn(body: dict[str, Any], habits: Habits) -> Turn:
    """The next step, or, where something beside the task is asked for, what would do as a title and as a summary."""
    step, closing = step_of(body, habits), _closing(body)
    if step is None:
        return text_turn(summarize(body, closing))
    if step < len(PLAN):
        return sum(map(habits.act, PLAN[step]), start=text_turn(f"Step {step}: {thought_of(step)}\n"))
    return habits.closes(closing) if closing else text_turn("Nobody told me how to close.")


def step_of(body: dict[str, Any], habits: Habits) -> int | None:
    """Which step is asked for; None: something beside the task."""
    return None if _is_for_a_summary(body["messages"]) else habits.next_step(body)


def is_chat(request: Request) -> bool:
    """A proxy may look around first, for how large a window is."""
    return request.method == "POST" and request.path in APIS


def body_of(request: Request) -> dict[str, Any]:
    """The request as a chat request, whichever API it is for."""
    if APIS[request.path] is apis.CHAT:
        return request.json
    read = REQUEST_FORMATS[ApiPath(request.path.removeprefix("/v1"))].parse(request.body)
    messages = [json.loads(message.raw) for message in read.messages]
    # A message of Claude Code may only set the effort of what follows.
    said = [each for each in messages if each.get("content") or each.get("tool_calls") or each["role"] == "tool"]
    return {**request.json, "messages": said}


def tokens_of(request: Request) -> int:
    return len(request.body) // 4


def room_wanted(request: Request) -> int:
    """The tokens of answer that must fit beside the prompt: Anthropic's API has shortened the answer instead."""
    wanted = request.json if APIS[request.path] is apis.CHAT else {}
    return wanted.get("max_completion_tokens") or wanted.get("max_tokens") or 0


def fits(request: Request, window: int | None) -> bool:
    """The answer that is asked for must have room too."""
    return window is None or tokens_of(request) + room_wanted(request) <= window


def step_after_the_last(body: dict[str, Any]) -> int | None:
    """For agents whose model works on its own, with tools: whatever offers it none is a side request."""
    return last_step(body) + 1 if body.get("tools") else None


def last_step(body: dict[str, Any]) -> int:
    """The step that the model itself, or a summary of what it said, named last."""
    return _steps_named(body)[-1]


def texts(body: dict[str, Any], *roles: str) -> Iterator[str]:
    return (text for message in body["messages"] if message["role"] in roles and (text := _text(message)))


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def _steps_named(body: dict[str, Any]) -> list[int]:
    words = texts(body, "user", "assistant")
    return [BEFORE_THE_FIRST, *(int(number) for text in words for number in _STEP.findall(text))]


def _closing(body: dict[str, Any]) -> str | None:
    values = map(_CLOSING.search, texts(body, "user", "assistant"))
    return next((found[1] for found in values if found), None)


def _is_for_a_summary(messages: list[dict[str, Any]]) -> bool:
    """A request for a summary: an agent's own compaction, or a proxy that puts its question below the conversation."""
    return messages[-1]["role"] == "user" and bool(_SUMMARY.search(_text(messages[-1])))


def summarize(body: dict[str, Any], closing: str | None) -> str:
    """Under the headings that were asked for, where this is what was asked for."""
    known = f"Step {max(_steps_named(body))} is done. I am to close with the word {closing}."
    wanted = _HEADING.findall(_text(body["messages"][-1])) if _is_for_a_summary(body["messages"]) else ()
    return "\n\n".join(f"{heading}\n{known}" for heading in wanted) or known


def _pieces(text: str) -> tuple[str, ...]:
    """In few events, for an agent that redraws and saves at each one.

    A fence and its language come alone, as from a real model: Open Interpreter looks for them piece by piece.
    """
    return tuple(_FENCE.split(text)) if _FENCE.search(text) else (text[: len(text) // 2], text[len(text) // 2 :])
