"""Trial of a policy on kept conversations, in a process of its own (what-if).

`proxy.admin.policy_pages` writes a job and conversations to its standard input, and reads one JSON answer. The process
sees no configuration, no credential and no environment, and limits its own memory and time.

Standard input: one line with the job, then for each conversation the lines of its originals, followed by an empty line.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from proxy.config.policies import Policy
from proxy.lab.replay.replay_history import PROVIDER
from proxy.lab.replay.replay_jobs import Job, replay_job
from proxy.lab.replay.replay_values import PICO_PER_DOLLAR, PRICES, Conversation, Scores
from proxy.lab.replay.scorecard import Row
from proxy.lab.replay.scoring import UpstreamModel
from proxy.lab.replay.simulation import Trial, build_rules
from proxy.lab.replay.summarizers import StandIn
from proxy.lab.sessions import proxy_transcripts
from proxy.lab.sessions.session_files import ParsedFile
from proxy.lab.sessions.session_history import build_conversation
from proxy.models.windows import resolve_window

DEFAULT_WINDOW_TOKENS = 128_000
"""Assumed for models whose window is not known."""
NICENESS_LEVELS = 10
_PRICES = PRICES["tenth"]


class TimeUpError(Exception):
    """The job's seconds are over."""


def main(source: BinaryIO) -> dict[str, Any]:
    """The answer to the job in `source`: the results that were ready within its time."""
    job = json.loads(source.readline())
    os.nice(NICENESS_LEVELS)
    resource.setrlimit(resource.RLIMIT_AS, (job["memory_bytes"], job["memory_bytes"]))
    policies = [(entry["name"], Policy.model_validate(entry["policy"])) for entry in job["policies"]]
    rows: list[list[Scores]] = [[] for _ in policies]
    done = 0
    signal.signal(signal.SIGALRM, _raise_time_up)
    signal.setitimer(signal.ITIMER_REAL, job["seconds"])
    try:
        for number, lines in enumerate(_read_conversations(source)):
            conversations = list(_branches(f"{number}", lines))
            scores_list = [scores for entry in conversations for scores in _score(entry, policies, job["window"])]
            for place, scores in enumerate(scores_list):
                rows[place % len(policies)].append(scores)
            done += bool(conversations)
    except TimeUpError:
        pass  # the answer is about the conversations before this one
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    outcomes = [_outcome(name, Row(scores, _PRICES)) for (name, _), scores in zip(policies, rows, strict=True)]
    return {"conversations": done, "outcomes": outcomes}


def _raise_time_up(*_: object) -> NoReturn:
    raise TimeUpError


def _read_conversations(source: BinaryIO) -> Iterator[list[bytes]]:
    lines: list[bytes] = []
    for line in source:
        if line.strip():
            lines.append(line)
        else:
            yield lines
            lines = []


def _branches(name: str, lines: list[bytes]) -> Iterator[Conversation]:
    """Each branch of a kept conversation."""
    values = tuple(value for value in map(_parse, lines) if value)
    for chapter in proxy_transcripts.chapters(ParsedFile(Path(name), values)):
        conversation, _ = build_conversation(chapter, name, "transcripts")
        if conversation is not None:
            yield conversation


def _parse(line: bytes) -> Any:  # noqa: ANN401 (JSON)
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _score(conversation: Conversation, policies: list[tuple[str, Policy]], window: int | None) -> list[Scores]:
    tokens = window or resolve_window(conversation.model).total or DEFAULT_WINDOW_TOKENS
    trials = [_trial(place, name, policy, tokens) for place, (name, policy) in enumerate(policies)]
    return [result.scores for result in replay_job(Job(conversation, trials, UpstreamModel(tokens, PROVIDER)))]


def _trial(place: int, name: str, policy: Policy, window: int) -> Trial:
    rules = build_rules(policy, name)
    return Trial(
        name=f"{place} {name}",  # the same policy may be held against itself
        rules=rules,
        window=window,
        prices=None,
        summarizer=StandIn() if rules.summary.enabled else None,
        patience=policy.summary.wait,
    )


def _outcome(name: str, row: Row) -> dict[str, Any]:
    scores = row.scores
    return {
        "policy": name,
        "requests": scores.requests,
        "tokens_sent": scores.raw.read,
        "tokens_forwarded": scores.forwarded.read,
        "cached_share": round(scores.forwarded.cached / scores.forwarded.read, 4) if scores.forwarded.read else None,
        "cost_share": round(row.cost, 4),
        "cost_with_rereads_share": round(row.cost_with_rereads, 4),
        "dollars": scores.bill / PICO_PER_DOLLAR,
        "dollars_without": scores.raw_bill / PICO_PER_DOLLAR,
        "priced": scores.priced,
        "rewrites": scores.rewrites,
        "peak": scores.peak,
        "over_window": scores.over,
        "summaries": scores.summary_calls,
        "spans": None if row.spans.value is None else round(row.spans.value, 4),
        "lambda": None if row.break_even is None else round(row.break_even, 2),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.stdin.buffer)))
