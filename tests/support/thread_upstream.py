"""An upstream of Messages that holds threads, as Anthropic does: it gets parts of a history and answers all of it."""

import json
from dataclasses import dataclass, field

from tests.support.messages_api import answer_events, answer_text
from tests.support.scripted_upstream import answer, stream


@dataclass
class ThreadUpstream:
    """`answer_turn(history)`: the text and the calls with which the model answers a whole history."""

    answer_turn: object
    held: dict = field(default_factory=dict)
    """The whole history after each answer, by the answer's id."""

    def __call__(self, request):
        if request.method != "POST":
            return answer({}, 404)
        value = request.json
        thread, messages = value.get("thread"), value["messages"]
        if thread is not None and thread["type"] == "continue":
            if thread["previous_message_id"] not in self.held:
                return refuse(404, "not_found_error", "thread_not_found")
            if "system" in value or "tools" in value:
                return refuse(400, "invalid_request_error", "thread_fixed_fields")
            messages = [*self.held[thread["previous_message_id"]], *messages]
        marks = request.body.count(b'"cache_control"')
        if thread is not None and marks > 3:
            return refuse(400, "invalid_request_error", "thread_unsupported_request")
        text, calls = self.answer_turn(messages)
        tokens = len(json.dumps(messages)) // 4
        whole = answer_text(text, tokens, calls)
        if thread is not None:
            self.held[whole["id"]] = [*messages, {"role": "assistant", "content": whole["content"]}]
        return stream(*answer_events(text, tokens, calls)) if value.get("stream") else answer(whole)


def refuse(status, type_, code):
    error = {"type": type_, "message": f"thread: {code}", "details": {"error_code": code}}
    return answer({"type": "error", "error": error, "request_id": "req_1"}, status)
