"""`python -m tests.end_to_end.growing --markdown docs/generated-histories.md` plays all of them and writes the page."""
# ruff: noqa: T201 - started as a script, it tells what it found

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.end_to_end.growing import apis
from tests.end_to_end.growing.page import report, report_apis
from tests.end_to_end.growing.run import play

FIRST_SEED = 10_000


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--histories", type=int, default=20_000)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the result there too")
    args = parser.parse_args()
    seeds = range(args.first_seed, args.first_seed + args.histories)
    with tempfile.TemporaryDirectory() as place:
        found = asyncio.run(play(Path(place), seeds, histories=args.histories))
        half = args.histories // 2
        others = {name: asyncio.run(apis.play(Path(place), name, seeds, histories=half)) for name in apis.APIS}
    text = report(found) + report_apis(others)
    print(text)
    faults = [fault for each in (found, *others.values()) for fault in each.faults]
    for fault in faults[:40]:
        print(*fault)
    if args.markdown:
        args.markdown.write_text(text)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
