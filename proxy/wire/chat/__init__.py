"""OpenAI chat completions.

requests   bytes to a `Request` and back, and the weight of a message: its text for the model, its media in tokens
refusals   the meaning of an error: too long, too much output, a rate limit
answers    an answer joined from a stream, its usage read and changed, and answers of the proxy itself
recall     the tool by which a model reads earlier messages again, and answers in several rounds
"""

from proxy.wire.chat.answers import read_body, read_event, render_answer, request_usage
from proxy.wire.chat.recall import RECALL_TOOL, continue_request, may_recall, start_rounds
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
