"""The sixty steps, the directory they are done in, and what is printed there.

An operator reads code, looks for what is wrong, charges a card, deploys (once in vain), pushes, writes a mail. What
changes the world is a tool of its own where the agent has one for it, and otherwise a command.
"""

import json
import shlex
import shutil
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.end_to_end.agents.errands import outputs
from tests.end_to_end.agents.task import WORD, Read, commit_all

MOST_OF_A_FILE = 18_000
BRIEF = f"""\
Work through today's errands of the shop, one after the other, as the run book in AGENTS.md has it. Do not stop in \
between, and do nothing twice that costs money or reaches customers. When all is done, close with the word {WORD}."""

RULES = """\
# Run book of the shop

This directory is the operator's. The code of the services is in service/, one file each; the commands `shopctl`,
`psql`, `kubectl`, `terraform`, `gh` and `npm` are set up for production. Ask nobody: the errands are agreed.

## Money

All amounts are integer cents. Never write an amount as a decimal, in code, in a mail or in a ticket.

## Deploys

Only through `shopctl deploy`. Never deploy on a Friday after 14:00. A deploy that is rolled back is looked into before
the next one.

## Habits

Read a file before you say what it does. Say in one sentence what you are about to do, then do it. Keep the log of the
day short; whoever takes over reads the last page only.
"""


@dataclass(frozen=True, slots=True)
class Run:
    """A command that shows something."""

    command: str


@dataclass(frozen=True, slots=True)
class Act:
    """What changes the world: a tool, where there is one, or else the command."""

    tool: str
    arguments: Mapping[str, Any]
    command: str


@dataclass(frozen=True, slots=True)
class Delegate:
    """A sub-agent is to run a command and tell what it found; where there are none, it is run as any other."""

    brief: str
    command: str
    report: str


@dataclass(frozen=True, slots=True)
class Await:
    """The sub-agent's report is fetched, where it does not come by itself."""

    command: str = "git status --short"


Step = Read | Run | Act | Delegate | Await


@dataclass
class Errands:
    """The steps, and what each command prints."""

    steps: list[Step] = field(default_factory=list)
    printed: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The text and the exit code of each command."""

    def read(self, *names: str) -> None:
        self.steps += [Read(f"service/{name}.py") for name in names]

    def run(self, command: str, text: str, code: int = 0) -> None:
        self.steps.append(Run(command))
        self.printed[command] = text, code

    def act(self, tool: str, arguments: Mapping[str, Any], command: str, text: str, code: int = 0) -> None:
        self.steps.append(Act(tool, arguments, command))
        self.printed[command] = text, code

    def delegate(self, brief: str, command: str, text: str, report: str) -> None:
        self.steps += [Delegate(brief, command, report), Await()]
        self.printed[command] = text, 0


def plan() -> Errands:
    day = Errands([Read("AGENTS.md")])
    day.run("git log --oneline -n 60", outputs.commits(60))
    day.read("streams", "heapq")
    day.run(
        "pytest tests/ledger/test_retry.py",
        outputs.failed_tests(
            "retry",
            "tests/ledger/test_retry.py::test_budget",
            "service.ledger.retry.RetryBudgetExceeded: budget of 3 attempts spent after 0.41 s",
        ),
        1,
    )
    day.run(
        "kubectl logs checkout-7d9f8c6b54-x2lqp --tail=90",
        outputs.json_logs("pool", 90, fault="pool exhausted: 100/100 connections in use, 412 waiters"),
    )
    day.read("gzip", "shlex")
    day.act(
        "charge_card",
        {"order": "1042", "amount_cents": 4999},
        "shopctl charge-card --order 1042 --amount-cents 4999",
        outputs.charge("ch_3Nw7Qx2eZvKYlo"),
    )
    day.act(
        "deploy",
        {"service": "checkout", "version": "v42"},
        "shopctl deploy --service checkout --version v42",
        outputs.deployment(
            "v42",
            "dep_7741",
            (
                "Readiness probe failed: HTTP probe failed with statuscode: 503",
                "rolling back to checkout:v41 ... done",
                "deployment dep_7741 state: ROLLED_BACK",
            ),
        ),
    )
    day.run("psql -c 'select id, day, cents, state, reason from settlements'", outputs.settlements(93))
    day.read("selectors", "textwrap")
    day.delegate(
        "Look through the logs of the mailer and report what is unusual.",
        "kubectl logs mailer-5f6d7c8b9a-q8zzt --tail=60",
        outputs.json_logs("mailer", 60),
        "The mailer's log shows nothing unusual: sixty lines, no error.",
    )
    day.run("shopctl order --number 2077", outputs.order(2077, "on_hold", "address_mismatch"))
    day.run("pytest tests/checkout", outputs.passed_tests("checkout", 229))
    day.act(
        "deploy",
        {"service": "checkout", "version": "v43"},
        "shopctl deploy --service checkout --version v43",
        outputs.deployment(
            "v43", "dep_7742", ("6 of 6 updated replicas are available", "deployment dep_7742 state: LIVE")
        ),
    )
    day.read("queue", "csv")
    day.act(
        "push_branch",
        {"branch": "fix/retry-budget"},
        "git push origin fix/retry-budget",
        outputs.push("41f0a6e", "9c3b7d2", "fix/retry-budget"),
    )
    day.run(
        "terraform apply -auto-approve",
        outputs.terraform("updating SQS Queue (q19): AccessDenied: not authorized to perform: sqs:SetQueueAttributes"),
        1,
    )
    day.run("gh run view 8812345 --log-failed", outputs.failed_run("integration (3.12)"))
    day.act(
        "send_mail",
        {"to": "ops@example.com", "subject": "checkout v43 is live"},
        "shopctl send-mail --to ops@example.com --subject checkout-v43-is-live",
        outputs.mail("msg_0f4e91c2"),
    )
    day.read("tempfile", "wave", "socketserver")
    day.run("npm ci", outputs.installed(612))
    day.delegate(
        "Look through the logs of the search service and report what is unusual.",
        "kubectl logs search-6c5d4f3e2b-w7kkd --tail=60",
        outputs.json_logs("search", 60),
        "The search service's log shows nothing unusual: sixty lines, no error.",
    )
    day.run("kubectl get pods", outputs.pods())
    day.read("random", "pprint", "netrc")
    day.run("psql -c 'select sku, owner, left, cents from stock'", outputs.stock_rows())
    day.run("pytest tests/stock", outputs.passed_tests("stock", 174))
    day.read("calendar", "codecs", "fileinput", "smtplib", "trace", "uuid")
    day.run("shopctl order --number 2081", outputs.order(2081, "shipped", None))
    day.run("kubectl logs basket-9b8a7c6d5e-m4nnp --tail=80", outputs.json_logs("basket", 80))
    day.read("weakref", "profile", "zipapp", "sched", "ftplib")
    day.run("pytest tests/basket", outputs.passed_tests("basket", 141))
    day.read("contextlib", "cmd", "getpass", "bdb", "cgi", "imaplib", "poplib", "platform", "pdb", "nntplib")
    return day


DAY = plan()
STEPS = len(DAY.steps)
_PROGRAM = '''\
#!{python}
"""Prints what is printed today; what is not known here is left to the program of that name."""
import json, os, pathlib, shlex, shutil, sys

here = pathlib.Path(__file__).resolve().parent
name = pathlib.Path(sys.argv[0]).name
known = json.loads((here / "printed.json").read_text())
line = shlex.join([name, *sys.argv[1:]])
if line in known:
    text, code = known[line]
    sys.stdout.write(text)
    sys.stdout.flush()
    sys.exit(code)
path = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if pathlib.Path(part).resolve() != here)
program = shutil.which(name, path=path)
if program is None:
    sys.exit(f"{{name}}: not today: {{line}}")
os.execv(program, [program, *sys.argv[1:]])
'''


def thought_of(step: int) -> str:
    match DAY.steps[step]:
        case Read(path):
            return f"I read {path} to see how it is done there before I say anything about it."
        case Delegate():
            return "Another agent can look through these logs meanwhile."
        case Await():
            return "I see to what that other agent has to report, and how the directory stands."
        case _:
            return "This is the next errand of the run book; I look at what it prints."


def make_workspace(place: Path) -> None:
    """The repository, the code in it, and the commands, which are in bin/."""
    (place / "service").mkdir(parents=True)
    for name in ("AGENTS.md", "CLAUDE.md"):
        (place / name).write_text(RULES)
    library = Path(sysconfig.get_path("stdlib"))
    for step in DAY.steps:
        if isinstance(step, Read) and step.path.startswith("service/"):
            (place / step.path).write_text(_beginning(_source_of(library, step.path).read_text()))
    (place / ".gitignore").write_text("bin/\n")
    make_commands(place / "bin")
    commit_all(place, "The shop")


def make_commands(place: Path) -> None:
    place.mkdir()
    lines = {shlex.join(shlex.split(command)): printed for command, printed in DAY.printed.items()}
    (place / "printed.json").write_text(json.dumps(lines))
    program = place / "printer"
    program.write_text(
        _PROGRAM.format(python=shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or "/usr/bin/env python3")
    )
    program.chmod(0o755)
    for name in {line.split()[0] for line in lines}:
        (place / name).symlink_to(program.name)


def _beginning(text: str) -> str:
    """So much that no agent cuts it."""
    return text[: text.rfind("\n", 0, MOST_OF_A_FILE) + 1]


def _source_of(library: Path, path: str) -> Path:
    name = Path(path).name
    return library / "asyncio" / name if name == "streams.py" else library / name
