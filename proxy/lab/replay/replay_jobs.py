"""Many conversations under many policies: in parallel, and a run that broke off goes on where it was.

What a conversation came to under a policy depends on these two alone, so it does not matter which process does it or
when; the results come back in the order of the policies and conversations that were asked for.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from os import SEEK_END
from pathlib import Path
from typing import BinaryIO

import msgspec

from proxy.lab.replay.replay_history import ReplayHistory
from proxy.lab.replay.replay_values import Conversation, Result
from proxy.lab.replay.scoring import Judge, ReplayCase, UpstreamModel
from proxy.lab.replay.simulation import Simulation, Trial
from proxy.shorten.economics import compute_relative_prices

VERSION = 3
"""Of the measures: kept results of another version are not used again."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
Progress = Callable[[int, int], None]
"""Called with the number of conversations that are done, and of all."""


@dataclass(frozen=True, slots=True)
class Job:
    """One conversation, and the trials that are still to be run on it."""

    conversation: Conversation
    trials: Sequence[Trial]
    upstream: UpstreamModel


def replay_job(job: Job) -> list[Result]:
    """A conversation through each policy at each price model."""
    case = ReplayCase(ReplayHistory(job.conversation), job.upstream)
    policies: dict[str, list[Trial]] = {}
    for trial in job.trials:
        policies.setdefault(trial.name, []).append(trial)
    return [result for trials in policies.values() for result in _replay_policy(case, trials)]


def _replay_policy(case: ReplayCase, trials: Sequence[Trial]) -> Iterator[Result]:
    """The results of one policy.

    The cheaper cached input is, the longer a rewrite takes to pay. So if the same is forwarded at the dearest and at
    the cheapest, it is at all prices between, and is not simulated again.
    """
    by_price = sorted(trials, key=lambda trial: 0.0 if trial.prices is None else trial.prices.read)
    ends = [_replay_trial(case, trial) for trial in (by_price[0], *by_price[1:][-1:])]
    yield from ends
    is_same = ends[0].points == ends[-1].points and all(trial.prices for trial in trials)
    for trial in by_price[1:-1]:
        yield replace(ends[0], prices=trial.price_model) if is_same else _replay_trial(case, trial)


def _replay_trial(case: ReplayCase, trial: Trial) -> Result:
    simulation, judge = (
        Simulation(trial, case.history, compute_relative_prices(case.prices)),
        Judge(case, trial.rules.pins),
    )
    for turn in case.turns:
        judge.score(turn, simulation.forward(turn))
    return judge.result(trial.name, trial.price_model)


@dataclass(frozen=True, slots=True)
class ResultFile:
    """File of finished results, so that an interrupted run continues; without a path nothing is kept."""

    path: Path | None = None

    def read(self) -> dict[str, Result]:
        if self.path is None or not self.path.exists():
            return {}
        rows = filter(None, map(_row, self.path.read_bytes().splitlines()))
        return {key: msgspec.convert(result, Result) for key, result in rows}

    def append(self, rows: Iterable[tuple[str, Result]]) -> None:
        if self.path is not None:
            with self.path.open("ab+") as file:
                file.write(b"" if _is_whole(file) else b"\n")
                file.writelines(msgspec.json.encode({"key": key, "result": result}) + b"\n" for key, result in rows)


def _is_whole(file: BinaryIO) -> bool:
    """True when the last row was written completely."""
    size = file.seek(0, SEEK_END)
    file.seek(max(0, size - 1))
    return file.read() in (b"", b"\n")


def _row(line: bytes) -> tuple[str, object] | None:
    """None for one that was cut off when the run was."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row["key"], row["result"]


def result_key(conversation: Conversation, setting: object) -> str:
    """A key that differs for other settings and for other conversations of the same name."""
    return setting_key(hash_conversation(conversation), setting)


def hash_conversation(conversation: Conversation) -> bytes:
    content = json.dumps(asdict(conversation), sort_keys=True, default=str).encode("utf-8", "surrogatepass")
    return blake2b(content, digest_size=12).digest()


def setting_key(conversation_hash: bytes, setting: object) -> str:
    """Addresses of functions among the rules are left out: they differ from run to run."""
    text = _ADDRESS.sub("", repr(setting))
    return blake2b(b"%d %b %b" % (VERSION, text.encode(), conversation_hash), digest_size=12).hexdigest()


def replay_all(
    conversations: Sequence[Conversation],
    trials: Sequence[Trial],
    upstream: UpstreamModel,
    *,
    ledger: ResultFile = ResultFile(),
    jobs: int = 1,
    progress: Progress = lambda _done, _all: None,
) -> list[Result]:
    """Every policy over every conversation."""
    keys = {}
    for conversation in conversations:
        conversation_hash = hash_conversation(conversation)
        for trial in trials:
            name = trial.name, trial.price_model, conversation.name
            keys[name] = setting_key(conversation_hash, (trial, upstream))
    known = ledger.read()
    found = {pair: known[name] for pair, name in keys.items() if name in known}
    left = list(_missing_jobs(conversations, trials, upstream, found))
    done = len(conversations) - len(left)
    progress(done, len(conversations))
    for results in _run_jobs(left, jobs):
        rows = {(result.policy, result.prices, result.conversation): result for result in results}
        ledger.append((keys[pair], result) for pair, result in rows.items())
        found |= rows
        done += 1
        progress(done, len(conversations))
    return [found[trial.name, trial.price_model, each.name] for trial in trials for each in conversations]


def _missing_jobs(
    conversations: Iterable[Conversation],
    trials: Sequence[Trial],
    upstream: UpstreamModel,
    found: Mapping[tuple[str, str, str], Result],
) -> Iterator[Job]:
    for conversation in conversations:
        missing = [trial for trial in trials if (trial.name, trial.price_model, conversation.name) not in found]
        if missing:
            yield Job(conversation, missing, upstream)


def _run_jobs(left: Sequence[Job], jobs: int) -> Iterator[list[Result]]:
    """The results of each conversation, in the order in which they are done."""
    if jobs <= 1:
        yield from map(replay_job, left)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(replay_job, job) for job in left]):
            yield future.result()
