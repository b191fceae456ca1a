"""Checkpoints of recorded conversations, whole and as policies forward them, for readers to go on from.

python bench/paired.py questions PICKS.json --out OUT                     the question for each summary
python bench/paired.py views PICKS.json --out OUT [--policy P ...]        each checkpoint whole and forwarded
python bench/paired.py tally OUT                                          the means of the judges' verdicts

PICKS.json: {"00": ["DIR/file.jsonl.gz", conversation number, request number], ...}. A reader answers
OUT/question-K-N.txt as the model of that conversation would, in OUT/summary-K-N.txt; `views` then uses it. Fresh
readers each read a checkpoint in one condition only and name their next step, the state of the work, and the faults
that they see. Judges read the whole conversation and the shuffled answers, and write OUT/verdict-K.json: {condition:
{measure: number}}.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from proxy.config.policies import Policy
from proxy.config.settings import Config
from proxy.decide.question import Question, list_tries
from proxy.history.request import Request
from proxy.lab import sessions
from proxy.lab.replay.replay_history import ReplayHistory, RequestTurn
from proxy.lab.replay.replay_values import PRICES, Conversation
from proxy.lab.replay.simulation import Sent, Simulation, Trial, build_rules
from proxy.lab.replay.summarizers import StandIn, SummaryAnswer, SummaryRequest
from proxy.shorten.pipeline import estimate_tokens
from proxy.shorten.summary import SummaryReply

WINDOW, PRICE = 128_000, PRICES["twentieth"]
POLICIES = ("with-summary", "without-summary", "thrifty")
SUMMARIES = {"with-summary": True, "without-summary": False}
"""`default` with and without summaries; other names are policies."""


class Reader:
    """Answers a question for a summary from a file if there is one."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self._key = key
        self._count = 0

    def answer(self, question: Question, turn: RequestTurn, history: ReplayHistory, room: int | None) -> SummaryAnswer:
        put = next(list_tries(question, room, estimate_tokens), None)
        if put is None:
            return SummaryAnswer("", (), 0.0)
        number, self._count = self._count, self._count + 1
        raws = [message.raw for message in put.messages]
        (self._folder / f"question-{self._key}-{number}.txt").write_text(render(raws), encoding="utf-8")
        answer = self._folder / f"summary-{self._key}-{number}.txt"
        if not answer.exists():
            return StandIn().answer(question, turn, history, room)
        text = question.verdict(SummaryReply(answer.read_text(encoding="utf-8")), estimate_tokens).text
        asked = tuple(history.ask(turn.request, put, question.summary.max_tokens))
        return SummaryAnswer(text, (SummaryRequest(asked, estimate_tokens(text.encode())),), 30.0)


def render(raws: list[bytes]) -> str:
    """Write messages as a person reads them."""
    lines = []
    for number, raw in enumerate(raws):
        message = json.loads(raw)
        of_call = f" (result of {message.get('tool_call_id')})" if message["role"] == "tool" else ""
        lines.append(f"=== {number} {message['role']}{of_call}")
        lines += _list_texts(message.get("content"))
        for call in message.get("tool_calls") or ():
            lines.append(f"-> CALL {call['function']['name']} {call['function']['arguments']}")
    return "\n".join(lines)


def _list_texts(content: Any) -> list[str]:  # noqa: ANN401 (JSON)
    if isinstance(content, str):
        return [content]
    parts = [part for part in content or () if isinstance(part, dict)]
    return [part.get("text") or part.get("thinking") or f"[{part.get('type')}]" for part in parts]


def choose_policy(name: str) -> Policy:
    policies = {}
    if name in SUMMARIES:
        policies = {name: Policy.model_validate({"summary": {"enabled": SUMMARIES[name]}})}
    return Config(policies=policies).policy(name)


def forward(conversation: Conversation, policy: str, key: str, last: int, folder: Path) -> tuple[Request, Sent]:
    """Replay up to a request; return it, and what is forwarded."""
    rules = build_rules(choose_policy(policy), policy)
    history = ReplayHistory(conversation)
    simulation = Simulation(Trial(policy, rules, WINDOW, PRICE, "twentieth", Reader(folder, key)), history, PRICE)
    for turn in history.turns():
        sent = simulation.forward(turn)
        if turn.number == last:
            return turn.request, sent
    raise SystemExit(f"{key}: there is no request {last}")


def read_picks(path: Path) -> Iterator[tuple[str, Conversation, int]]:
    for key, (file, number, request) in json.loads(path.read_text(encoding="utf-8")).items():
        for conversation in sessions.read_conversations(Path(file)):
            if conversation.name.split()[-1] == str(number):
                yield key, conversation, request


def tally(folder: Path) -> None:
    """Print the mean of each measure by condition."""
    values = defaultdict[tuple[str, str], list[float]](list)
    for path in sorted(folder.glob("verdict-*.json")):
        for condition, measures in json.loads(path.read_text(encoding="utf-8")).items():
            for measure, value in measures.items():
                values[condition, measure].append(float(value))
    for (condition, measure), numbers in values.items():
        print(f"{condition:18}{measure:24}{fmean(numbers):8.2f}  of {len(numbers)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("act", choices=("questions", "views", "tally"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--out", type=Path, default=Path("paired"))
    parser.add_argument("--policy", action="append")
    args = parser.parse_args()
    if args.act == "tally":
        tally(args.path)
        return
    args.out.mkdir(exist_ok=True)
    policies = ["with-summary"] if args.act == "questions" else args.policy or POLICIES
    for key, conversation, number in read_picks(args.path):
        for policy in policies:
            request, sent = forward(conversation, policy, key, number, args.out)
            whole, view = [[message.raw for message in messages] for messages in (request.messages, sent.view)]
            if args.act == "views":
                (args.out / f"{key}-{policy}.txt").write_text(render(view), encoding="utf-8")
                (args.out / f"{key}-whole.txt").write_text(render(whole), encoding="utf-8")
            print(key, policy, *(sum(map(estimate_tokens, raws)) for raws in (whole, view)), flush=True)


if __name__ == "__main__":
    main()
