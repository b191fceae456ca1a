"""Long conversations in small windows: what a model reads there, and what its summaries cost.

Each cell of the grid is a conversation of 240 turns under one policy, before an upstream that counts by itself and
refuses a request that does not fit, in one API, as a chat or as the work of an agent with tools. The proxy is a process
of its own, and conversations run beside one another, as they do in a team: a summary is there a turn later.
"""

import asyncio
import itertools
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from proxy.config.policies import shipped_policies
from tests.support.apis import APIS, CHAT, KEY, Api
from tests.support.compacting_proxy import upstreams_by_model
from tests.support.messages import assistant, call, history, system, user
from tests.support.proxy_client import ask
from tests.support.running_proxy import serving
from tests.support.scripted_upstream import Request, Upstream, answer
from tests.support.summary_model import SECTIONS
from tests.support.upstream_replies import Reply

WINDOWS = (2_000, 4_000, 8_000, 16_000, 32_000)
KINDS = ("chat", "tools")
POLICIES = ("default", *(name for name in shipped_policies() if name not in ("observe", "off", "lossless")))
TURNS = 240
CELLS_AT_ONCE = 12
BYTES_PER_TOKEN = 4
ANSWER_SHARE = 1 / 16
"""Of the window, which a client reserves for an answer."""
STALE_TURNS = 60
STALE_TURNS_BY_POLICY = {"j-cli": 75}
"""It asks about the first 80,000 characters only, by definition: in the largest window a third is never told."""
ASKED_SHARE = 0.25
TASK_WINDOW = 4_000
"""From this window on the task has to be in view."""
REPLACES_TASK = ("j-cli", "middleware", "jp", "blocks")
"""Published designs in which the user's words are replaced as well, by definition."""
ASKS = (b"write a handover of this conversation", b"Now write the summary", b"Pause the task.")
TASK = "The task of this conversation is to move the parser to the new tokenizer, file by file."
_WRITTEN_AT = re.compile(rb"Told after turn (\d+)\.")
_TURN = re.compile(rb"\[turn (\d+)\]")
_STANDS = rb"\[turn %d\]|path\W{1,8}src/part_%d\.py|command\W{1,8}run %d\b"
"""A turn, or its call, if only its result was shortened."""
_WORDS = re.compile(rb"at most (\d+) words")
_BOUND = re.compile(rb'"max(?:_completion|_output)?_tokens": ?(\d+)')
VOCABULARY = ("time", "year", "people", "way", "question", "government", "water", "work", "number", "program", "night")


@dataclass(frozen=True, slots=True)
class Cell:
    policy: str
    window: int
    api: Api
    kind: str

    @property
    def step(self) -> int:
        """Clients of the other APIs send every third turn: more is new at a time."""
        return 1 if self.api is CHAT else 3

    @property
    def model(self) -> str:
        return f"{self.policy}-{self.window}-{self.api.name}-{self.kind}"


@dataclass(slots=True)
class Outcome:
    """What became of one conversation; tokens are those that the upstream counts."""

    refused: int = 0
    read: int = 0
    questions: int = 0
    read_by_questions: int = 0
    oldest_summary: int = 0
    """The greatest age, in turns, of the newest summary in a view that was just folded so that what came next is gone.
    Until then all that came after a summary stands beside it."""
    views_with_several: int = 0
    views_without_task: int = 0

    @property
    def asked_share(self) -> float:
        return self.read_by_questions / max(1, self.read)

    def find_faults(self, cell: Cell) -> list[str]:
        faults = []
        if self.refused:
            faults.append(f"{self.refused} refused")
        if self.oldest_summary > STALE_TURNS_BY_POLICY.get(cell.policy, STALE_TURNS):
            faults.append(f"a summary of {self.oldest_summary} turns ago")
        if self.views_with_several:
            faults.append(f"{self.views_with_several} views with several summaries")
        if self.views_without_task and cell.window >= TASK_WINDOW and cell.policy not in REPLACES_TASK:
            faults.append(f"{self.views_without_task} views without the task")
        if self.asked_share > ASKED_SHARE:
            faults.append(f"summary calls read {self.asked_share:.0%} of what turns read")
        return [f"{cell.model}: {fault}" for fault in faults]


CELLS = [Cell(*parts) for parts in itertools.product(POLICIES, WINDOWS, APIS, KINDS)]


def write_conversation(kind: str) -> list[list[dict[str, Any]]]:
    """The histories of a conversation, turn by turn."""
    chance = random.Random(7)
    pieces: list[list[dict[str, Any]]] = [system("You help with a program."), user(TASK)]
    stops = []
    for turn in range(TURNS):
        if turn:
            pieces += _write_turn(kind, turn, chance)
        stops.append(sum(map(len, pieces)))
    messages = history(*pieces)
    return [messages[:stop] for stop in stops]


def _write_turn(kind: str, turn: int, chance: random.Random) -> list[list[dict[str, Any]]]:
    def say(least: int, most: int) -> str:
        return f"[turn {turn}] " + " ".join(chance.choices(VOCABULARY, k=chance.randrange(least, most)))

    if kind == "chat":
        return [assistant(say(80, 140)), user(say(40, 90))]
    lines = [f"{chance.randrange(999)}: def f_{turn}_{number}(value)" for number in range(chance.randrange(4, 60))]
    name, arguments = chance.choice([("Read", {"path": f"src/part_{turn}.py"}), ("Bash", {"command": f"run {turn}"})])
    worked = call(name, out=f"[turn {turn}]\n" + "\n".join(lines), **arguments)
    if turn % 12:
        return [worked]
    return [worked, assistant("That part is done."), user(say(40, 90))]


@dataclass(slots=True)
class Provider:
    """Counts in its own way, refuses what does not fit, and writes summaries of the length that is asked for."""

    outcomes: dict[str, Outcome]
    last: dict[str, bytes] = field(default_factory=dict)

    def __call__(self, request: Request) -> Reply:
        if request.method != "POST":
            return answer({}, 404)
        body, model = request.body, request.json["model"]
        api = next(api for api in APIS if api.path in request.path)
        window, outcome = int(re.split(r"-(\d+)-", model)[1]), self.outcomes[model]
        tokens, bounds = len(body) // BYTES_PER_TOKEN, _BOUND.findall(body)
        is_question = any(words in body[-6_000:] or words in body[:6_000] for words in ASKS)
        if tokens + max(map(int, bounds), default=0) > window:
            return api.refuse(f"prompt is too long: {tokens} tokens > {window} maximum")
        if is_question:
            outcome.questions += 1
            outcome.read_by_questions += tokens
            return api.reply(write_summary(body), tokens)
        outcome.read += tokens
        self.last[model] = body
        return api.reply("Go on.", tokens)


def write_summary(question: bytes) -> str:
    """As many words as are asked for, which tell when they were written."""
    newest_turn = max(map(int, _TURN.findall(question)), default=0)
    words = min(map(int, _WORDS.findall(question)), default=300)
    told = " ".join(VOCABULARY[number % len(VOCABULARY)] for number in range(max(1, words // len(SECTIONS))))
    return f"Told after turn {newest_turn}.\n\n" + "\n\n".join(f"## {section}\n{told}" for section in SECTIONS)


async def play(cells: Sequence[Cell], place: Path) -> dict[Cell, Outcome]:
    outcomes = {cell.model: Outcome() for cell in cells}
    provider = Provider(outcomes)
    async with Upstream(provider) as up:
        upstreams = upstreams_by_model(up.url, dict.fromkeys((cell.policy, cell.window) for cell in cells))
        async with serving(None, place=place, config={"upstreams": upstreams, "log": {"format": "json"}}) as proxy:
            gate = asyncio.Semaphore(CELLS_AT_ONCE)

            async def play_cell(cell: Cell) -> None:
                async with gate:
                    await _play_cell(proxy, up, cell, provider)

            await asyncio.gather(*map(play_cell, cells))
    return {cell: outcomes[cell.model] for cell in cells}


async def _play_cell(proxy: Any, up: Upstream, cell: Cell, provider: Provider) -> None:
    outcome = provider.outcomes[cell.model]
    more = {"model": cell.model, ("max_output_tokens" if cell.api.name == "responses" else "max_tokens"): 0}
    more = {name: value or int(cell.window * ANSWER_SHARE) for name, value in more.items()}
    headers = {name: f"{value}-{cell.model}" if "sk-" in value else value for name, value in KEY.items()}
    for turn, messages in enumerate(write_conversation(cell.kind)):
        if turn % cell.step:
            continue
        reply = await ask(proxy, cell.api.write(messages, **more), cell.api.path, headers=headers)
        up.forget()
        reason = reply.head.first("x-compaction-reason") or ""
        is_new = reply.head.first("x-compaction") == "created"
        outcome.refused += reply.status != 200
        if reply.status == 200:
            is_folded = is_new and reason not in ("stride", "opening")
            _judge_view(provider.last[cell.model], turn, outcome, is_folded=is_folded)


def _judge_view(view: bytes, turn: int, outcome: Outcome, *, is_folded: bool) -> None:
    ages = [turn - int(written_at) for written_at in _WRITTEN_AT.findall(view)]
    if ages:
        outcome.views_with_several += len(ages) > 1
        next_turn = turn - min(ages) + 1
        if is_folded and not re.search(_STANDS % (next_turn, next_turn, next_turn), view):
            outcome.oldest_summary = max(outcome.oldest_summary, *ages)
    outcome.views_without_task += TASK.encode() not in view


def find_faults(cells, place: Path):
    outcomes = asyncio.run(play(cells, place))
    return [fault for cell, outcome in outcomes.items() for fault in outcome.find_faults(cell)]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_tenth_of_the_grid_is_read_as_it_should_be(tmp_path):
    # Eleven is prime to the numbers of windows, APIs and kinds: each of them is drawn.
    assert find_faults(CELLS[::11], tmp_path) == []


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_the_grid_is_read_as_it_should_be(tmp_path):
    assert find_faults(CELLS, tmp_path) == []
