"""Answers of chat completions, the form that all answers are read as.

<https://platform.openai.com/docs/api-reference/chat-streaming>
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proxy.history import splice
from proxy.recall.tool import OwnTool
from proxy.wire.answer_format import AnswerFormat
from proxy.wire.chat.chat_rounds import SIGNED_MEMBER, ChatRounds
from proxy.wire.lenient import write_json
from proxy.wire.outline import find_values
from proxy.wire.rounds import Round, Rounds, extend_request
from proxy.wire.sse import write_event

_NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


class ChatAnswers(AnswerFormat):
    """Answers of chat completions."""

    @staticmethod
    def define_tool(tool: OwnTool) -> bytes:
        function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        return json.dumps({"type": "function", "function": function}).encode()

    def read_event(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        return event

    def read_body(self, body: bytes) -> bytes:
        return body

    def render_answer(self, text: str, model: str, created: int, /, *, stream: bool) -> bytes:
        answer: dict[str, Any] = {"id": "chatcmpl-compaction-proxy", "created": created, "model": model}
        message = {"role": "assistant", "content": text}
        if not stream:
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return write_json({**answer, "object": "chat.completion", "choices": [choice], "usage": _NO_USAGE})
        answer["object"] = "chat.completion.chunk"
        choices: list[dict[str, Any]] = [
            {"index": 0, "delta": message, "finish_reason": None},
            {"index": 0, "delta": {}, "finish_reason": "stop"},
        ]
        events = [write_event({**answer, "choices": [choice]}) for choice in choices]
        return b"".join([*events, b"data: [DONE]\n\n"])

    def start_rounds(self, own_tools: Collection[str], *, stream: bool) -> Rounds:
        return ChatRounds(own_tools, stream=stream)

    def continue_request(self, source: bytes, answer: Round, results: Sequence[str]) -> bytes:
        tool_messages = [
            b'{"role":"tool","tool_call_id":%b,"content":%b}' % (splice.quote(call.id), splice.quote(text))
            for call, text in zip(answer.calls, results, strict=True)
        ]
        return extend_request(source, "messages", (*answer.elements, *tool_messages))

    def allows_rounds(self, source: bytes, /) -> bool:
        """False if several choices are asked for: each would need rounds of its own."""
        places = find_values(source)
        return "n" not in places or source[slice(*places["n"])] in (b"1", b"null")

    def remove_reasoning(self, answer: Round) -> Round:
        messages = [json.loads(raw) for raw in answer.elements]
        for message in messages:
            message.pop(SIGNED_MEMBER, None)
        return replace(answer, elements=tuple(map(write_json, messages)))


CHAT_ANSWERS = ChatAnswers()
