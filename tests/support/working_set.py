"""A scripted agent that needs files that it has read before, word for word, and its provider's prompt cache.

    fixed    the same files all the time, the first ones that it read
    sliding  those that it read last
    random   three of the first ones, others at each step
    late     nothing until the end, then the first ones again

What does not stand in its view it reads again, one call a step. Costs are in tokens of new input at list price.
"""

import json
import random
from dataclasses import dataclass, field
from typing import Any

from proxy.lab.replay.replay_history import PROVIDER, Cache
from tests.support.messages import call, history, tool, user

KINDS = ("fixed", "sliding", "random", "late")
OUTPUT_TOKENS, OUTPUT_PRICE, WRITE_PRICE = 150, 5.0, 1.25
OVERHEAD_TOKENS = 4
READ = tool("Read", file_path="string")
STEPS_MAX = 600


def file_text(number: int, size: int) -> str:
    dice, lines, length = random.Random(number), [f"# part {number}"], 0
    while length < size:
        line = f"def step_{dice.randrange(10**6)}(limit={dice.randrange(10**4)}): return {dice.randrange(10**5)}"
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines)


@dataclass(frozen=True)
class Task:
    kind: str
    needed: int
    files: int = 60
    file_bytes: int = 5_000
    cached_price: float = 0.1

    @property
    def needed_tokens(self) -> int:
        return self.needed * (self.file_bytes // 4 + 60)


@dataclass
class Run:
    steps: int = 0
    cost: float = 0.0
    refetches: int = 0
    is_done: bool = False
    cache: Cache = field(default_factory=lambda: Cache(PROVIDER, lambda raw: len(raw) // 4 + OVERHEAD_TOKENS))

    def pay(self, messages: list[dict[str, Any]]) -> tuple[int, int]:
        """The provider has in its cache what any earlier request began with."""
        pieces = [json.dumps(piece, ensure_ascii=False).encode() for piece in (READ, *messages)]
        tokens = self.cache.read(pieces, now=0)
        self.steps += 1
        return tokens.read, tokens.cached


class Agent:
    def __init__(self, task: Task) -> None:
        self.task = task
        self.texts = [file_text(number, task.file_bytes) for number in range(task.files + task.needed)]
        self.read_files: list[int] = []

    def choose(self, view: str) -> int | None:
        """The file to read next; None if all is done."""
        for number in self._list_needed():
            if self.texts[number] not in view:
                return number
        if len(self.read_files) == len(self.texts):
            return None
        self.read_files.append(len(self.read_files))
        return self.read_files[-1]

    def _list_needed(self) -> list[int]:
        task, read_files = self.task, self.read_files
        first_files = read_files[: task.needed]
        match task.kind:
            case "fixed":
                return first_files
            case "sliding":
                return read_files[-task.needed :]
            case "random":
                dice = random.Random(len(read_files))
                return dice.sample(first_files, min(3, len(first_files)))
        return first_files if len(read_files) == len(self.texts) else []


def work(task: Task, forward) -> Run:
    """*forward*: what is forwarded of a history, and how many results of it bring again what had been shortened."""
    agent, run = Agent(task), Run()
    pieces = [user("Work through all files, one after the other; keep what you need in view.")]
    while run.steps < STEPS_MAX:
        messages, refetches = forward(history(*pieces))
        total, cached = run.pay(messages)
        run.cost += (total - cached) * WRITE_PRICE + cached * task.cached_price + OUTPUT_TOKENS * OUTPUT_PRICE
        run.refetches += refetches
        number = agent.choose("\n".join(str(message.get("content")) for message in messages))
        if number is None:
            run.is_done = True
            break
        pieces.append(call("Read", file_path=f"src/part_{number:03}.py", out=agent.texts[number]))
    return run


def work_directly(task: Task) -> Run:
    return work(task, lambda messages: (messages, 0))


def work_through(task: Task, worker) -> Run:
    def forward(messages):
        sent = worker.send(messages, tools=[READ])
        return sent.messages, sent.plan.refetch_cost.refetches

    return work(task, forward)
