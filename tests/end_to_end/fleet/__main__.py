"""`python -m tests.end_to_end.fleet --seconds 1800 --markdown docs/fleet.md` runs the fleet and writes its page."""
# ruff: noqa: T201 - started as a script, it tells what it found

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.end_to_end.fleet.checks import find_results, report
from tests.end_to_end.fleet.deployment import AGENTS, fleet
from tests.support.object_store.server import MISSING


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--agents", type=int, default=AGENTS)
    parser.add_argument("--pause", type=float, default=25.0, help="seconds between two turns of an agent, on average")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the result there too")
    args = parser.parse_args()
    if MISSING:
        parser.error(MISSING)
    with tempfile.TemporaryDirectory() as place:
        made = asyncio.run(fleet(Path(place), args.seconds, args.agents, args.pause))
    text = report(made, args.seconds, args.agents)
    print(text)
    if args.markdown:
        args.markdown.write_text(text)
    return 0 if all(check.passed for check in find_results(made)) else 1


if __name__ == "__main__":
    sys.exit(main())
