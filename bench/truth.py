"""Truth of outcomes and instruction documents in placeholders: every result of each conversation, shortened at once.

python bench/truth.py FILE ... [--policy P] [--limit N] [--show "failures told"] [--many N]

Each conversation's last request goes through the policy with nothing kept but the newest group, so that every result
that the policy would ever shorten is shortened. What is asked of the placeholders is defined in
`proxy/lab/replay/truth.py`. `--show` prints what failed of one aspect: evidence, placeholder, and
both ends of the original.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from proxy.config.policies import resolve_policy, shipped_policies
from proxy.lab import sessions
from proxy.lab.replay.replay_history import ReplayHistory
from proxy.lab.replay.replay_values import Conversation
from proxy.lab.replay.simulation import Simulation, Trial
from proxy.lab.replay.truth import ASPECTS, Finding, find_documents, is_whole, judge_outcomes
from proxy.shorten.economics import Prices
from proxy.shorten.rules import Keep, Rules

WINDOW = 100_000_000
"""Larger than any conversation: nothing is folded."""
DOCUMENTS = "documents whole"


def shorten_everything(rules: Rules) -> Rules:
    """The same rules, at once and whatever it costs."""
    return replace(
        rules,
        always=(),
        keep=Keep(tokens=0, groups=1),
        clear_at_least=1,
        clear_cold_at_least=1,
        horizon=1e9,
        trigger=0,
        min_groups=0,
        summary=replace(rules.summary, enabled=False),
    )


def judge(conversation: Conversation, rules: Rules) -> tuple[list[Finding], list[bool]]:
    """The findings on outcomes, and of each instruction document whether it is whole."""
    history = ReplayHistory(conversation)
    turns = list(history.turns())
    if not turns:
        return [], []
    request = turns[-1].request
    messages = history.messages[: turns[-1].place]
    view = Simulation(Trial("truth", rules, WINDOW), history, Prices()).forward(turns[-1]).view
    documents = [is_whole(document, view) for document in find_documents(request.messages)]
    return list(judge_outcomes(messages, view)), documents


def read(files: Iterable[Path], limit: int) -> Iterator[Conversation]:
    conversations = [conversation for path in files for conversation in sessions.read_conversations(path)]
    yield from conversations[:: max(1, len(conversations) // limit) if limit else 1]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+")
    parser.add_argument("--policy", default="default")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--show", choices=ASPECTS)
    parser.add_argument("--many", type=int, default=20)
    args = parser.parse_args(argv)
    rules = shorten_everything(resolve_policy(args.policy, shipped_policies()).rules(args.policy))
    asked, good, shown = Counter[str](), Counter[str](), 0
    for conversation in read(args.files, args.limit):
        findings, documents = judge(conversation, rules)
        asked[DOCUMENTS] += len(documents)
        good[DOCUMENTS] += sum(documents)
        for finding in findings:
            asked[finding.aspect] += 1
            good[finding.aspect] += finding.is_good
            if finding.aspect == args.show and not finding.is_good and shown < args.many:
                shown += 1
                call = f"{finding.call.name} {finding.call.arguments[:200]}" if finding.call else ""
                original = f"{finding.original[:300]}\n ...\n{finding.original[-300:]}"
                print(
                    f"--- {conversation.name}\n{call}\n>>> {finding.evidence}\n{finding.shortened}\n<<<\n{original}\n"
                )
    for aspect in (*ASPECTS, DOCUMENTS):
        share = f"{good[aspect] / asked[aspect]:.3f}" if asked[aspect] else "-"
        print(f"{aspect:16} {good[aspect]:5,} of {asked[aspect]:5,}  {share}")


if __name__ == "__main__":
    main(sys.argv[1:])
