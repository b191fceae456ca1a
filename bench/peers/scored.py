"""All peers on the same conversations: policies in the core, policies of their own, and processes on a socket.

All are judged by `proxy.lab.replay.scoring` (docs/replay-your-sessions.md defines it). A process is played turn by turn
with a recorder as its upstream, and answers are the recorded ones; what it forwarded is what is judged.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from peers.conversations import WINDOW
from peers.environments import NotInstalled, install_environment
from peers.policies import POLICIES, trials
from peers.processes import PEERS, Absent, Peer, start
from peers.recording import PeerRecorder
from proxy.lab.commands.replay import ProgressBar
from proxy.lab.demo.model import SimulatedServer
from proxy.lab.replay.replay_history import ReplayHistory
from proxy.lab.replay.replay_jobs import ResultFile, replay_all, result_key
from proxy.lab.replay.replay_values import Conversation, Result
from proxy.lab.replay.scoring import Judge, ReplayCase, UpstreamModel
from proxy.lab.replay.through import ProxyTarget, replay_through

UPSTREAM = UpstreamModel(window=WINDOW)


@dataclass(frozen=True, slots=True)
class Field:
    """Who was played, what came of it, and who could not be."""

    results: Sequence[Result]
    absent: Sequence[Absent]


def score_simulated(conversations: Sequence[Conversation], ledger: ResultFile) -> list[Result]:
    """The policies: first those that are rules of the core, then the others."""
    bar = ProgressBar(sys.stderr, "conversations under each policy")
    found = replay_all(conversations, trials(WINDOW), UPSTREAM, ledger=ledger, progress=bar)
    known = ledger.read()
    by_conversation = [_under_their_own(conversation, known, ledger) for conversation in conversations]
    return found + [results[name] for name in POLICIES for results in by_conversation]


def _under_their_own(conversation: Conversation, known: dict[str, Result], ledger: ResultFile) -> dict[str, Result]:
    keys = {name: result_key(conversation, (name, UPSTREAM)) for name in POLICIES}
    if all(key in known for key in keys.values()):
        return {name: known[each] for name, each in keys.items()}
    case = ReplayCase(ReplayHistory(conversation), UPSTREAM)
    results = {name: score_policy(case, name) for name in POLICIES}
    ledger.append((keys[name], result) for name, result in results.items())
    return results


def score_policy(case: ReplayCase, name: str) -> Result:
    """One conversation under a policy that is no rule of the core."""
    policy, judge = POLICIES[name](), Judge(case)
    for turn in case.turns:
        judge.score(turn, policy.forward(turn))
    return judge.result(name)


async def score_real(conversations: Sequence[Conversation], place: Path, ledgers: Path) -> Field:
    """The processes, one after the other; who does not install or start is left out, and why is kept."""
    results, absent = list[Result](), list[Absent]()
    for peer in PEERS:
        try:
            results += await play_through_peer(
                peer, conversations, place, ResultFile(ledgers / f"{peer.kind.name}.jsonl")
            )
        except (NotInstalled, RuntimeError, TimeoutError, OSError) as fault:
            absent.append(Absent(peer.name, last_line(fault)))
            print(f"{peer.name}: {absent[-1].why}", file=sys.stderr)
    return Field(results, absent)


async def play_through_peer(
    peer: Peer, conversations: Sequence[Conversation], place: Path, ledger: ResultFile
) -> list[Result]:
    install_environment(peer.environment)
    recorder = PeerRecorder(UPSTREAM, asks=peer.asks)
    async with SimulatedServer(recorder) as upstream:
        contestant = await asyncio.to_thread(start, peer, upstream.url.removesuffix("/v1"), place)
        try:
            door = ProxyTarget(f"{contestant.origin}/v1", peer.name)
            bar = ProgressBar(sys.stderr, f"conversations through {peer.name}")
            return await replay_through(conversations, door, recorder, ledger=ledger, progress=bar)
        finally:
            await asyncio.to_thread(contestant.stop)


def last_line(fault: Exception) -> str:
    """A log's last line, or the fault itself."""
    return next((line for line in reversed(str(fault).splitlines()) if line.strip()), type(fault).__name__)[:200]


def write_results(results: Sequence[Result], place: Path) -> None:
    """All of it, for a closer look."""
    place.write_bytes(msgspec.json.encode(results))
