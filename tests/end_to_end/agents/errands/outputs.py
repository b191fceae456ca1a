"""What the commands of the errands print: long, as such output is, with what matters in one or two of its lines.

All of it is made here, the same on every machine.
"""

import json
import random
from collections.abc import Iterator, Sequence

SERVICES = ("checkout", "ledger", "basket", "mailer", "search", "stock")
HANDLERS = ("http", "pool", "cache", "retry", "queue", "auth")
DETAILS = (
    "request done",
    "retry scheduled",
    "cache refreshed",
    "lease renewed",
    "batch flushed",
    "token checked",
    "row locked",
)


def json_logs(seed: str, lines: int, *, fault: str = "") -> str:
    """Lines as pino and structlog write them; the 62nd may be an error, spelled in small letters."""
    chance = random.Random(seed)
    return "".join(_log_line(chance, second, fault if second == 61 else "") for second in range(lines))


def _log_line(chance: random.Random, second: int, fault: str) -> str:
    service, handler = chance.choice(SERVICES), chance.choice(HANDLERS)
    entry = {
        "ts": f"2026-11-25T09:{second // 60:02d}:{second % 60:02d}.{chance.randrange(1000):03d}Z",
        "level": "error" if fault else chance.choice(("info", "info", "info", "debug", "warn")),
        "logger": f"{service}.{handler}",
        "msg": fault or chance.choice(DETAILS),
        "trace": f"{chance.getrandbits(64):016x}",
        "ms": chance.randrange(900),
    }
    return json.dumps(entry) + "\n"


def passed_tests(seed: str, count: int) -> str:
    chance = random.Random(seed)
    names = list(_test_files(chance, 46))
    head = (
        f"============================= test session starts ==============================\ncollected {count} items\n\n"
    )
    lines = [
        f"{name:<48}{'.' * chance.randrange(6, 14):<16}[{at * 100 // len(names):>3}%]\n"
        for at, name in enumerate(names, 1)
    ]
    end = f"============================= {count} passed in 41.87s ==============================\n"
    return f"{head}{''.join(lines)}\n{end}"


def _test_files(chance: random.Random, count: int) -> Iterator[str]:
    for number in range(count):
        yield f"tests/{chance.choice(SERVICES)}/test_{chance.choice(HANDLERS)}_{number:02d}.py"


def failed_tests(seed: str, test: str, error: str) -> str:
    """pytest's own form: dots, one traceback through six frames, the summary."""
    chance = random.Random(seed)
    names = list(_test_files(chance, 20))
    dots = "".join(f"{name:<48}{'.' * chance.randrange(6, 14)}\n" for name in names)
    frames = "".join(
        f"service/{chance.choice(SERVICES)}/{chance.choice(HANDLERS)}.py:{chance.randrange(30, 400)}: in {name}\n"
        f"    return self.{name}_once(request, budget=self._budget, clock=self._clock)\n"
        for name in ("send", "attempt", "await_turn", "charge", "commit", "spend")
    )
    return (
        f"============================= test session starts ==============================\n{dots}\n"
        f"=================================== FAILURES ===================================\n"
        f"{'_' * 20} {test.partition('::')[2]} {'_' * 20}\n{frames}E   {error}\n"
        f"----------------------------- Captured log call ------------------------------\n"
        f"{json_logs(seed, 24)}"
        f"=========================== short test summary info ============================\n"
        f"FAILED {test} - {error}\n"
        f"========================= 1 failed, 187 passed in 38.02s =========================\n"
    )


def charge(id_: str) -> str:
    """A payment as such APIs tell it: the id first, what came of it last."""
    body = {
        "id": id_,
        "object": "charge",
        "amount": 4999,
        "amount_captured": 4999,
        "billing_details": dict.fromkeys(("city", "country", "line1", "line2", "postal_code", "state", "email")),
        "calculated_statement_descriptor": "NORTHWIND SHOP",
        "currency": "eur",
        "metadata": {f"basket_line_{number}": f"sku-{number * 37 + 1000}" for number in range(72)},
        "outcome": {"network": "approved_by_network", "risk_level": "normal", "risk_score": 12, "type": "authorized"},
        "payment_method_details": {"brand": "visa", "last4": "4242", "exp_month": 4, "exp_year": 2030},
        "status": "succeeded",
    }
    return json.dumps(body, indent=2) + "\n"


def order(number: int, state: str, reason: str | None) -> str:
    chance = random.Random(number)
    lines = [
        {
            "sku": f"sku-{chance.randrange(1000, 9999)}",
            "quantity": chance.randrange(1, 5),
            "cents": chance.randrange(9000),
        }
        for _ in range(33)
    ]
    body = {"order": number, "customer": f"cus_{number}", "lines": lines, "state": state, "hold_reason": reason}
    return json.dumps(body, indent=2) + "\n"


def deployment(version: str, id_: str, end: Sequence[str]) -> str:
    """A build's steps, then the roll-out's; the end says what came of it."""
    chance = random.Random(version)
    build = [f"#{step} [{step}/18] {_build_step(chance)} {chance.random() * 9:.1f}s\n" for step in range(1, 19)]
    push = [f"{chance.getrandbits(48):012x}: {share}%\n" for _ in range(9) for share in (10, 55, 100)]
    pods = [
        f"waiting for rollout: {seconds} s, {seconds // 9} of 6 updated replicas are available\n"
        for seconds in range(54)
    ]
    head = f"Deployment {id_} of checkout:{version} to production\n"
    return "".join([head, *build, *push, *pods, *(f"{line}\n" for line in end)])


def _build_step(chance: random.Random) -> str:
    return chance.choice(
        ("COPY . /app CACHED", "RUN pip install -r requirements.txt", "FROM python:3.12-slim", "RUN make")
    )


def table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """As psql prints it."""
    widths = [max(len(str(row[at])) for row in (names, *rows)) for at in range(len(names))]

    def line(cells: Sequence[str]) -> str:
        return " " + " | ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip() + "\n"

    rule = "-" + "-+-".join("-" * width for width in widths) + "-\n"
    return f"{line(names)}{rule}{''.join(map(line, rows))}({len(rows)} rows)\n\n"


def settlements(failed: int) -> str:
    chance = random.Random("settlements")
    rows = [
        (
            f"stl_{number:04d}",
            f"2026-11-{number % 24 + 1:02d}",
            f"{chance.randrange(10_000, 900_000)}",
            "failed" if number == failed else "paid",
            "account_closed" if number == failed else "",
        )
        for number in range(1, 141)
    ]
    return table(("id", "day", "cents", "state", "reason"), rows)


def stock_rows() -> str:
    chance = random.Random("stock")
    rows = [
        (f"sku-{1000 + number * 7}", chance.choice(SERVICES), str(chance.randrange(400)), str(chance.randrange(9_000)))
        for number in range(80)
    ]
    return table(("sku", "owner", "left", "cents"), rows)


def terraform(refused: str) -> str:
    chance = random.Random("terraform")
    queues = [f"aws_sqs_queue.q{number}" for number in range(30)]
    plan = "".join(
        f'  # {queue} will be updated in-place\n  ~ resource "aws_sqs_queue" "{queue[14:]}" {{\n'
        f"      ~ visibility_timeout_seconds = {chance.randrange(20, 60)} -> 90\n    }}\n"
        for queue in queues
    )
    work = "".join(
        f"{queue}: Modifying...\n{queue}: Modifications complete after {chance.randrange(1, 9)}s\n"
        for queue in queues[:19]
    )
    end = f"│ Error: {refused}\n│\n│   with aws_sqs_queue.q19,\n│   on queues.tf line 214\n╵\n"
    return f"{plan}\nPlan: 0 to add, 30 to change, 0 to destroy.\n{work}\n{end}"


def push(old: str, new: str, branch: str) -> str:
    objects = "".join(f"remote: Resolving deltas: {share:>3}% ({share}/100)\r" for share in range(0, 100, 2))
    scan = "".join(f"remote: scanning blob {number:>3} of 48: no secrets\n" for number in range(1, 49))
    return (
        "Enumerating objects: 214, done.\nCounting objects: 100% (214/214), done.\n"
        "Delta compression using up to 8 threads\n"
        f"Writing objects: 100% (131/131), 48.20 KiB | 8.03 MiB/s, done.\n{objects}\n{scan}remote:\n"
        f"To git.example.com:northwind/shop.git\n   {old}..{new}  {branch} -> {branch}\n"
    )


def mail(id_: str) -> str:
    chance = random.Random("mail")
    hops = "".join(
        f"250-relay{number}.example.com accepted, {chance.randrange(20, 900)} ms, queue {chance.getrandbits(32):08x}\n"
        for number in range(50)
    )
    return f"connecting to mx.example.com:587 ... TLSv1.3\n{hops}queued as {id_}\n"


def failed_run(job: str) -> str:
    """A CI system's log, each line with its job, step and time."""
    chance = random.Random("ci")

    def line(step: str, text: str) -> str:
        return f"{job}\t{step}\t2026-11-25T10:{chance.randrange(60):02d}:{chance.randrange(60):02d}Z {text}\n"

    setup = "".join(line("Set up", f"pulling layer {chance.getrandbits(48):012x}: done") for _ in range(40))
    work = "".join(line("Run suite", f"shard {number}: {chance.randrange(20, 60)} cases done") for number in range(30))
    end = line("Run suite", "Killed") + line("Run suite", "##[error]Process completed with exit code 137.")
    return f"{setup}{work}{end}"


def installed(count: int) -> str:
    chance = random.Random("npm")
    notes = "".join(
        f"npm warn deprecated {chance.choice(SERVICES)}-{chance.choice(HANDLERS)}@{chance.randrange(9)}.{number}.0: "
        "no longer supported\n"
        for number in range(30)
    )
    return f"{notes}\nadded {count} packages, and audited {count + 1} packages in 14s\n\nfound 0 vulnerabilities\n"


def commits(count: int) -> str:
    chance = random.Random("commits")
    return "".join(
        f"{chance.getrandbits(28):07x} {chance.choice(SERVICES)}: {chance.choice(DETAILS)}, not twice\n"
        for _ in range(count)
    )


def pods() -> str:
    chance = random.Random("pods")
    head = f"{'NAME':<44}{'READY':<8}{'STATUS':<12}{'RESTARTS':<10}AGE\n"
    lines = [
        f"{chance.choice(SERVICES)}-{chance.getrandbits(40):010x}-{chance.getrandbits(20):05x}".ljust(44)
        + f"{'1/1':<8}{'Running':<12}{chance.randrange(3):<10}{chance.randrange(1, 40)}d\n"
        for _ in range(60)
    ]
    return head + "".join(lines)
