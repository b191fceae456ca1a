"""What the half hour has shown, as checks that pass or fail and as a page."""

import os
import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fleet.crowd import STREAMS
from fleet.house import REPLICAS, TEAMS, Fleet
from fleet.trouble import KILL_EVERY


@dataclass(frozen=True, slots=True)
class Check:
    what: str
    found: str
    passed: bool


def verdict(made: Fleet) -> list[Check]:
    crowd, trouble, model = made.crowd, made.trouble, made.model
    return [
        Check("requests that failed though the upstream did not fail", _most(crowd.failed), not crowd.failed),
        Check("histories forwarded that break a rule they had kept", _most(model.invalid), not model.invalid),
        Check("conversations folded whose originals are not whole", str(made.lost), not made.lost),
        Check("... and those that are", f"{made.kept:,}", made.kept > 0),
        Check("faults of its own in the logs", _most(made.faults), not made.faults),
        Check("the configuration with a fault was refused by every replica", str(trouble.refused), trouble.refused),
        Check(
            "seconds until a changed policy was in force everywhere",
            f"{max(trouble.noticed, default=99):.1f}",
            max(trouble.noticed, default=99) <= 2,
        ),
    ]


def _most(counted: Counter[str]) -> str:
    return "; ".join(f"{times} x {what}" for what, times in counted.most_common(5)) or "none"


INTRO = """\
# Half an hour in which everything goes wrong

{provenance}, with Redis, an S3 server, the upstream and all clients on the same machine.

{replicas} replicas over one Redis and one bucket; {agents} agents of {teams} teams at work at once for {seconds:.0f} s.
Each sends its whole history with every turn to whichever replica is next, {streams:.0%} of them as streams; some leave
in the middle. Every {kill:.0f} s a replica is killed (SIGKILL) and started again. Also, at second

{told}

A connection that fails before an answer has begun is tried again at the next replica, as client libraries and balancers
do. An answer that had begun when its replica was killed is cut, and the agent asks again. Nothing else may fail.
Originals are `required` here: they stand on the replica's disk before anything is folded, so a kill takes none of them.
At the end each conversation of which something was folded is looked for in the bucket, and in what the killed left on
their disks for their next process; it has to stand there whole, under one name.

`cd tests && python -m fleet --markdown ../docs/fleet.md` makes this page (`make soak` runs it).
"""


def report(made: Fleet, seconds: float, agents: int) -> str:
    crowd, model = made.crowd, made.model
    done = crowd.done.total() or 1
    on = model.went_on / max(1, model.went_on + model.rewrites)
    figures = [
        ("turns answered", f"{crowd.turns:,}"),
        ("conversations", f"{crowd.conversations:,}"),
        ("replicas killed", str(made.trouble.kills)),
        ("connections tried again", f"{crowd.again:,}"),
        ("answers cut by a kill, asked for again", f"{crowd.cut:,}"),
        ("clients that left", f"{crowd.cancelled:,}"),
        ("answers by what compaction did", ", ".join(f"{name} {n / done:.0%}" for name, n in crowd.done.most_common())),
        ("forwarded requests that only went on from the one before", f"{on:.1%}"),
    ]
    intro = INTRO.format(
        provenance=_provenance(), replicas=REPLICAS, agents=agents, teams=len(TEAMS), seconds=seconds, streams=STREAMS,
        kill=KILL_EVERY, told="\n".join(f"- {line}" for line in made.trouble.told),
    )  # fmt: skip
    checks = _table(
        ("", "found", ""), [(it.what, it.found, "passed" if it.passed else "FAILED") for it in verdict(made)]
    )
    return f"{intro}\n{checks}\n\n{_table(('', ''), figures)}\n"


def _provenance() -> str:
    machine = f"{os.cpu_count()} shared cores, {platform.system()}, Python {platform.python_version()}"
    return f"{datetime.now(UTC):%Y-%m-%d}, {machine}"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
