"""The first events of a stream of status 200: do they begin an answer, or are they a late refusal?

Responses refuses a request that is too long with such an event, and a gateway that asks OpenAI for a client of Messages
passes it on: <https://platform.openai.com/docs/api-reference/responses-streaming>. A gateway that began
a stream of Chat Completions before its own upstream answered can refuse in its first event only.
"""

import re
from collections.abc import Mapping
from typing import Any

from proxy.wire.lenient import as_object, as_text, read_object, write_json
from proxy.wire.sse import DATA, LineReader

OPENING_MAX_BYTES = 2 * 1024 * 1024
"""Of the first events: OpenAI repeats the instructions and the tools of a request in two of them."""
_TYPE_FIRST = re.compile(rb'\{\s*"type"\s*:\s*"([\w.]+)"')
_REQUEST_TAKEN = frozenset({b"response.created", b"response.in_progress", b"response.queued", b"message_start"})
"""Types of events that a refusal may still follow; it may follow any other that carries no output, too."""
_CARRIES_OUTPUT = re.compile(
    r"content_block_|message_(?:delta|stop)"
    r"|response\.(?:\w+\.|output|content|reasoning|function_call|completed|incomplete|cancelled)"
)


class StreamOpening:
    """Reads a stream up to the first event that shows an answer or a refusal."""

    __slots__ = ("_first_decides", "_is_decided", "_lines", "_read_bytes", "_refusal")

    def __init__(self, *, first_decides: bool = False) -> None:
        self._first_decides = first_decides
        """Chat Completions: nothing comes before an answer but comments."""
        self._is_decided = False
        self._refusal: bytes | None = None
        self._lines = LineReader(OPENING_MAX_BYTES)
        self._read_bytes = 0

    def is_decided(self, beginning: bytes | bytearray) -> bool:
        """True if nothing more needs to be awaited. `beginning`: all that has come, of which only the end is new."""
        new_bytes = bytes(beginning[self._read_bytes :])
        self._read_bytes = len(beginning)
        self._judge(self._lines.feed(new_bytes))
        return self._is_decided or len(beginning) > OPENING_MAX_BYTES

    def find_refusal(self, beginning: bytes | bytearray) -> bytes | None:
        """The error in these events as the body of a refusal, or None. No more is awaited."""
        self.is_decided(beginning)
        self._judge(self._lines.close())  # some servers do not end the last line of a stream
        return self._refusal

    def _judge(self, lines: bytes) -> None:
        for line in lines.splitlines():
            if self._is_decided:
                return
            data = DATA.match(line)
            if data is not None:
                self._judge_data(line[data.end() :].strip())
            elif line.startswith(b"{"):  # an error that a server wrote without `data:`
                self._judge_data(line)

    def _judge_data(self, data: bytes) -> None:
        if not data:
            return
        leading_type = _TYPE_FIRST.match(data)
        if leading_type is not None and leading_type[1] in _REQUEST_TAKEN and not self._first_decides:
            return  # told without parsing: with the request that they repeat, these are large
        event = read_object(data)
        if event is None:
            self._is_decided = True
            return
        self._refusal = _find_event_error(event)
        kind = as_text(event.get("type"))
        is_output = not kind or "choices" in event or _CARRIES_OUTPUT.match(kind) is not None
        self._is_decided = is_output or self._first_decides or self._refusal is not None


def find_refusal(beginning: bytes) -> bytes | None:
    """The error in the first events of a stream as the body of a refusal, or None."""
    return StreamOpening().find_refusal(beginning)


def _find_event_error(event: Mapping[str, Any]) -> bytes | None:
    """The error of an event as the body of a refusal, or None."""
    kind, error = event.get("type"), event.get("error")
    if kind == "response.failed":
        error = as_object(event.get("response")).get("error")
    elif kind == "error" or event.get("object") == "error":
        error = error or event
    elif not error or event.get("choices"):
        return None
    return write_json({"error": error})
