"""What programs print while an agent works: test runs, stack traces, server logs, type checkers, pages from the web."""

import random
from collections.abc import Sequence

from proxy.lab.demo.code import FIELDS, RULES, THINGS, VERBS, WHEN

_LEVELS = ("INFO", "INFO", "INFO", "DEBUG", "DEBUG", "WARNING")
_SAID = (
    "GET /v2/{thing}s/HB-{number} 200 in {small} ms",
    "POST /v2/{thing}s/batch 202 in {small} ms (request {hex})",
    "{verb}d {small} of {number} {thing}s for port {port}",
    "cache miss for {thing} {field} on 2026-03-{day:02}",
    "pool: {small} connections in use, {day} idle",
    "job {verb}-{thing}s picked up by worker-{day} (trace {hex})",
    "slow query ({number} ms): SELECT * FROM {thing}s WHERE {field} = %s ORDER BY issued_at LIMIT {small}",
    "notice {hex} ignored: {when}",
)


def tests(module: str, ran: int, failures: Sequence[str], dice: random.Random) -> str:
    """A verbose test run: every test by name, then each failure with its trace."""
    names = [f"test_{dice.choice(VERBS)}_{module}_{dice.choice(THINGS)}_{dice.randrange(9_999)}" for _ in range(ran)]
    names += failures
    wrong = set(failures)
    lines = [
        "============================= test session starts ==============================",
        "platform linux -- Python 3.12.4, pytest-8.3.2, pluggy-1.5.0",
        f"collected {len(names)} items",
        "",
    ]
    for at, name in enumerate(names, 1):
        verdict = "FAILED" if name in wrong else "PASSED"
        lines.append(f"tests/test_{module}.py::{name} {verdict} [{at * 100 // len(names):3}%]")
    if failures:
        lines.append("\n=================================== FAILURES ===================================")
        lines += [trace(module, name, dice) for name in failures]
    passed = f"{ran} passed in {dice.uniform(1, 40):.2f}s"
    told = f"{len(failures)} failed, {passed}" if failures else passed
    return "\n".join([*lines, f"=================== {told} ==================="])


def trace(module: str, test: str, dice: random.Random) -> str:
    """One failure, through several files."""
    lines = [f"_______________ {test} _______________", ""]
    for _ in range(dice.randrange(3, 7)):
        thing, verb = dice.choice(THINGS), dice.choice(VERBS)
        lines += [
            f"tidewater/{thing}.py:{dice.randrange(20, 700)}: in {verb}_{thing}_{dice.choice(THINGS)}s",
            f"    {thing}.{dice.choice(FIELDS)} = {verb}_{dice.choice(FIELDS)}({thing}, base={dice.randrange(999)})",
        ]
    got, wanted = dice.randrange(1_000, 99_999), dice.randrange(1_000, 99_999)
    lines += [
        f"E       AssertionError: when {dice.choice(WHEN)}",
        f"E       assert Decimal('{got / 100:.2f}') == Decimal('{wanted / 100:.2f}')",
        f"E        +  where Decimal('{got / 100:.2f}') = Outcome(kind='{dice.choice(VERBS)}_{module}').total",
        "",
        f"tests/test_{module}.py:{dice.randrange(20, 400)}: AssertionError",
    ]
    return "\n".join(lines)


def server(rows: int, fault: str, dice: random.Random) -> str:
    """Lines of a service's log, with one traceback somewhere among them."""
    lines = [_row(dice) for _ in range(rows)]
    if fault:
        lines.insert(dice.randrange(rows // 2, rows), f"{_stamp(dice)} ERROR tidewater.web unhandled\n{fault}")
    return "\n".join(lines)


def fault(module: str, dice: random.Random) -> str:
    """A traceback as Python prints it."""
    lines = ["Traceback (most recent call last):"]
    for _ in range(dice.randrange(4, 9)):
        thing, verb = dice.choice(THINGS), dice.choice(VERBS)
        lines += [
            f'  File "/srv/tidewater/{thing}.py", line {dice.randrange(20, 700)}, in {verb}_{thing}_{module}s',
            f"    return {verb}_{dice.choice(FIELDS)}({thing}.{dice.choice(FIELDS)}, session)",
        ]
    return "\n".join([*lines, f"tidewater.store.Incomplete: ('HB-{dice.randrange(9_999)}', '{dice.choice(FIELDS)}')"])


def types(modules: Sequence[str], faults: int, dice: random.Random) -> str:
    """What a type checker complains about."""
    lines = [
        f"tidewater/{dice.choice(modules)}.py:{dice.randrange(9, 700)}: error: Argument {dice.randrange(1, 4)} to "
        f'"{dice.choice(VERBS)}_{dice.choice(THINGS)}s" has incompatible type "{dice.choice(THINGS).capitalize()} | '
        f'None"; expected "{dice.choice(THINGS).capitalize()}"  [arg-type]'
        for _ in range(faults)
    ]
    verdict = f"Found {faults} errors in {min(faults, 9)} files" if faults else "Success: no issues found"
    return "\n".join([*lines, f"{verdict} (checked {len(modules) * 3} source files)"])


def rows(table: str, count: int, dice: random.Random) -> str:
    """A query's answer as JSON, one object a line."""
    lines = [
        f'{{"id": {dice.randrange(10**6)}, "reference": "HB-{dice.randrange(99_999)}", "kind": "{dice.choice(VERBS)}", '
        f'"{dice.choice(FIELDS)}": "{dice.uniform(1, 9_999):.2f}", "trace": "{_hex(dice)}", "table": "{table}"}}'
        for _ in range(count)
    ]
    return "[\n  " + ",\n  ".join(lines) + "\n]"


def page(title: str, paragraphs: int, dice: random.Random) -> str:
    """A page of documentation."""
    parts = [f"# {title}", ""]
    for number in range(1, paragraphs + 1):
        thing, field = dice.choice(THINGS), dice.choice(FIELDS)
        parts += [
            f"## {number}. The {field.replace('_', ' ')} of a {thing}",
            f"{dice.choice(RULES)} This holds also where {dice.choice(WHEN)}.",
            f"A {thing} that was {dice.choice(VERBS)}d keeps its `{field}` until the harbour office confirms it.",
            f"    {dice.choice(VERBS)}_{thing}(reference, {field}={dice.randrange(999)})",
            "",
        ]
    return "\n".join(parts)


def _row(dice: random.Random) -> str:
    said = dice.choice(_SAID).format(
        thing=dice.choice(THINGS),
        verb=dice.choice(VERBS),
        field=dice.choice(FIELDS),
        when=dice.choice(WHEN),
        number=dice.randrange(100, 99_999),
        small=dice.randrange(2, 400),
        day=dice.randrange(1, 29),
        hex=_hex(dice),
        port=dice.choice(("HAM", "RTM", "ANR", "OSL", "GDN")),
    )
    return f"{_stamp(dice)} {dice.choice(_LEVELS):7} tidewater.{dice.choice(THINGS)} {said}"


def _stamp(dice: random.Random) -> str:
    hour, minute, second = dice.randrange(24), dice.randrange(60), dice.randrange(60)
    return f"2026-03-14T{hour:02}:{minute:02}:{second:02}.{dice.randrange(1000):03}Z"


def _hex(dice: random.Random) -> str:
    return f"{dice.getrandbits(48):012x}"
