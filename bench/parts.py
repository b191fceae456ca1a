"""What a turn costs at least: the parts that no design with these guarantees does without, and the room for them.

    python bench/parts.py                                    # a minute
    python bench/parts.py --markdown docs/bench-parts.md

An agent goes on from a history of 100 kB. Of its turn the proxy has to read what is new, to know the conversation by
its links, to count tokens, to ask the file that all workers share for a block, to write down what the upstream counted
and to record the turn. Here each of these is done by the proxy's own code and nothing around it. Beside it, from relays
that serve the same turns in the same run: what the way through costs that does none of it (`bypass`), and how much a
target of `make bench` leaves between the two.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import process_time

import relay
from bodies import chat, growing
from contestants import BARE, OURS, RELAYING, Contestant, contestants
from fake_upstream import FakeUpstream
from process import CLIENTS
from scores import Scenario
from tables import figure, provenance, table

from proxy import events
from proxy.history.chain import compute_chain
from proxy.history.request import Request
from proxy.models.tokenizer import Tokenizers
from proxy.path.known_requests import KnownRequests
from proxy.store.activity_log import ActivityLog
from proxy.store.sqlite import FILE_NAME, SqliteStore
from proxy.wire.chat.chat_format import CHAT_FORMAT

US = 1_000_000
SIZE, TURNS, ROUNDS = 100_000, 300, 5
CALLER, TENANT, SECRET = 1, "team-a", b"k" * 32
BLOCK_BYTES, FACT, FACT_SECONDS = 20_000, b'{"tokens":12345,"at":1790000000.0}', 86_400.0
KEYS_OF_A_TURN = 4
"""Looked at before the one that holds something: this turn's two messages, and those of the turn before."""
TARGETS = {"1 kB": 1.4, "100 kB, growing": 2.0}
"""Times the bare relay's processor time: the targets of `make bench` for small requests and for histories of 100 kB."""

TURN = events.TurnEnded(
    **dict.fromkeys(("conversation", "tenant", "link", "team", "key", "tag", "model", "upstream", "policy"), "bench"),
    **dict.fromkeys(("policy_version", "action", "reason"), "none"),
    **dict.fromkeys(("messages", "tokens_before", "tokens_after", "tokens_would_be", "prompt_tokens"), 25_000),
    cached_tokens=24_000,
    output_tokens=200,
    paid_dollars=0.01,
    plain_dollars=0.01,
    would_be_dollars=None,
)

INTRO = """\
# What a turn costs at least

{provenance}.

{about}

Processor time in microseconds, all threads together, medians of {rounds} rounds of {turns} turns.
`python bench/parts.py --markdown docs/bench-parts.md` writes this page.
"""


@dataclass(frozen=True, slots=True)
class Turns:
    """The requests of one history that goes on, read."""

    bodies: Sequence[bytes]
    requests: Sequence[Request]

    @classmethod
    def of(cls, bodies: Iterable[bytes]) -> "Turns":
        bodies = [*bodies]
        return cls(bodies, [request for body in bodies if (request := CHAT_FORMAT.parse(body)) is not None])

    @property
    def new(self) -> list[list[bytes]]:
        """The messages that are new in each turn but the first."""
        pairs = pairwise(request.messages for request in self.requests)
        return [[message.raw for message in after[len(before) :]] for before, after in pairs]


async def measure_parts(place: Path, turns: Turns) -> dict[str, float]:
    """Seconds of processor time a turn, by what is done."""
    known, turn_count = KnownRequests(), len(turns.new)
    store, log = SqliteStore(place / FILE_NAME), ActivityLog(place)
    tokenizer = Tokenizers().of("bench-1")
    await tokenizer.count_all([b"the encoding is loaded"])
    await store.put_block("block", b"b" * BLOCK_BYTES)
    read: list[Request] = []

    async def read_new(turn: int) -> None:
        body = turns.bodies[turn]
        prefix = known.find_prefix(CALLER, body, CHAT_FORMAT)
        request = CHAT_FORMAT.parse(body, prefix)
        assert request is not None
        known.add(CALLER, request, prefix)
        read.append(request)

    async def link(turn: int) -> None:
        compute_chain(read[turn], TENANT, SECRET)

    async def count(turn: int) -> None:
        await tokenizer.count_all(turns.new[max(turn, 1) - 1])

    async def ask_and_write(turn: int) -> None:
        keys = [f"{turn}-{key}" for key in range(KEYS_OF_A_TURN)]
        writing = asyncio.ensure_future(store.write_fact(f"anchor {turn}", FACT, FACT_SECONDS))
        await asyncio.sleep(0)  # it waits for the next look-up, which takes it along
        await store.find_first([*keys, "block"], [*keys, f"anchor {turn - 1}"], keys)
        await writing

    async def record(_: int) -> None:
        log.record(TURN)

    parts: dict[str, Callable[[int], Awaitable[None]]] = {
        "find what is known of the body, read the two new messages": read_new,
        "two links of the chain": link,
        "count the tokens of both": count,
        "one look-up in the SQLite file, and one fact written with it": ask_and_write,
        "one line of the activity log": record,
    }
    spent = {}
    for name, act in parts.items():
        await act(0)
        before = process_time()
        for turn in range(1, turn_count + 1):
            await act(turn)
        if act is record:
            log.close()
        spent[name] = (process_time() - before) / turn_count
    await store.close()
    return spent


async def measure_relays(place: Path) -> dict[str, dict[str, float]]:
    """Seconds of processor time a request, by scenario and contestant."""
    asked = [Scenario("1 kB", chat(1_000), 1, 2 * TURNS), relay.make_growing("100 kB", SIZE, TURNS)]
    async with FakeUpstream(relay.QUICK_PACE) as upstream:
        with contestants((OURS, BARE), upstream.url, place) as field:
            relays: list[Contestant] = [contestant for contestant in field if contestant.server]
            scores = await relay.measure(upstream, relays, asked, ROUNDS)
    return {
        scenario.title.removesuffix(", 1 at once"): {
            name: median(each.cpu for each in score.rounds) for name, score in scores[scenario.title].items()
        }
        for scenario in asked
    }


def report(parts: Sequence[dict[str, float]], relays: dict[str, dict[str, float]]) -> str:
    least = {name: median(each[name] for each in parts) for name in parts[0]}
    rows = [[name, figure(seconds * US, 0)] for name, seconds in least.items()]
    rows.append(["all of it", figure(sum(least.values()) * US, 0)])
    leaves = []
    for title, limit in TARGETS.items():
        cpu = relays[title]
        bare, through, ours = (cpu[name] for name in (BARE.name, RELAYING, OURS.name))
        room = limit * bare - through
        figures = (bare, through, ours, limit * bare, room)
        leaves.append([title, f"{limit:g}", f"{through / bare:.2f}", *(figure(each * US, 0) for each in figures)])
    names = ["", "times bare", "bypass is", "bare", "bypass", "default", "the target", "room"]
    about = (__doc__ or "").partition("\n\n    python")[2].partition("\n\n")[2].strip()
    intro = INTRO.format(provenance=provenance(), about=about, rounds=ROUNDS, turns=TURNS)
    return "\n".join((intro, table(["part of a turn", "µs"], rows), "", table(names, leaves), ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the tables there too")
    args = parser.parse_args()
    os.sched_setaffinity(0, {CLIENTS})
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        parts = []
        for number in range(1, ROUNDS + 1):
            (place / str(number)).mkdir()
            turns = Turns.of(growing(SIZE, TURNS + 1, number))
            parts.append(asyncio.run(measure_parts(place / str(number), turns)))
        text = report(parts, asyncio.run(measure_relays(place)))
    print(text)
    if args.markdown:
        args.markdown.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
