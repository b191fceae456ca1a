"""`python -m tests.end_to_end.growing --markdown docs/generated-histories.md` plays all of them and writes the page."""
# ruff: noqa: T201 - started as a script, it tells what it found

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from tests.end_to_end.growing import apis
from tests.end_to_end.growing.page import report, report_apis
from tests.end_to_end.growing.run import CONVERSATIONS_AT_ONCE, Findings, play

FIRST_SEED = 10_000


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--histories", type=int, default=20_000, help="of chat; half as many of each other API")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the result there too")
    parser.add_argument("--slices", metavar="DIR", type=Path, help="keep results there, and play only what is missing")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        slices = args.slices or Path(temporary)
        slices.mkdir(parents=True, exist_ok=True)
        found = play_slices(slices, "chat", play, args.first_seed, args.histories)
        others = {
            name: play_slices(slices, name, partial(apis.play, name), args.first_seed, args.histories // 2)
            for name in apis.APIS
        }
    text = report(found) + report_apis(others)
    print(text)
    faults = [fault for each in (found, *others.values()) for fault in each.faults]
    for fault in faults[:40]:
        print(*fault)
    if args.markdown:
        args.markdown.write_text(text)
    return 1 if faults else 0


def play_slices(
    slices: Path, name: str, play_seeds: Callable[[Path, range], Awaitable[Findings]], first: int, histories: int
) -> Findings:
    """So many histories at least, in slices; the result of each is a file."""
    found = Findings()
    while found.tally["histories"] < histories:
        file = slices / f"{name}-{first}.json"
        if not file.exists():
            with tempfile.TemporaryDirectory() as place:
                played = asyncio.run(play_seeds(Path(place), range(first, first + CONVERSATIONS_AT_ONCE)))
            file.write_text(json.dumps(vars(played), default=str))
        value = json.loads(file.read_text())
        by_policy = {policy: Counter(counted) for policy, counted in value.get("by_policy", {}).items()}
        found.add(Findings(Counter(value["tally"]), by_policy, value["faults"]))
        first += CONVERSATIONS_AT_ONCE
    return found


if __name__ == "__main__":
    sys.exit(main())
