"""How a command says that it cannot do what was asked: a sentence on standard error, and exit code 1."""

import sys


def complain(why: str) -> int:
    print(why, file=sys.stderr)  # noqa: T201 (what a person reads)
    return 1
