"""A request: its messages, and the rest of its bytes."""

import re
from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from proxy.history.known import Known
from proxy.history.messages import HEAD, Message, is_different

CHANGING_MESSAGES = 8
"""Clients change this many of the newest messages: cache marks move, reminders are taken out."""


class Request(Struct, frozen=True, dict=True):  # with a dict, for cached properties
    """A whole request, in any of the APIs: its bytes, its messages, and the members that decide something."""

    source: bytes
    messages: tuple[Message, ...]
    offsets: tuple[int, ...]
    """The start of each message in the source."""
    model: str = ""
    tools: bytes | None = None
    tools_at: int = 0
    forced_tool: str = ""
    """The tool that the model must call, by `tool_choice`."""
    user: str = ""
    session: str = ""
    """The session, as the body names it. It is no part of the identity, so that a resumed history is recognized."""
    max_output: int | None = None
    least_thinking: int = 0
    """Tokens of the answer that thinking takes at least, if the client sets a budget for it."""
    stream: bool = False
    asks_usage: bool = False
    """The client wants the usage at the end of the stream."""
    wire: str = ""
    """The API, if that is not Chat Completions."""
    provider_compacts: bool = False
    """The request asks the provider to compact the history, now or once it is long."""
    has_thinking_budget: bool = False
    """The client sets a budget for thinking, which older models of Anthropic take.

    https://platform.claude.com/docs/en/build-with-claude/extended-thinking
    """

    separator: bytes = b""
    """The bytes between two messages, if the body is not kept."""

    @cached_property
    def known(self) -> Known:
        """The values that were computed of the messages of the body."""
        return Known(self.body)

    @cached_property
    def cache_seconds(self) -> float | None:
        """The lifetime in the upstream's cache that the request asks for, or None.

        Of several marks the shortest counts, which is that of the newest messages.
        https://platform.claude.com/docs/en/build-with-claude/prompt-caching#1-hour-cache-duration
        """
        if b'"ttl"' not in self.source and b'"prompt_cache_retention"' not in self.source:
            return None
        # Within texts a quotation mark has a backslash before it: these are members.
        options = re.findall(rb'"cache_control"\s*:\s*\{([^{}]*)\}', self.source) or [self.source]
        lifetimes = []
        for option in options:
            lifetime = re.search(rb'"(?:ttl|prompt_cache_retention)"\s*:\s*"(\d{1,4})([mh])"', option)
            if lifetime is None:
                return None
            lifetimes.append(int(lifetime[1]) * (3_600.0 if lifetime[2] == b"h" else 60.0))
        return min(lifetimes)

    @cached_property
    def head_size(self) -> int:
        for place, message in enumerate(self.messages):
            if message.role not in HEAD:
                return place
        return len(self.messages)

    @cached_property
    def head(self) -> tuple[Message, ...]:
        """The leading system and developer messages."""
        return self.messages[: self.head_size]

    @cached_property
    def body(self) -> tuple[Message, ...]:
        """The history proper: everything after the head."""
        return self.messages[self.head_size :]

    def find_end(self, count: int) -> int:
        """Return the end of the first *count* messages in the source."""
        return self.offsets[count - 1] + len(self.messages[count - 1].raw)

    def find_cut(self, count: int) -> int:
        """Return the end of the first *count* messages if another history may differ from there on, else 0."""
        return self.find_end(count)

    @cached_property
    def stable_count(self) -> int:
        """The fewest messages that a request must share in order to continue this one; 0: none will do."""
        size = len(self.messages)
        newest = min(size, max(self.head_size + 1, size - CHANGING_MESSAGES))
        for count in range(newest, self.head_size, -1):
            if self.find_cut(count):
                return count
        return 0

    def without_body(self) -> "Request":
        """Return the request as it is kept while its history is known: not each text twice.

        Its messages, with the bytes between the first two as the separator, make up the list. If they do not, the body
        is kept.
        """
        size = len(self.messages)
        if self.wire or size < 2:  # noqa: PLR2004 (in other APIs, messages are no parts of the list)
            return self
        kept_request = replace(self, source=b"", separator=self.source[self.find_end(1) : self.offsets[1]])
        if kept_request.open_body()[0] != self.source[self.offsets[0] : self.find_end(size)]:
            return self
        vars(kept_request)["known"] = self.known
        return kept_request

    def open_body(self) -> tuple[memoryview, int]:
        """Return the bytes of the messages, and the place of the first of these bytes in the body."""
        if self.separator:
            return memoryview(self.separator.join([message.raw for message in self.messages])), self.offsets[0]
        return memoryview(self.source), 0

    def measure(self, message: Message) -> int:
        """Return how many bytes this message of a view takes in the API of the request."""
        return len(message.raw)

    def is_changed_by(self, view: Sequence[Message]) -> bool:
        """Return whether this view differs from the client's messages."""
        messages = self.messages
        if view is messages:
            return False
        return len(view) != len(messages) or any(map(is_different, view, messages))
