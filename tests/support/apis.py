"""The three APIs, each as a client and an upstream speak it, for what is told of all of them alike.

answered = await ask(proxy, api.write(history, stream=True), api.path, headers=KEY)
assert api.find_faults(up.requests[-1].body) == []
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from proxy.wire.api_format import ApiFormat
from proxy.wire.formats import REQUEST_FORMATS
from tests.support import messages_api, responses_api
from tests.support.completions import text_turn
from tests.support.messages import body
from tests.support.upstream_replies import Reply, answer, stream

KEY = {"authorization": "Bearer sk-a", "x-api-key": "sk-a", "anthropic-version": "2023-06-01"}
PLACED_MARK = b',"cache_control":{"type":"ephemeral"}'
"""Marks that clients of the tests set are written with spaces."""
TOO_LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."
OVERFLOW = "context_length_exceeded"


def without_placed_marks(body: bytes) -> bytes:
    return body.replace(PLACED_MARK, b"")


@dataclass(frozen=True, slots=True)
class Api:
    name: str
    path: str
    items: str
    """The member of a request that holds its history."""
    write: Callable[..., bytes]
    """The request for a history, which is given as chat completions have it."""
    find_faults: Callable[[bytes], list[str]]
    whole: Callable[..., dict[str, Any]]
    """An answer: of a text, the size of the prompt, and calls."""
    events: Callable[..., list[bytes]]

    @property
    def wire(self) -> ApiFormat:
        """How the proxy reads and writes it."""
        return REQUEST_FORMATS[self.path]

    def reply(self, text: str = "Go on.", prompt: int = 100, *, streams: bool = False) -> Reply:
        return stream(*self.events(text, prompt)) if streams else answer(self.whole(text, prompt))

    def answer(self, request: Any, text: str = "Go on.") -> Reply:
        """An answer as it is asked for, by an upstream that counts four bytes a token."""
        return self.reply(text, len(request.body) // 4, streams=bool(request.json.get("stream")))

    def units(self, body: bytes) -> list[Any]:
        """What can be kept or left out of a request, in its order.

        In Messages the blocks, each with its speaker: messages of one speaker in a row are one there.
        """
        history = json.loads(body)[self.items]
        if self is not MESSAGES:
            return [json.dumps(item, sort_keys=True) for item in history]
        return [
            (message["role"], json.dumps(part, sort_keys=True))
            for message in history
            for part in messages_api.parts_of(message)
        ]

    def error(self, message: str, code: str = "invalid_request_error") -> dict[str, Any]:
        if self is MESSAGES:
            return {"type": "error", "error": {"type": code, "message": message}, "request_id": "req_1"}
        return {"error": {"type": "invalid_request_error", "param": self.items, "code": code, "message": message}}

    def refuse(self, message: str = TOO_LONG, status: int = 400, code: str = "invalid_request_error") -> Reply:
        return answer(self.error(message, code), status)

    def refuse_long(self, tokens: int, window: int, answer_tokens: int = 0, *, streams: bool = False) -> Reply:
        """The refusal of a prompt, or of one with the answer it asks for, in the words of this API's own provider."""
        if self is MESSAGES:
            return self.refuse(f"prompt is too long: {tokens} tokens > {window} maximum")
        if self is RESPONSES:
            if streams:
                return stream(*self.refused_events())
            return self.refuse(TOO_LONG, code=OVERFLOW)
        told = f"your messages resulted in {tokens} tokens. Please reduce the length of the messages."
        if answer_tokens:
            told = (
                f"you requested {tokens + answer_tokens} tokens ({tokens} in the messages, {answer_tokens} in the "
                "completion). Please reduce the length of the messages or completion."
            )
        return self.refuse(f"This model's maximum context length is {window} tokens. However, {told}", code=OVERFLOW)

    def refused_events(self, message: str = TOO_LONG, code: str = OVERFLOW) -> list[bytes]:
        """A refusal in a stream that was begun before the request was judged."""
        if self is RESPONSES:
            return responses_api.refused_events(message, code)
        return [self.events("")[0], f"event: error\ndata: {json.dumps(self.error(message, code))}\n\n".encode()]


CHAT = Api(
    "chat",
    "/chat/completions",
    "messages",
    body,
    lambda _: [],
    lambda text, prompt=100: text_turn(text).using(prompt).completion(),
    lambda text, prompt=100: list(text_turn(text).using(prompt).frames()),
)
MESSAGES = Api(
    "messages",
    "/messages",
    "messages",
    messages_api.request,
    messages_api.find_faults,
    messages_api.answer_text,
    messages_api.answer_events,
)
RESPONSES = Api(
    "responses",
    "/responses",
    "input",
    responses_api.request,
    responses_api.find_faults,
    responses_api.answer_whole,
    responses_api.answer_events,
)
APIS = (CHAT, MESSAGES, RESPONSES)
each_api = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
each_other_api = pytest.mark.parametrize("api", [MESSAGES, RESPONSES], ids=lambda api: api.name)
