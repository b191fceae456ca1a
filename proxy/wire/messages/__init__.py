"""Anthropic Messages: what this API does in another way than chat completions.

requests   bytes to a `Request` of chat messages and back, and requests for summaries
answers    an answer read as a chat answer, written by the proxy, and put together from several rounds
"""

from proxy.wire.messages.answers import (
    RECALL_TOOL,
    continue_request,
    may_recall,
    read_body,
    read_event,
    render_answer,
    start_rounds,
)
from proxy.wire.messages.requests import (
    NAME,
    add_marks,
    answer_within,
    disable_streaming,
    find_bounds,
    find_first_message,
    offer_compact,
    parse,
    question,
    render,
    request_usage,
    why_relayed,
)

__all__ = [
    "NAME",
    "RECALL_TOOL",
    "add_marks",
    "answer_within",
    "continue_request",
    "disable_streaming",
    "find_bounds",
    "find_first_message",
    "may_recall",
    "offer_compact",
    "parse",
    "question",
    "read_body",
    "read_event",
    "render",
    "render_answer",
    "request_usage",
    "start_rounds",
    "why_relayed",
]
