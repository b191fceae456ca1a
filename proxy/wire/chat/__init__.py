"""OpenAI chat completions.

requests   bytes to a `Request` and back, and the weight of a message: its text for the model, its media in tokens
refusals   the meaning of an error: too long, too much output, a rate limit
answers    an answer written by the proxy, or put together from several rounds
"""

from proxy.wire.chat.answers import (
    RECALL_TOOL,
    continue_request,
    may_recall,
    read_body,
    read_event,
    render_answer,
    start_rounds,
)
from proxy.wire.chat.requests import (
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
