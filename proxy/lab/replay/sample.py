"""Conversations of our own making, the same on every machine: what the published scorecard is computed on.

The agent of the demo at work, some runs short and some long, with what its story lacks: people who come back with
another task, an instruction in the midst, pauses long enough for a cache to go cold. No figure computed on them says
what an agent in the field would see; that is what the recorded conversations are for.
"""

import json
from collections.abc import Iterator

from proxy.lab.demo.agent import TOOLS, Run, sample
from proxy.lab.replay.replay_values import Conversation, Json, RecordedUsage

MODEL = "gpt-5.1"
RUNS = ((2, 110), (5, 48), (7, 20))
_INTERRUPTION_REQUESTS = 22
"""Turns between two words of the user."""
_PACE, _PAUSE = 8.0, 640.0
"""Seconds before an answer, and before each word of the user."""
_WORDS = (
    "Before you go on: ticket HB-{number} says the same happens with refunds. Look at tests/test_refunds.py, too.",
    "The berth fees are off again: {number}.50 was charged in berth-{number}. Keep `tidewater/ledger.py` as it is.",
    "Good. From now on write what you changed into notes/HB-{number}.md as well, one line for each file.",
)
_RULE = "Rule of the repository: commits that touch tidewater/tariff.py carry the ticket HB-{number}."


def conversations() -> list[Conversation]:
    return [_conversation(seed, turns) for seed, turns in RUNS]


def _conversation(seed: int, turns: int) -> Conversation:
    run = sample(turns, seed)
    messages, usages, now = list[Json](), dict[int, RecordedUsage](), 0.0
    for number, turn in enumerate(_turns(run, seed)):
        pauses = number and any(message["role"] == "user" for message in turn)
        now += _PAUSE if pauses else _PACE
        messages += turn
        usages[len(messages)] = RecordedUsage(at=now)
        messages.append(run.answer(number))
    return Conversation(
        name=f"sample {seed}, {turns} turns",
        source="sample",
        messages=tuple(messages),
        tools=TOOLS,
        model=MODEL,
        recorded=usages,
    )


def _turns(run: Run, seed: int) -> Iterator[list[Json]]:
    yield [json.loads(message) for message in run.opening]
    for number, step in enumerate(run.steps[:-1]):
        results = [run.result(run.call_id(number, place)) for place in range(len(step.acts))]
        yield [*results, *_interruption(number + 1, seed)]


def _interruption(turn: int, seed: int) -> list[Json]:
    """The user's first interruption comes with a rule."""
    if turn % _INTERRUPTION_REQUESTS:
        return []
    number = 20_000 + 131 * turn + seed
    word: Json = {"role": "user", "content": _WORDS[turn // _INTERRUPTION_REQUESTS % len(_WORDS)].format(number=number)}
    return (
        [word] if turn > _INTERRUPTION_REQUESTS else [{"role": "system", "content": _RULE.format(number=number)}, word]
    )
