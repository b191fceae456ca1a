"""Values as the store keeps them: JSON with the number of its format. Another format is read as if there were none."""

import json
from typing import Any, Self

from msgspec import Struct, convert, to_builtins


class StoredValue(Struct, frozen=True):
    """The base of values that are stored. The tag of a subclass is the number of its format."""

    def to_bytes(self) -> bytes:
        return write_json(to_builtins(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self | None:
        """Return None for garbage and for another format."""
        try:
            return convert(json.loads(data), cls)
        except (ValueError, RecursionError):
            return None


def write_json(value: Any) -> bytes:  # noqa: ANN401 (any JSON)
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        # A model may write half a surrogate pair, which UTF-8 cannot hold. msgspec's own encoder refuses it.
        return json.dumps(value, separators=(",", ":")).encode()
