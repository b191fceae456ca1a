"""The APIs whose requests are compacted, each by its path: what differs between them, behind two protocols."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from proxy.history.messages import Message, Request
from proxy.summary.question import Try
from proxy.wire import http
from proxy.wire.answer_assembly import AnswerReader
from proxy.wire.chat import answers as chat_answers
from proxy.wire.chat import requests as chat_requests
from proxy.wire.messages import answers as messages_answers
from proxy.wire.messages import requests as messages_requests
from proxy.wire.outline import Prefix
from proxy.wire.responses import answers as responses_answers
from proxy.wire.responses import requests as responses_requests
from proxy.wire.rounds import Round, Rounds


class RequestFormat(Protocol):
    """Requests of one API. The core sees chat messages only: they are read from a request, and written back to it."""

    NAME: str
    """The name of the API that its requests have."""

    def parse(self, source: bytes, prefix: Prefix | None = None) -> Request | None: ...
    def find_first_message(self, source: bytes) -> int: ...
    def why_relayed(self, source: bytes) -> str: ...
    def render(
        self, request: Request, view: Sequence[Message], tools: bytes | None = None, shared: int = 0
    ) -> bytes: ...
    def render_question(
        self, request: Request, put: Try, bounds: Mapping[str, int], model: str = "", *, foreign: bool = False
    ) -> bytes: ...
    def find_bounds(self, source: bytes) -> tuple[str, ...]: ...
    def answer_within(self, source: bytes, most: int) -> bytes: ...
    def disable_streaming(self, source: bytes) -> bytes: ...
    def add_marks(self, source: bytes, model: str) -> bytes: ...
    def request_usage(self, source: bytes) -> bytes | None: ...


class AnswerFormat(AnswerReader, Protocol):
    """Answers of one API: read as chat answers, written by the proxy, and put together from several rounds."""

    RECALL_TOOL: bytes
    COMPACT_TOOL: bytes
    """The definitions of the tools of `core.own_tools`, as this API has them."""

    def allows_rounds(self, source: bytes) -> bool: ...
    def start_rounds(self, own: Collection[str], *, stream: bool) -> Rounds: ...
    def continue_request(self, source: bytes, answer: Round, results: Sequence[str]) -> bytes: ...
    def remove_reasoning(self, answer: Round) -> Round: ...
    def render_answer(self, text: str, model: str, created: int, *, stream: bool) -> bytes: ...


REQUEST_FORMATS: Mapping[str, RequestFormat] = {
    http.CHAT: chat_requests,
    http.COMPACT: chat_requests,
    http.MESSAGES: messages_requests,
    http.RESPONSES: responses_requests,
    http.COUNT_TOKENS: messages_requests,
}
"""The format of the requests to each path."""
ANSWER_FORMATS: Mapping[str, AnswerFormat] = {
    http.CHAT: chat_answers,
    http.COMPACT: chat_answers,
    http.MESSAGES: messages_answers,
    http.RESPONSES: responses_answers,
    http.COUNT_TOKENS: messages_answers,
}
"""The format of the answers from each path."""
