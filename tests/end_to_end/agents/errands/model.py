"""The scripted model of the errands: it goes on from the step that it named last.

Its sub-agents report after one look.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.end_to_end.agents.agent import Agent
from tests.end_to_end.agents.errands.plan import DAY, STEPS, WORD, Await, Delegate, Run, Step, thought_of
from tests.end_to_end.agents.model import answering, body_of, is_chat, last_step, summarize, texts
from tests.support.completions import Call, Turn, text_turn
from tests.support.scripted_upstream import Request
from tests.support.upstream_replies import Reply

HANDOVER = "handover of this conversation"
"""The proxy asks for its summaries with these words."""
_AGENT_ID = re.compile(r'"agent_id"\s*:\s*"([^"]+)"')


@dataclass(frozen=True, slots=True)
class Operator:
    """An agent, and how it is told to act: tools by their names, as if a model had chosen them."""

    agent: Agent
    act: Callable[[Step], Turn]
    await_with: Callable[[str], Turn] | None = None
    """Fetches the report of the sub-agent of this id, where that takes a call."""
    closes: Callable[[str], Turn] = text_turn
    window: int = 128_000


def errand_model(operator: Operator) -> Callable[[Request], Reply]:
    def speak(body: dict[str, Any]) -> Turn:
        step = last_step(body) + 1 if is_work(body) else None
        turn = next_turn(body, step, operator, delegate_of(body))
        mark = f"{len(body['messages']):03}x" if step is None else f"{step:03}"
        return replace(turn, tool_calls=tuple(_find_tool(call, body) for call in turn.tool_calls)).numbered(mark)

    return answering(speak)


def next_turn(body: Mapping[str, Any], step: int | None, operator: Operator, delegate: Delegate | None) -> Turn:
    if delegate is not None:
        has_looked = any(message["role"] == "tool" for message in body["messages"])
        return text_turn(delegate.report) if has_looked else operator.act(Run(delegate.command))
    if step is None:
        return text_turn(summarize(dict(body), WORD))
    if step >= STEPS:
        return operator.closes(f"All errands are done.\n{WORD}")
    said = text_turn(f"Step {step}: {thought_of(step)}\n")
    action = DAY.steps[step]
    if isinstance(action, Await) and operator.await_with is not None:
        ids = [found for text in texts(dict(body), "tool") for found in _AGENT_ID.findall(text)]
        return said + operator.await_with(ids[-1])
    return said + operator.act(action)


def delegate_of(body: Mapping[str, Any]) -> Delegate | None:
    """The errand of the sub-agent whose request this is: its user's words are the brief, and no step was named."""
    said = "\n".join(texts(dict(body), "user"))
    delegates = [step for step in DAY.steps if isinstance(step, Delegate) and step.brief in said]
    return delegates[0] if delegates and f"close with the word {WORD}" not in said else None


def is_work(body: Mapping[str, Any]) -> bool:
    """Whether a request asks for the next step: no title, no handover to those who go on, no sub-agent's."""
    asks_for_handover = any(HANDOVER in text for text in [*texts(dict(body), "user")][-1:])
    return bool(body.get("tools")) and not asks_for_handover and delegate_of(body) is None


def main_requests(requests: Iterable[Request]) -> list[Request]:
    """Those of the conversation itself: not of its sub-agents, no titles, no summaries."""
    asked = [request for request in requests if request.arrived and is_chat(request)]
    return [request for request in asked if is_work(body_of(request))]


def _find_tool(call: Call, body: Mapping[str, Any]) -> Call:
    """The call as this client takes it: the tools of a server or a group have names of more than one part."""
    for tool in body["tools"]:
        if tool.get("type") == "namespace" and call.name in [each["name"] for each in tool["tools"]]:
            return replace(call, namespace=tool["name"])
        name = tool.get("name") or tool.get("function", {}).get("name") or ""
        if name.endswith(f"__{call.name}"):
            return replace(call, name=name)
    return call
