"""The history of an agent at long work, made to a size: it reads file after file, and what it reads looks like code.

No recorded conversation is needed for it, it is the same on every machine, and a token of it has about four bytes, as
real code has.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

VERBS = ("read", "parse", "load", "write", "check", "merge", "split", "render", "decode", "resolve", "count", "close")
NOUNS = ("config", "header", "token", "message", "buffer", "parser", "record", "cursor", "result", "stream", "session")
PROSE = ("the", "of", "a", "when", "it", "is", "not", "value", "returns", "with", "this", "for", "an", "empty", "list")


@dataclass
class Work:
    """One conversation. `grown()` adds a call and its result."""

    seed: int
    page: int = 6_000
    messages: list[dict[str, Any]] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._add({"role": "system", "content": "You are a coding agent. Work in small steps. " * 40})
        self._add({"role": "user", "content": f"Make the failing test {self.seed} pass."})

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces)) + 2 * len(self.pieces)

    def grown(self) -> "Work":
        number = len(self.messages)
        arguments = json.dumps({"file_path": f"src/{self._dice.choice(NOUNS)}/module_{number}.py"})
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "Read", "arguments": arguments}}
        self._add({"role": "assistant", "content": "I look at the next file.", "tool_calls": [call]})
        size = self._dice.randrange(self.page // 2, self.page * 3 // 2)
        self._add({"role": "tool", "tool_call_id": f"call_{number}", "content": self._code(size)})
        return self

    def up_to(self, size: int) -> "Work":
        while self.size < size:
            self.grown()
        return self

    def body(self) -> bytes:
        return b'{"model": "bench-1", "messages": [' + b", ".join(self.pieces) + b"]}"

    def bodies(self, count: int) -> Iterator[bytes]:
        """The requests of so many further turns."""
        for _ in range(count):
            yield self.grown().body()

    def _add(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        self.pieces.append(json.dumps(message).encode())

    def _code(self, size: int) -> str:
        dice, lines, missing = self._dice, [], size
        while missing > 0:
            name = f"{dice.choice(VERBS)}_{dice.choice(NOUNS)}"
            text = " ".join(dice.choices(PROSE, k=7))
            lines.append(f"def {name}({dice.choice(NOUNS)}, limit={dice.randrange(900)}):  # {text}")
            lines.append(f"    return self.{dice.choice(VERBS)}_{dice.choice(NOUNS)}({dice.choice(NOUNS)}, {name!r})")
            missing -= len(lines[-1]) + len(lines[-2]) + 2
        return "\n".join(lines)[:size]
