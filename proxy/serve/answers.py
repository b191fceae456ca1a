"""Answers of the proxy itself: to `/compact` as the last message, and of the compaction endpoint."""

import json
import time
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Any

from msgspec import Struct

from proxy.decide.conversation import Decision
from proxy.decide.planning import Plan
from proxy.foundation.errors import BadRequest
from proxy.history.request import Request
from proxy.history.splice import remove_members
from proxy.wire.api_format import AnswerFormat, RequestFormat
from proxy.wire.formats import REQUEST_FORMATS, find_api
from proxy.wire.http_head import ApiPath, Headers
from proxy.wire.json_body import find_raw, find_values

JSON: Headers = (("content-type", "application/json"),)


class LocalAnswer(Struct, frozen=True):
    headers: Headers
    content: bytes
    status: int = HTTPStatus.OK

    @property
    def reason(self) -> str:
        return HTTPStatus(self.status).phrase

    async def chunks(self) -> AsyncGenerator[bytes]:
        yield self.content


def without_command(request: Request, requests: RequestFormat) -> Request:
    history = requests.parse(requests.render(request, request.messages[:-1]))
    if history is None:
        raise BadRequest("there is nothing before /compact that could be compacted")
    return history


def describe_compaction(decision: Decision, request: Request, focus: str, answers: AnswerFormat) -> LocalAnswer:
    block = _plan(decision).block
    text = report_compaction(decision, focus)
    if block is not None and block.summary is not None:
        text += f"\n\n{block.summary.text}"
    answer = answers.render_answer(text, request.model, int(time.time()), stream=request.stream)
    headers = JSON
    if request.stream:
        headers = ("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")
    return LocalAnswer(headers, answer)


def report_compaction(decision: Decision, focus: str) -> str:
    plan = _plan(decision)
    if decision.reason == "originals-unwritable":
        return "Nothing was compacted: the originals could not be saved."
    text = f"Nothing to compact: of {plan.tokens_before:,} tokens nothing more can go."
    if plan.reason == "no-summary":
        text = "Nothing was compacted."
    if plan.action != "none":
        saved = [(report.step, report.saved) for report in plan.reports if report.saved]
        # Both figures are of the client's history, and the steps found it behind the block of an earlier compaction.
        saved_before = plan.tokens_before - plan.tokens_after - sum(tokens for _, tokens in saved)
        if saved_before > 0:
            saved.insert(0, ("shortened before", saved_before))
        steps = ", ".join(f"{name} {-tokens:+,}" for name, tokens in saved)
        text = f"Compacted: {plan.tokens_before:,} -> {plan.tokens_after:,} tokens{f' ({steps})' if steps else ''}."
    if plan.reason == "no-summary":
        text += "\nNo summary was written: the model could not be asked, or gave no usable answer. Try again later."
    if decision.reason == "focus-unused":
        text += f"\nThe focus ({focus}) was not used: it needs a summary, and none was made."
    return text


def read_compact_request(body: bytes) -> tuple[Request, ApiPath, str]:
    """Return the request, the path of its API, and the focus, a member that no API has."""
    try:
        value = json.loads(body.decode())  # json.loads would read bytes as UTF-16, too
    except (ValueError, RecursionError):
        raise BadRequest("the body is not JSON: send {model, messages, tools?, focus?}") from None
    request, path = None, ApiPath.CHAT
    if isinstance(value, dict):
        path = find_api(value)
        request = REQUEST_FORMATS[path].parse(remove_members(body, {"focus"}))
    if request is None:
        raise BadRequest(
            "the body needs `messages` (or `input` of the Responses API), a list of at least one message: "
            "{model, messages, tools?, focus?}"
        )
    focus = value.get("focus", "")
    if not isinstance(focus, str):
        raise BadRequest("`focus` is a text: what should be remembered above all")
    return request, path, focus


def render_compacted(decision: Decision, request: Request, requests: RequestFormat) -> LocalAnswer:
    """Return an answer with the compacted messages, as this API names their list, and a report."""
    plan = _plan(decision)
    block = plan.block
    report: dict[str, Any] = {
        "action": plan.action,
        "reason": plan.reason or None,
        "policy": decision.policy,
        "tokens_before": plan.tokens_before,
        "tokens_after": plan.tokens_after,
        "steps": [{"step": step.step, "messages": step.messages, "saved": step.saved} for step in plan.reports],
        "summary": block.summary.text if block is not None and block.summary is not None else None,
    }
    rendered = requests.render(request, plan.view, plan.tools)
    messages = find_raw(rendered, find_values(rendered), requests.LIST)
    # A model may write half a surrogate pair.
    report_json = json.dumps(report, ensure_ascii=False).encode("utf-8", "replace")
    content = b'{"%b": %b, "report": %b}' % (requests.LIST.encode(), messages, report_json)
    return LocalAnswer(JSON, content)


def _plan(decision: Decision) -> Plan:
    if decision.plan is None:
        raise ValueError("compaction that was asked for always has a plan")
    return decision.plan
