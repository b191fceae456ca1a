"""The model that works through the task: what it says depends on the request alone, as with a real one.

It knows how far it is by its own last words ("Step 17: …"), and how to close by the user's first. Whatever else stands
in the history may be replaced; without these two it is lost.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from replies import Reply, answer
from upstream import DONE, Request, Turn, chunk, delta, finish, says, stream

from agents.task import PLAN, Action, thought

BEFORE_THE_FIRST = -1
_STEP = re.compile(r"\bStep (\d+)\b")
_CLOSING = re.compile(r"close with the word ([a-z]+)")


@dataclass(frozen=True, slots=True)
class Habits:
    """How one agent's model speaks: which step a request asks for, how it acts, how it ends."""

    next_step: Callable[[dict[str, Any]], int | None]  # None: a side request, such as for a title
    acts: Callable[[tuple[Action, ...]], Turn]
    closes: Callable[[str], Turn]


def model(habits: Habits, window: int | None = None) -> Callable[[Request], Reply]:
    """The upstream's script; above its window it refuses, as OpenAI does."""

    def script(request: Request) -> Reply:
        if not is_chat(request):
            return answer({"error": {"message": "There is nothing here."}}, 404)
        if not fits(request, window):
            return _too_long(tokens_of(request), window)
        body = request.json
        turn = next_turn(body, habits).using(prompt=tokens_of(request))
        if not body.get("stream"):
            return answer(turn.completion(body["model"]))
        return stream(*_frames(turn, body))

    return script


def next_turn(body: dict[str, Any], habits: Habits) -> Turn:
    """The next step, or, where something beside the task is asked for, what would do as a title and as a summary."""
    step, closing = habits.next_step(body), _closing(body)
    if step is None:
        done = max(_steps_named(body, "user", "assistant"))
        return says(f"Step {done} is done. I am to close with the word {closing}.")
    if step < len(PLAN):
        return says(f"Step {step}: {thought(step)}\n") + habits.acts(PLAN[step])
    return habits.closes(closing) if closing else says("Nobody told me how to close.")


def is_chat(request: Request) -> bool:
    """A proxy may look around first, for how large a window is."""
    return request.method == "POST" and request.path == "/v1/chat/completions"


def tokens_of(request: Request) -> int:
    return len(request.body) // 4


def fits(request: Request, window: int | None) -> bool:
    """The answer that is asked for must have room too."""
    return window is None or tokens_of(request) + (request.json.get("max_tokens") or 0) <= window


def step_after_the_last(body: dict[str, Any]) -> int | None:
    """For agents whose model works on its own, with tools: whatever offers it none is a side request."""
    return _steps_named(body, "assistant")[-1] + 1 if body.get("tools") else None


def texts(body: dict[str, Any], role: str) -> Iterator[str]:
    for message in body["messages"]:
        if message["role"] == role and (content := message.get("content")):
            yield content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def _steps_named(body: dict[str, Any], *roles: str) -> list[int]:
    said = (text for role in roles for text in texts(body, role))
    return [BEFORE_THE_FIRST, *(int(number) for text in said for number in _STEP.findall(text))]


def _closing(body: dict[str, Any]) -> str | None:
    told = (_CLOSING.search(text) for role in ("user", "assistant") for text in texts(body, role))
    return next((found[1] for found in told if found), None)


def _frames(turn: Turn, body: dict[str, Any]) -> Iterator[bytes]:
    """In few events: an agent that redraws and saves at each one is slow enough with few."""
    about = {"model": body["model"]}
    yield delta(role="assistant", content=turn.text, **about)
    for at, call in enumerate(turn.message.get("tool_calls", ())):
        yield delta(tool_calls=[{"index": at, **call}], **about)
    yield finish(turn.finish_reason, **about)
    if (body.get("stream_options") or {}).get("include_usage"):
        yield chunk(choices=[], usage=turn.usage, **about)
    yield DONE


def _too_long(tokens: int, window: int) -> Reply:
    message = (
        f"This model's maximum context length is {window} tokens. However, your messages resulted in {tokens} tokens. "
        "Please reduce the length of the messages."
    )
    about = {"type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}
    return answer({"error": {"message": message, **about}}, 400)
