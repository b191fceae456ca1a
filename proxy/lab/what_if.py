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
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from proxy.config.policies import Policy
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


class TimeUpError(Exception):
    """The job's seconds are over."""


def main(source: BinaryIO) -> dict[str, Any]:
    """Return the results that were ready within the job's time."""
    job = json.loads(source.readline())
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_AS, (job["memory_bytes"], job["memory_bytes"]))
    policies = [(entry["name"], Policy.model_validate(entry["policy"])) for entry in job["policies"]]
    scores: list[list[Scores]] = []
    """Of each branch under each policy."""
    done = 0
    signal.signal(signal.SIGALRM, _raise_time_up)
    signal.setitimer(signal.ITIMER_REAL, job["seconds"])
    try:
        for lines in _read_conversations(source):
            branch_scores = [_score(branch, policies) for branch in _list_branches(lines)]
            scores += branch_scores
            done += bool(branch_scores)
    except TimeUpError:
        pass  # the answer is about the conversations before this one
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    rows = [Row([branch[number] for branch in scores], PRICES["tenth"]) for number in range(len(policies))]
    return {"conversations": done, "outcomes": [_describe(row) for row in rows]}


def _raise_time_up(*_: object) -> NoReturn:
    raise TimeUpError


def _read_conversations(source: BinaryIO) -> Iterator[list[Any]]:
    values: list[Any] = []
    for line in source:
        if not line.strip():
            yield values
            values = []
            continue
        with suppress(ValueError, RecursionError):
            values.append(json.loads(line))


def _list_branches(values: list[Any]) -> Iterator[Conversation]:
    for chapter in proxy_transcripts.chapters(ParsedFile(Path(), tuple(values))):
        conversation, _ = build_conversation(chapter, "", "transcripts")
        if conversation is not None:
            yield conversation


def _score(conversation: Conversation, policies: list[tuple[str, Policy]]) -> list[Scores]:
    window = resolve_window(conversation.model).total or DEFAULT_WINDOW_TOKENS
    trials = []
    for number, (name, policy) in enumerate(policies):
        rules = build_rules(policy, name)
        summarizer = StandIn() if rules.summary.enabled else None
        # Numbered: a policy may be compared with itself.
        trials.append(Trial(f"{number} {name}", rules, window, summarizer=summarizer, patience=policy.summary.wait))
    return [result.scores for result in replay_job(Job(conversation, trials, UpstreamModel(window)))]


def _describe(row: Row) -> dict[str, Any]:
    scores = row.scores
    read_tokens = scores.forwarded.read
    return {
        "requests": scores.requests,
        "tokens_sent": scores.raw.read,
        "tokens_forwarded": read_tokens,
        "cached_share": scores.forwarded.cached / read_tokens if read_tokens else None,
        "cost_share": row.cost,
        "cost_with_rereads_share": row.cost_with_rereads,
        "dollars": scores.bill / PICO_PER_DOLLAR,
        "priced": scores.priced,
        "rewrites": scores.rewrites,
        "peak": scores.peak,
        "over_window": scores.over,
        "summaries": scores.summary_calls,
        "spans": row.spans.value,
        "refetches": scores.refetched,
        "lambda": row.break_even,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.stdin.buffer)))
