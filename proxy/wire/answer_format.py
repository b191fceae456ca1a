"""Answers of an API: read as chat answers, written by the proxy, and continued after a call of its own tools."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from proxy.recall.tool import COMPACT, RECALL, OwnTool
from proxy.wire.rounds import Round, Rounds


class AnswerFormat(ABC):
    """Reads and writes answers of one API."""

    RECALL_TOOL: ClassVar[bytes]
    COMPACT_TOOL: ClassVar[bytes]
    """The definitions of the tools of `recall.own_tools`, as this API has them."""

    def __init_subclass__(cls) -> None:
        cls.RECALL_TOOL = cls.define_tool(RECALL)
        cls.COMPACT_TOOL = cls.define_tool(COMPACT)

    @staticmethod
    @abstractmethod
    def define_tool(tool: OwnTool) -> bytes:
        """The definition of a tool."""

    @abstractmethod
    def read_event(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """The chunk of a chat answer that says the same as this event; any other object as it is."""

    @abstractmethod
    def read_body(self, body: bytes) -> bytes:
        """The chat completion that says the same as this answer; any other body as it is."""

    @abstractmethod
    def render_answer(self, text: str, model: str, created: int, /, *, stream: bool) -> bytes:
        """An answer with this text, as one body or as a stream of events."""

    @abstractmethod
    def start_rounds(self, own_tools: Collection[str], *, stream: bool) -> Rounds:
        """The rounds of a request that asks for a stream, or not, and may call these tools of the proxy."""

    @abstractmethod
    def continue_request(self, source: bytes, answer: Round, results: Sequence[str]) -> bytes:
        """The request for the next round."""

    def allows_rounds(self, _source: bytes, /) -> bool:
        """True if the answer to this request can be continued by another round."""
        return True

    def remove_reasoning(self, answer: Round) -> Round:
        """The answer without reasoning that is signed for the history before it."""
        return answer
