"""What the half hour has shown, as checks that pass or fail and as a page."""

import os
import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import proxy
from tests.end_to_end.fleet.clients import STREAMS
from tests.end_to_end.fleet.deployment import REPLICAS, TEAMS, Fleet
from tests.end_to_end.fleet.faults import KILL_EVERY


@dataclass(frozen=True, slots=True)
class Check:
    what: str
    found: str
    passed: bool


def find_results(made: Fleet, notice_seconds: float = 2) -> list[Check]:
    """`notice_seconds`: within which every replica has to follow a changed file."""
    clients, faults_injected, model = made.clients, made.faults_injected, made.model
    return [
        Check("failed requests, failures of the upstream aside", _most_common(clients.failed), not clients.failed),
        Check(
            "forwarded histories that break a rule the input had kept", _most_common(model.invalid), not model.invalid
        ),
        Check("shortened conversations with incomplete originals", str(made.lost), not made.lost),
        Check("shortened conversations with complete originals", f"{made.kept:,}", made.kept > 0),
        Check("internal errors in the logs", _most_common(made.faults), not made.faults),
        Check("every replica refused the faulty configuration", str(faults_injected.refused), faults_injected.refused),
        Check(
            "seconds until a changed policy was in effect everywhere",
            f"{max(faults_injected.noticed, default=99):.1f}",
            max(faults_injected.noticed, default=99) <= notice_seconds,
        ),
    ]


def _most_common(counted: Counter[str]) -> str:
    return "; ".join(f"{times} x {what}" for what, times in counted.most_common(5)) or "none"


INTRO = """\
# Fleet test: half an hour of failures

{provenance}.
Redis, an S3 server, the upstream and all clients are on the same machine.

{replicas} replicas share one Redis and one bucket; {agents} agents of {teams} teams work at the same time for
{seconds:.0f} s. Each sends its whole history with every turn to the next replica in rotation, {streams:.0%} of the
requests as streams; some disconnect in the middle. Every {kill:.0f} s a replica is killed (SIGKILL) and started again.
In addition, at second

{told}

A connection that fails before a response has begun is retried at the next replica. A response that had begun when its
replica was killed is cut, and the agent asks again. No other request may fail.

`transcripts.required` is on, so a kill loses no original. At the end, each conversation that was shortened has to be in
the bucket or in the spools as a whole, under one name.

`python -m tests.end_to_end.fleet --markdown docs/fleet.md` writes this page (`make soak` runs it).
"""


def report(made: Fleet, seconds: float, agents: int) -> str:
    clients, model = made.clients, made.model
    done = clients.done.total() or 1
    on = model.went_on / max(1, model.went_on + model.rewrites)
    figures = [
        ("answered turns", f"{clients.turns:,}"),
        ("conversations", f"{clients.conversations:,}"),
        ("kills of replicas", str(made.faults_injected.kills)),
        ("connections retried", f"{clients.again:,}"),
        ("responses cut by a kill, requested again", f"{clients.cut:,}"),
        ("clients that disconnected", f"{clients.cancelled:,}"),
        ("responses by `x-compaction`", ", ".join(f"{name} {n / done:.0%}" for name, n in clients.done.most_common())),
        ("forwarded requests that only extend the one before", f"{on:.1%}"),
    ]
    intro = INTRO.format(
        provenance=_provenance(), replicas=REPLICAS, agents=agents, teams=len(TEAMS), seconds=seconds, streams=STREAMS,
        kill=KILL_EVERY, told="\n".join(f"- {line}" for line in made.faults_injected.event_log),
    )  # fmt: skip
    checks = _table(
        ("", "found", ""), [(it.what, it.found, "passed" if it.passed else "FAILED") for it in find_results(made)]
    )
    return f"{intro}\n{checks}\n\n{_table(('', ''), figures)}\n"


def _provenance() -> str:
    machine = f"{os.cpu_count()} shared cores, {platform.system()}, Python {platform.python_version()}"
    return f"{datetime.now(UTC):%Y-%m-%d}, {machine}, compaction-proxy {proxy.__version__}"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
