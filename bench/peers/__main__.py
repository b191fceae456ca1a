"""`python -m peers`: all peers on the same conversations and as relays, and the page about them."""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from process import CLIENTS

from peers import scored
from peers.conversations import EVERY, LEAST, choose_conversations
from peers.environments import Environment, NotInstalled, install_environment
from peers.page import Run, page
from peers.processes import PEERS
from peers.relays import ROUNDS, Relay, measure_relays
from peers.scored import Field
from proxy.lab.replay.replay_jobs import ResultFile
from proxy.lab.replay.replay_values import Conversation


def main() -> int:
    args = _parser().parse_args()
    os.sched_setaffinity(0, {CLIENTS})
    conversations = choose_conversations(args.files, args.every)
    with tempfile.TemporaryDirectory() as scratch:
        place, ledgers = Path(scratch), args.out or Path(scratch)
        ledgers.mkdir(parents=True, exist_ok=True)
        environments = install_peers()
        field = asyncio.run(score_peers(conversations, place, ledgers))
        relays = _relays(args.rounds, place)
    run = Run(describe_run(args, conversations), field.results, field.absent, environments, relays, args.rounds)
    text = page(run)
    print(text)
    if args.markdown:
        args.markdown.write_text(text, encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="peers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "files", metavar="FILE", type=Path, nargs="*", help="recorded conversations (default: a sample)"
    )
    parser.add_argument("--every", metavar="N", type=int, default=EVERY, help=f"each so manieth of them ({EVERY})")
    parser.add_argument("--out", metavar="DIR", type=Path, help="keep results here; a run that broke off goes on")
    parser.add_argument("--rounds", metavar="N", type=int, default=ROUNDS, help="of the relays; 0 leaves them out")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the page there, too")
    return parser


def install_peers() -> list[Environment]:
    """The peers that can be installed; the others are reported when they are to be started."""
    found = []
    for name in dict.fromkeys(peer.environment for peer in PEERS):
        try:
            found.append(install_environment(name))
        except NotInstalled as fault:
            print(f"{name}: {fault}", file=sys.stderr)
    return found


async def score_peers(conversations: Sequence[Conversation], place: Path, ledgers: Path) -> Field:
    policies = scored.score_simulated(conversations, ResultFile(ledgers / "policies.jsonl"))
    field = await scored.score_real(conversations, place, ledgers)
    return Field([*policies, *field.results], field.absent)


def _relays(rounds: int, place: Path) -> list[Relay]:
    return asyncio.run(measure_relays(place / "relays", rounds)) if rounds else []


def describe_run(args: argparse.Namespace, conversations: Sequence[Conversation]) -> str:
    requests = sum(
        message["role"] == "assistant" and place >= max(1, conversation.begins)
        for conversation in conversations
        for place, message in enumerate(conversation.messages)
    )
    which = (
        f"one in {args.every} of the recorded ones that have {LEAST:,} tokens" if args.files else "a generated sample"
    )
    return f"{len(conversations)} conversations, {requests:,} requests: {which}"


if __name__ == "__main__":
    sys.exit(main())
