"""The long run of bench/longrun.py as requests of each API, in the simulation of `replay`.

    python bench/longrun_apis.py                         # 150 turns, the default policy, a window of 128,000

The history of the run is written as a client of Chat Completions, Messages and Responses sends it. Answers come every
eight seconds, summaries from the stand-in.
"""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace
from tables import figure, table

from proxy.config.settings import Config
from proxy.lab.demo.agent import SYSTEM, TASK, TURNS, sample
from proxy.lab.demo.model import NAME, WINDOW_TOKENS
from proxy.lab.replay.replay_history import ReplayHistory
from proxy.lab.replay.replay_values import PRICES, Conversation, Scores, share
from proxy.lab.replay.scoring import Judge, ReplayCase, UpstreamModel
from proxy.lab.replay.simulation import Simulation, Trial, build_rules
from proxy.lab.replay.summarizers import StandIn
from proxy.lab.sessions.session_history import RecordedMessage, build_own_history
from proxy.wire.http_head import ApiPath

Json = dict[str, Any]
APIS = {"Chat Completions": ApiPath.CHAT, "Messages": ApiPath.MESSAGES, "Responses": ApiPath.RESPONSES}
PRICE = "tenth"


def list_messages(turns: int) -> list[Json]:
    """The messages of the run, without its instructions."""
    run = sample(turns)
    messages: list[Json] = [{"role": "user", "content": TASK}]
    for number, step in enumerate(run.steps):
        messages.append(run.answer(number))
        messages += [run.result(run.call_id(number, place)) for place in range(len(step.acts))]
    return messages


def write_blocks(answer: Json) -> Iterator[Json]:
    """An answer as blocks of Messages."""
    if answer["content"]:
        yield {"type": "text", "text": answer["content"]}
    for call in answer.get("tool_calls", ()):
        function = call["function"]
        arguments = json.loads(function["arguments"])
        yield {"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments}


def write_items(answer: Json) -> Iterator[Json]:
    """An answer as items of Responses."""
    if answer["content"]:
        part = {"type": "output_text", "text": answer["content"]}
        yield {"type": "message", "role": "assistant", "content": [part]}
    for call in answer.get("tool_calls", ()):
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}


def make_conversation(path: str, turns: int) -> Conversation:
    messages = list_messages(turns)
    conversation = Conversation("long run", "demo", tuple(messages), model=NAME)
    if path == ApiPath.CHAT:
        return replace(conversation, messages=({"role": "system", "content": SYSTEM}, *messages))
    write = write_blocks if path == ApiPath.MESSAGES else write_items
    recorded = []
    for message in messages:
        own = tuple(write(message)) if message["role"] == "assistant" else ()
        recorded.append(RecordedMessage(message, own=own))
    history = build_own_history(path, recorded)
    name = "system" if path == ApiPath.MESSAGES else "instructions"
    return replace(conversation, own=replace(history, members={**history.members, name: SYSTEM}))


def play(path: str, turns: int, policy: str, window: int) -> Scores:
    rules = build_rules(Config().policy(policy), policy)
    prices = PRICES[PRICE]
    case = ReplayCase(ReplayHistory(make_conversation(path, turns)), UpstreamModel(window))
    simulation = Simulation(Trial(policy, rules, window, prices, PRICE, StandIn()), case.history, prices)
    judge = Judge(case)
    for turn in case.turns:
        judge.score(turn, simulation.forward(turn))
    return judge.result(policy, PRICE).scores


def describe(scores: Scores) -> list[tuple[str, str]]:
    forwarded = scores.forwarded
    return [
        ("requests", f"{scores.requests:,}"),
        ("tokens of the largest request", f"{scores.peak:,}"),
        ("requests over the window", str(scores.over)),
        ("requests made invalid", str(sum(scores.invalid.values()))),
        ("rewrites", str(scores.rewrites)),
        ("summary calls", str(scores.summary_calls)),
        ("forwarded input from the cache, %", figure(100 * forwarded.cached / forwarded.read, 1)),
        ("cost at 0.1 / 1.25, % of no compaction", figure(100 * share(scores, PRICES[PRICE]), 1)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policy", default="default")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--window", type=int, default=WINDOW_TOKENS)
    args = parser.parse_args()
    columns = [describe(play(path, args.turns, args.policy, args.window)) for path in APIS.values()]
    rows = [[cells[0][0], *(value for _, value in cells)] for cells in zip(*columns, strict=True)]
    print(table(("", *APIS), rows))


if __name__ == "__main__":
    main()
