"""Many conversations under many policies, in parallel; an interrupted run continues.

A result depends on conversation and policy alone, so any process may compute it. Results come back in the order of the
policies and conversations.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from hashlib import blake2b
from os import SEEK_END
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from proxy.lab.replay.designs import NOTHING
from proxy.lab.replay.replay_history import ReplayHistory
from proxy.lab.replay.replay_values import Conversation, Result
from proxy.lab.replay.scoring import Judge, ReplayCase, UpstreamModel
from proxy.lab.replay.simulation import Simulation, Trial
from proxy.shorten.economics import compute_relative_prices
from proxy.shorten.rules import DEAR_READ_SHARE

VERSION = 6
"""Stored results of another version of the measures are not used again."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
Progress = Callable[[int, int], None]
"""Called with the number of finished conversations, and of all."""


class Job(Struct, frozen=True):
    conversation: Conversation
    trials: Sequence[Trial]
    upstream: UpstreamModel


def replay_job(job: Job) -> list[Result]:
    history = ReplayHistory(job.conversation, has_client_marks=job.upstream.habit.has_client_marks)
    case = ReplayCase(history, job.upstream)
    policies: dict[str, list[Trial]] = {}
    for trial in job.trials:
        policies.setdefault(trial.name, []).append(trial)
    return [result for trials in policies.values() for result in _replay_policy(case, trials)]


def _replay_policy(case: ReplayCase, trials: Sequence[Trial]) -> Iterator[Result]:
    """One replay stands for all prices at which cached tokens are not dear: no rule tells them apart."""
    cheap_result: Result | None = None
    for trial in trials:
        is_cheap = trial.prices is not None and trial.prices.read < DEAR_READ_SHARE
        if is_cheap and cheap_result is not None:
            yield replace(cheap_result, prices=trial.price_model)
            continue
        result = _replay_trial(case, trial)
        if is_cheap:
            cheap_result = result
        yield result


def _replay_trial(case: ReplayCase, trial: Trial) -> Result:
    simulation = Simulation(trial, case.history, compute_relative_prices(case.prices))
    judge = Judge(case, trial.rules.pins, is_proxied=trial.name != NOTHING)
    for turn in case.turns:
        judge.score(turn, simulation.forward(turn))
    return judge.result(trial.name, trial.price_model)


class ResultFile(Struct, frozen=True):
    """Finished results, so that an interrupted run continues; without a path nothing is stored."""

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
    """Was the last row written completely?"""
    size = file.seek(0, SEEK_END)
    file.seek(max(0, size - 1))
    return file.read() in (b"", b"\n")


def _row(line: bytes) -> tuple[str, object] | None:
    """Return None for a row that was cut off."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row["key"], row["result"]


def result_key(conversation: Conversation, setting: object) -> str:
    """Differs for other settings, and for other conversations of the same name."""
    return setting_key(hash_conversation(conversation), setting)


def hash_conversation(conversation: Conversation) -> bytes:
    content = json.dumps(to_builtins(conversation), sort_keys=True).encode("utf-8", "surrogatepass")
    return blake2b(content, digest_size=12).digest()


def setting_key(conversation_hash: bytes, setting: object) -> str:
    """Addresses of functions among the rules differ from run to run."""
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
    keys = {}
    for conversation in conversations:
        conversation_hash = hash_conversation(conversation)
        for trial in trials:
            name = trial.name, trial.price_model, conversation.name
            keys[name] = setting_key(conversation_hash, (trial, upstream))
    stored_results = ledger.read()
    results_by_name = {pair: stored_results[name] for pair, name in keys.items() if name in stored_results}
    missing_jobs = list(_missing_jobs(conversations, trials, upstream, results_by_name))
    done = len(conversations) - len(missing_jobs)
    progress(done, len(conversations))
    for results in _run_jobs(missing_jobs, jobs):
        rows = {(result.policy, result.prices, result.conversation): result for result in results}
        ledger.append((keys[pair], result) for pair, result in rows.items())
        results_by_name |= rows
        done += 1
        progress(done, len(conversations))
    return [
        results_by_name[trial.name, trial.price_model, recording.name]
        for trial in trials
        for recording in conversations
    ]


def _missing_jobs(
    conversations: Iterable[Conversation],
    trials: Sequence[Trial],
    upstream: UpstreamModel,
    results_by_name: Mapping[tuple[str, str, str], Result],
) -> Iterator[Job]:
    for conversation in conversations:
        missing = [
            trial for trial in trials if (trial.name, trial.price_model, conversation.name) not in results_by_name
        ]
        if missing:
            yield Job(conversation, missing, upstream)


def _run_jobs(missing_jobs: Sequence[Job], jobs: int) -> Iterator[list[Result]]:
    """In the order in which they are done."""
    if jobs <= 1:
        yield from map(replay_job, missing_jobs)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(replay_job, job) for job in missing_jobs]):
            yield future.result()
