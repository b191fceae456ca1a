"""Runs the fidelity corpus against any proxy and prints what it changed.

    python -m tests.end_to_end.fidelity.run --url http://127.0.0.1:8800 --upstream-port 9000

The proxy at --url must have http://127.0.0.1:9000/v1 as its upstream: this command answers there and compares what
arrives with what it sent, byte for byte, both ways. The exit code is 1 if anything was changed.
"""
# ruff: noqa: T201 - its output is a table

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.end_to_end.fidelity import corpus
from tests.end_to_end.fidelity.exchange import answer_through, send_through
from tests.support.scripted_upstream import Upstream

WIDTH = 60


@dataclass(frozen=True, slots=True)
class Result:
    kind: str
    name: str
    differences: list[str]


async def run(url: str, recorder: Upstream) -> list[Result]:
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(url))
    requests = [
        Result("request", f"{sent.source}: {sent.name}", await send_through(origin, recorder, sent))
        for sent in corpus.requests()
    ]
    answers = [Result("answer", text.name, await answer_through(origin, recorder, text)) for text in corpus.answers()]
    return requests + answers


def table(results: Iterable[Result], *, everything: bool) -> str:
    lines = []
    for result in results:
        if everything or result.differences:
            mark = "FAIL" if result.differences else "ok"
            lines.append(f"{mark:<5}{result.kind:<8} {result.name[:WIDTH]}")
        lines += [f"      {difference}" for difference in result.differences]
    return "\n".join(lines)


def summary(results: Sequence[Result]) -> str:
    """The commonest differences, and how many passed without any."""
    counts = []
    for kind in ("request", "answer"):
        of_kind = [result for result in results if result.kind == kind]
        same = sum(not result.differences for result in of_kind)
        counts.append(f"{same} of {len(of_kind)} {kind}s arrived byte for byte")
    often = Counter(difference.partition(":")[0] for result in results for difference in result.differences)
    return "\n".join([*(f"{count:>5} x {difference}" for difference, count in often.most_common(12)), *counts])


async def main(options: argparse.Namespace) -> int:
    async with Upstream(port=options.upstream_port) as recorder:
        results = await run(options.url, recorder)
    print(table(results, everything=options.all))
    print(summary(results))
    return int(any(result.differences for result in results))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Is a proxy faithful? Every byte, both ways.")
    parser.add_argument("--url", required=True, help="the proxy under test")
    parser.add_argument("--upstream-port", type=int, required=True, help="where that proxy expects its upstream")
    parser.add_argument("--all", action="store_true", help="list what passed too")
    sys.exit(asyncio.run(main(parser.parse_args())))
