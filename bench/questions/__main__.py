"""Questions about recorded conversations, answered from the views that policies forward.

PYTHONPATH=bench python -m questions FOLDER [--policy NAME] [--policy NAME={SETTINGS}] [--show]

FOLDER holds the recorded conversations, one file for each source. Each conversation is replayed up to its checkpoint
through the code that serves, with a window of 128,000 tokens and cached tokens at a tenth of the price. No model writes
summaries: what a view tells is what the proxy itself left or wrote. A policy is one that `replay` knows, or the
default with some settings changed, written as YAML: 'plain={clear_at_least: 30000}'.

`no results` answers from everything but results, `whole history` from everything. The second must answer all questions,
or a question is wrong: then nothing else is shown. `of shortened` is the share among the questions of which the policy
has shortened every result that has the answer, with their number: policies that cut later have fewer of them.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml
from tables import figure, table

from proxy.config.policies import Policy
from proxy.config.settings import Config
from proxy.lab import sessions
from proxy.lab.commands.replay import PUBLISHED_POLICIES
from proxy.lab.replay.designs import DESIGNS
from proxy.lab.replay.replay_history import ReplayHistory
from proxy.lab.replay.replay_values import Conversation
from proxy.lab.replay.simulation import Simulation, Trial, build_rules
from proxy.shorten.economics import Prices
from proxy.shorten.rules import Rules
from questions.judge import KINDS, Checkpoint, Question, Verdict, judge, judge_bounds, read_checkpoints

WINDOW = 128_000
PRICES = Prices(0.1)
NO_RESULTS, WHOLE = "no results", "whole history"


@dataclass(frozen=True)
class Answer:
    """What one policy's view does with one question."""

    policy: str
    conversation: str
    question: Question
    verdict: Verdict


def build_policy(text: str) -> tuple[str, Rules]:
    """Return the name and the rules of a policy: of a known name, or of `NAME={SETTINGS}`."""
    name, _, settings = text.partition("=")
    if settings:
        config = Config(policies={name: Policy.model_validate(yaml.safe_load(settings))})
        return name, build_rules(config.policy(name), name)
    if name in DESIGNS:
        return name, DESIGNS[name]
    return name, build_rules(Config().policy(name), name)


def read_traces(folder: Path, checkpoints: Sequence[Checkpoint]) -> dict[str, Conversation]:
    """Return the conversations of the checkpoints by name. Their names begin with that of their file."""
    names = {checkpoint.conversation for checkpoint in checkpoints}
    traces = dict[str, Conversation]()
    for source in sorted({name.rpartition(" ")[0] for name in names}):
        for conversation in sessions.read_conversations(folder / f"{source}.jsonl.gz"):
            if conversation.name in names:
                traces[conversation.name] = conversation
    return traces


def ask(checkpoint: Checkpoint, conversation: Conversation, policies: Mapping[str, Rules]) -> list[Answer]:
    """Answer the questions of a checkpoint from the view of each policy, and from the two bounds."""
    history = ReplayHistory(conversation)
    turns = [turn for turn in history.turns() if turn.place <= checkpoint.place]
    originals = history.messages[: checkpoint.place]
    answers = list[Answer]()
    for question in checkpoint.questions:
        lower, upper = judge_bounds(question, originals)
        answers.append(Answer(NO_RESULTS, checkpoint.conversation, question, lower))
        answers.append(Answer(WHOLE, checkpoint.conversation, question, upper))
    for name, rules in policies.items():
        simulation = Simulation(Trial(name, rules, WINDOW, PRICES, summarizer=None), history, PRICES)
        view = [simulation.forward(turn).view for turn in turns][-1]
        for question in checkpoint.questions:
            answers.append(Answer(name, checkpoint.conversation, question, judge(question, originals, view)))
    return answers


def ask_all(
    folder: Path, checkpoints: Sequence[Checkpoint], policies: Mapping[str, Rules], jobs: int
) -> Iterator[Answer]:
    """Answer the questions of all checkpoints, several at once."""
    traces = read_traces(folder, checkpoints)
    conversations = [traces[checkpoint.conversation] for checkpoint in checkpoints]
    with ProcessPoolExecutor(jobs) as pool:
        for answers in pool.map(partial(ask, policies=policies), checkpoints, conversations):
            yield from answers


def print_scores(answers: Sequence[Answer]) -> str:
    """A row for each policy: the share of answered questions, of all, of those with shortened sources and by kind, and
    the number of false answers.
    """
    counts = Counter(answer.question.kind for answer in answers if answer.policy == WHOLE)
    kinds = [kind for kind in KINDS if counts[kind]]
    head = ["policy", "answered", "of shortened", *(f"{kind} ({counts[kind]})" for kind in kinds), "false answers"]
    rows = list[list[str]]()
    for policy in dict.fromkeys(answer.policy for answer in answers):
        own = [answer for answer in answers if answer.policy == policy]
        shortened = [answer for answer in own if answer.verdict.is_shortened]
        groups = [own, *([answer for answer in own if answer.question.kind == kind] for kind in kinds)]
        false = sum(answer.verdict.is_false for answer in own)
        shares = list(map(_share, groups))
        shares.insert(1, f"{_share(shortened)} of {len(shortened)}")
        rows.append([policy, *shares, str(false)])
    return table(head, rows)


def _share(answers: Sequence[Answer]) -> str:
    if not answers:
        return "-"
    return figure(sum(answer.verdict.is_answered for answer in answers) / len(answers), 2)


def list_missed(answers: Sequence[Answer]) -> Iterator[str]:
    """A line for each question that a view answers falsely or not at all."""
    for answer in answers:
        if answer.verdict.is_false or not answer.verdict.is_answered:
            what = "false" if answer.verdict.is_false else "missed"
            yield f"{answer.policy}: {what}: {answer.conversation}: {answer.question.text}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="questions", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder of the recorded conversations")
    parser.add_argument("--policy", action="append", metavar="P", help="only this policy; may be repeated")
    parser.add_argument("--show", action="store_true", help="list the questions that each policy misses")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes (default 1)")
    args = parser.parse_args()
    checkpoints = read_checkpoints()
    policies = dict(build_policy(text) for text in args.policy or PUBLISHED_POLICIES)
    answers = list(ask_all(args.folder, checkpoints, policies, args.jobs))
    wrong = [answer for answer in answers if answer.policy == WHOLE and not answer.verdict.is_answered]
    if wrong:
        print("Not answered by the whole history:", *list_missed(wrong), sep="\n", file=sys.stderr)
        return 1
    questions = sum(len(checkpoint.questions) for checkpoint in checkpoints)
    print(f"{questions} questions at {len(checkpoints)} checkpoints, a window of {WINDOW:,} tokens, no summaries\n")
    print(print_scores(answers))
    if args.show:
        print("", *list_missed([answer for answer in answers if answer.policy != NO_RESULTS]), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
