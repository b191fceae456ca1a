"""Options of one request, read from headers that are not forwarded."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from proxy.errors import BadRequest
from proxy.wire.headers import Headers, read_own

Mode = Literal["auto", "off", "force", "observe", "bypass"]
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Options that a client sets for one request; the defaults leave everything to its policy."""

    mode: Mode = "auto"
    focus: str = ""
    """What a summary should keep above all."""
    conversation: str = ""
    """Tells apart conversations whose content is equal."""

    def with_force(self, focus: str) -> "RequestOptions":
        """The same from a client that has asked to compact now, whatever its headers say."""
        return replace(self, mode="force", focus=focus or self.focus)

    @classmethod
    def read(cls, headers: Headers) -> "RequestOptions":
        words = read_own(headers)
        asked = words.get("x-compaction", "").strip().lower() or "auto"
        mode = next((mode for mode in MODES if mode == asked), None)
        if mode is None:
            raise BadRequest(f"x-compaction must be one of {', '.join(MODES)}")
        return cls(mode, words.get("x-compaction-focus", ""), words.get("x-conversation-id", ""))
