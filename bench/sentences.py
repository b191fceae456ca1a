"""Draw sentences that the proxy adds to requests, each with the messages that it speaks of, for readers to judge.

python bench/sentences.py FILE ... --draw 200 --seed 7 --out drawn.jsonl [--policy P] [--window N] [--kind K]
python bench/sentences.py FILE ... [--policy P] [--show KIND]

Without `--draw` it counts, and the ruler judges each sentence (`proxy/lab/replay/sentence_verdicts.py`): true, false,
or not judged. `--show` prints those of a kind that are not true. Each conversation is replayed under each policy in
each window, and once more with every result shortened at once. The same sentence about the same message counts once. As
many are drawn of each kind, so that rare ones are present: a kind's *weight* is the number of sentences that each drawn
one stands for, and the share of false sentences in all is the mean of the verdicts by weight. A file ending in `.md` is
written for people, any other as JSON lines.
"""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from proxy.config.settings import Config
from proxy.history.messages import Message
from proxy.lab import sessions
from proxy.lab.replay.replay_history import ReplayHistory
from proxy.lab.replay.replay_values import PRICES, Conversation
from proxy.lab.replay.sentence_verdicts import SentenceJudge, Verdict
from proxy.lab.replay.sentences import KINDS, History, Sentence
from proxy.lab.replay.simulation import Simulation, Trial, build_rules
from proxy.lab.replay.summarizers import StandIn
from proxy.shorten.rules import Keep, Rules

WINDOWS = (128_000, 32_000)
UNLIMITED = 100_000_000
"""A window larger than any conversation: nothing is folded."""
PRICE = PRICES["twentieth"]
HEAD_CHARACTERS, TAIL_CHARACTERS = 4_000, 2_000
PLACES_MAX = 3


class Found(Struct, frozen=True):
    """One sentence, the history that it was written about, and the ruler's verdict."""

    conversation: str
    sentence: Sentence
    history: History
    verdict: Verdict


def shorten_everything(rules: Rules) -> Rules:
    """The same rules, at once and whatever it costs."""
    return replace(
        rules,
        always=(),
        keep=Keep(tokens=0, groups=1),
        clear_at_least=1,
        trigger=0,
        min_groups=0,
        summary=replace(rules.summary, enabled=False),
    )


def list_views(history: ReplayHistory, trials: Iterable[Trial]) -> Iterator[tuple[int, Sequence[Message]]]:
    """The views of all requests, each with the number of messages that its request had."""
    turns = list(history.turns())
    for trial in trials:
        simulation = Simulation(trial, history, PRICE)
        # Of a policy that shortens everything at once the last view is enough.
        for turn in turns[-1:] if trial.window == UNLIMITED else turns:
            yield turn.place, simulation.forward(turn).view


def find_sentences(conversation: Conversation, trials: Iterable[Trial]) -> Iterator[Found]:
    """All sentences of one conversation, each once."""
    history = ReplayHistory(conversation)
    name = f"{conversation.source} {conversation.name}"
    judge = SentenceJudge()
    for place, view in list_views(history, trials):
        for sentence, verdict, so_far in judge.list_verdicts(history.messages[:place], view):
            yield Found(name, sentence, so_far, verdict)


def make_trials(policies: Sequence[str], windows: Sequence[int]) -> list[Trial]:
    trials = []
    for name in policies:
        rules = build_rules(Config().policy(name), name)
        trials += [Trial(name, rules, window, PRICE, summarizer=StandIn()) for window in windows]
        trials.append(Trial(f"{name}, at once", shorten_everything(rules), UNLIMITED, PRICE))
    return trials


def draw(sentences: Sequence[Found], size: int, seed: int) -> tuple[list[Found], dict[str, float]]:
    """About *size* sentences, as many of each kind, and by kind the weight of each of its drawn ones."""
    dice = random.Random(seed)
    strata: dict[str, list[Found]] = {}
    for found in sentences:
        strata.setdefault(found.sentence.kind, []).append(found)
    drawn, weights, room = [], {}, size
    by_size = sorted(strata, key=lambda kind: len(strata[kind]))
    for number, kind in enumerate(by_size):
        chosen = dice.sample(strata[kind], min(len(strata[kind]), room // (len(by_size) - number)))
        room -= len(chosen)
        if chosen:
            drawn += chosen
            weights[kind] = len(strata[kind]) / len(chosen)
    dice.shuffle(drawn)
    return drawn, weights


def cut(text: str) -> str:
    """The beginning and the end of a long text."""
    middle = len(text) - HEAD_CHARACTERS - TAIL_CHARACTERS
    if middle <= 0:
        return text
    return f"{text[:HEAD_CHARACTERS]}\n[... {middle:,} characters not shown to you ...]\n{text[-TAIL_CHARACTERS:]}"


def describe(found: Found, number: int, weight: float) -> dict[str, Any]:
    """What a reader is given."""
    history, sentence = found.history, found.sentence
    originals = []
    for place in sentence.places[:PLACES_MAX]:
        message, call = history.messages[place], history.callers[place]
        originals.append(
            {
                "message": place,
                "of": len(history.messages),
                "role": message.role,
                "call": cut(f"{call.name} {call.arguments}") if call is not None else "",
                "text": cut(message.text),
                "later calls": list_later_calls(found, place) if sentence.kind in LATER else [],
            }
        )
    return {
        "id": number,
        "kind": sentence.kind,
        "weight": round(weight, 2),
        "conversation": found.conversation,
        "sentence": sentence.words,
        "written": cut(sentence.context),
        "originals": originals,
        "more originals": max(0, len(sentence.places) - PLACES_MAX),
    }


LATER = ("changed since", "way back", "files changed", "files read")
"""Kinds that speak of what happened after the message, too."""


def list_later_calls(found: Found, place: int) -> list[str]:
    """Calls after *place* that name one of its files."""
    history = found.history
    call = history.callers[place]
    if call is None:
        return []
    paths = {word for word in str(call.arguments).replace('"', " ").split() if "/" in word or "." in word[1:-1]}
    names = {path.rstrip("',;:)}").rsplit("/", 1)[-1] for path in paths}
    later = []
    for later_call, index, text in reversed(history.call_texts):
        if index > place and any(len(name) > 3 and name in text for name in names):
            later.append(f"[{index}] {later_call.name} {text[:160]} -> {history.texts[index][:160]}")
    return later[:12]


def render_markdown(rows: Iterable[dict[str, Any]]) -> str:
    parts = []
    for row in rows:
        parts.append(f"## {row['id']}: {row['kind']} (weight {row['weight']})\n\n{row['conversation']}\n")
        parts.append(f"**{row['sentence']}**\n\nAll that is written there:\n\n~~~text\n{row['written']}\n~~~\n")
        for original in row["originals"]:
            parts.append(f"Message {original['message']} of {original['of']}, {original['role']}: {original['call']}\n")
            parts.append(f"~~~text\n{original['text']}\n~~~\n")
            parts += [f"- later: {line}" for line in original["later calls"]]
    return "\n".join(parts)


def print_counts(sentences: Sequence[Found]) -> None:
    """A row for each kind of sentence, and one for all."""
    print(f"{'kind':16} {'sentences':>9} {'true':>8} {'false':>6} {'not judged':>11}")
    for kind in (*KINDS, "all"):
        verdicts = Counter(found.verdict.is_true for found in sentences if kind in ("all", found.sentence.kind))
        print(f"{kind:16} {verdicts.total():9,} {verdicts[True]:8,} {verdicts[False]:6,} {verdicts[None]:11,}")


def read(files: Iterable[Path], limit: int) -> Iterator[Conversation]:
    conversations = [conversation for path in files for conversation in sessions.read_conversations(path)]
    yield from conversations[:: max(1, len(conversations) // limit) if limit else 1]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+")
    parser.add_argument("--policy", action="append", help="may be repeated (default: default)")
    parser.add_argument("--window", type=int, action="append", help="may be repeated (128000 and 32000)")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only these kinds")
    parser.add_argument("--show", choices=KINDS)
    parser.add_argument("--limit", type=int, default=0, help="about this many conversations, evenly spread")
    parser.add_argument("--draw", type=int, default=0, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("drawn.jsonl"))
    args = parser.parse_args(argv)
    trials = make_trials(args.policy or ["default"], args.window or WINDOWS)
    sentences: list[Found] = []
    for conversation in read(args.files, args.limit):
        sentences += find_sentences(conversation, trials)
    if args.kind:
        sentences = [found for found in sentences if found.sentence.kind in args.kind]
    drawn, weights = draw(sentences, args.draw, args.seed)
    print_counts(sentences)
    for found in sentences:
        if found.sentence.kind == args.show and found.verdict.is_true is not True:
            print(f"--- {found.conversation}: {found.verdict.why}\n{json.dumps(describe(found, 0, 1), indent=1)}")
    if not args.draw:
        return
    rows = [describe(found, number, weights[found.sentence.kind]) for number, found in enumerate(drawn, 1)]
    if args.out.suffix == ".md":
        text = render_markdown(rows)
    else:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    args.out.write_text(text, encoding="utf-8")
    print(f"{len(rows)} sentences in {args.out}")


if __name__ == "__main__":
    main(sys.argv[1:])
