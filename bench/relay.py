"""What the proxy costs: processor time and delay, beside a bare relay, nginx, LiteLLM and CliffCompaction, in one run.

    python bench/relay.py                                 # some minutes
    python bench/relay.py --short                         # for CI: under a minute, coarse figures
    python bench/relay.py --markdown relay.md
    python bench/relay.py --only "1 MB, growing"         # some scenarios, beside the bare relay only
    python bench/relay.py --earlier DIR                   # with the version in DIR, set up there
    python bench/relay.py --traces FILE...                # and a day of the conversations recorded in these files

On a machine that others use too a time says little, but the ratio of two times measured one after the other says a
lot: so the contestants take turns, round after round, and the figures are medians over the rounds.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

import load
from bodies import CHAT, MESSAGES, RESPONSES, TURN_BYTES, chat, growing, interleave_turns
from contestants import BARE, CLIFF, LITELLM, NGINX, OURS, Contestant, Kind, contestants, earlier, start_contestant
from fake_upstream import FakeUpstream, Pace
from process import CLIENTS, Server, alone
from recorded import Day, plan_day, read_conversations, sample_conversations
from report import IdleFigures, Target, report, report_briefly, targets
from scores import Round, Scenario, Score, Scores

WARMING_TURNS = 3
GROWING = (
    ("10 kB", 10_000, None),
    ("100 kB", 100_000, 2.0),
    ("400 kB", 400_000, 3.2),
    ("1 MB", 1_000_000, 4.0),
    ("10 MB", 10_000_000, 4.0),
)
"""Histories that go on, and how many times the bare relay's processor time a turn may take."""
STREAMED_SEED = 1_000
RESTING_SECONDS = 0.005
"""Of processor time within a twentieth of a second: less is rest."""
CONVERSATION_BYTES = 10_000
"""Of each of the interleaved conversations: so many of them that all fit into what is remembered for one caller."""
PACE = Pace(chunks=200, seconds=0.005)
"""Of the scenarios in which a stream itself is measured."""
QUICK_PACE = Pace(chunks=8, seconds=0)
"""Of answers that are streamed where the request is measured."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is asked, and of which contestants."""

    kinds: tuple[Kind, ...]
    rounds: int
    small: int
    medium: int
    large: int
    huge: int
    conversations: int
    day: int  # requests
    streams: tuple[int, int]  # one after the other; by 32 clients
    starts: int
    looks: int

    def scenarios(self, traces: Sequence[Path] = ()) -> list[Scenario]:
        sizes = (("1 kB", 1_000, self.small), ("100 kB", 100_000, self.medium), ("1 MB", 1_000_000, self.large))
        whole = [Scenario(name, chat(size), clients, times) for name, size, times in sizes for clients in (1, 32)]
        turns = (self.medium, self.medium, self.large, self.large, self.huge)
        grown = [
            make_growing(name, size, times, CHAT, limit)
            for (name, size, limit), times in zip(GROWING, turns, strict=True)
            if times
        ]
        grown += [
            make_growing(f"{api}, {name}", size, times, path, limit)
            for api, path in (("Messages", MESSAGES), ("Responses", RESPONSES))
            for (name, size, limit), times in zip(GROWING[1:], turns[1:], strict=True)
            if times
        ]
        name, size, limit = GROWING[3]
        grown.append(make_growing(f"{name}, streamed", size, self.large, CHAT, limit, streams=True))
        if self.conversations:
            bodies = partial(_one_turn, self.conversations)
            grown.append(
                Scenario(
                    f"{self.conversations:,} conversations of 10 kB in turn, growing",
                    b"",
                    clients=1,
                    times=self.conversations,
                    grow=bodies,
                    new_bytes=TURN_BYTES,
                )
            )
        days = {"sample": sample_conversations(), "recorded": read_conversations(traces)}
        grown += [_day(kind, plan_day(found, self.day)) for kind, found in days.items() if found]
        body = chat(1_000, stream=True)
        name = f"stream of {PACE.chunks} chunks, {PACE.seconds * 1000:g} ms apart"
        counts = zip((1, 32), self.streams, strict=True)
        return [*whole, *grown, *(Scenario(name, body, clients, times, streams=True) for clients, times in counts)]


def make_growing(
    name: str, size: int, times: int, path: str = CHAT, limit: float | None = None, *, streams: bool = False
) -> Scenario:
    def grow(number: int, turns: int) -> Iterator[bytes]:
        seed = number + STREAMED_SEED * streams  # else the turns of the same size are known already
        return growing(size, turns, seed, path, streams=streams)

    return Scenario(
        f"{name}, growing",
        b"",
        clients=1,
        times=times,
        path=path,
        grow=grow,
        warms=WARMING_TURNS,
        new_bytes=TURN_BYTES,
        limit=limit,
        is_for_fast=size > GROWING[3][1],
    )


def _day(kind: str, day: Day) -> Scenario:
    name = f"day of {len(day.histories)} {kind} conversations"
    return Scenario(name, b"", clients=1, times=len(day.order), replay=day.requests, new_bytes=day.new_bytes)


def _one_turn(conversations: int, number: int, turns: int) -> Iterator[bytes]:
    return islice(interleave_turns(CONVERSATION_BYTES, conversations, number), turns)


LONG = Effort(
    kinds=(OURS, BARE, NGINX, LITELLM, CLIFF),
    rounds=3,
    small=800,
    medium=300,
    large=80,
    huge=8,
    conversations=1_000,
    day=400,
    streams=(2, 64),
    starts=5,
    looks=300,
)
SHORT = Effort(
    kinds=(OURS, BARE, NGINX),
    rounds=3,
    small=250,
    medium=60,
    large=16,
    huge=0,
    conversations=0,
    day=48,
    streams=(1, 32),
    starts=2,
    looks=50,
)


async def measure(
    upstream: FakeUpstream, field: Sequence[Contestant], asked: Sequence[Scenario], rounds: int
) -> Scores:
    scores = {
        scenario.title: {contestant.name: Score() for contestant in _takers(field, scenario)} for scenario in asked
    }
    for number in range(rounds + 1):
        print(f"round {number} of {rounds}" if number else "warming up", file=sys.stderr, flush=True)
        for scenario in asked:
            upstream.pace = PACE if scenario.streams else QUICK_PACE
            for contestant in _takers(field, scenario):
                if number:
                    scores[scenario.title][contestant.name].rounds.append(
                        await once(contestant, field, scenario, number)
                    )
                elif not scenario.streams:
                    few = scenario.times if scenario.grow and not scenario.warms else 2 * scenario.clients
                    await once(contestant, field, replace(scenario, times=few))
    return scores


def _takers(field: Sequence[Contestant], scenario: Scenario) -> list[Contestant]:
    return [contestant for contestant in field if contestant.slower == 1 or not scenario.is_for_fast]


async def once(contestant: Contestant, field: Sequence[Contestant], scenario: Scenario, number: int = 0) -> Round:
    times = max(scenario.times // contestant.slower, scenario.clients)
    with alone(contestant.server, servers(field)):
        if scenario.grow is not None:
            bodies = scenario.grow(number, times + scenario.warms)
            url = contestant.origin + scenario.path
            await load.ask_in_turn(url, islice(bodies, scenario.warms), headers=contestant.headers)
            await _come_to_rest(contestant)
            before = contestant.cpu
            sample = await load.ask_in_turn(url, bodies, headers=contestant.headers)
        elif scenario.replay is not None:
            evenly = islice(scenario.replay(number), 0, times * contestant.slower, contestant.slower)
            before = contestant.cpu
            sample = await load.replay(contestant.chat, evenly, headers=contestant.headers)
            await _come_to_rest(contestant)
        else:
            before = contestant.cpu
            sample = await load.ask(
                contestant.chat,
                scenario.body,
                times=times,
                clients=scenario.clients,
                headers=contestant.headers,
            )
        cpu = contestant.cpu - before
    if (scenario.streams or scenario.replay) and not sample.lags:
        raise RuntimeError(f"{contestant.name} answered without a stream: {scenario.title}")
    return Round(
        cpu=cpu / times,
        cpu_of_chunk=cpu / times / PACE.chunks,
        p50=load.percentile(sample.latencies, 0.5),
        p99=load.percentile(sample.latencies, 0.99),
        per_second=times / sample.seconds,
        lag_p50=load.percentile(sample.lags, 0.5),
        lag_p99=load.percentile(sample.lags, 0.99),
    )


async def _come_to_rest(contestant: Contestant) -> None:
    """Wait until a first sight is through: what it folds away is written to the transcripts behind its answer."""
    for _ in range(100):
        before = contestant.cpu
        await asyncio.sleep(0.05)
        if contestant.cpu - before < RESTING_SECONDS:
            return


async def measure_health_beside_load(contestant: Contestant, field: Sequence[Contestant], looks: int) -> IdleFigures:
    """What is left to know: how /health/live does while eight clients send 1 MB each, over and over."""
    assert contestant.server is not None
    enough, times = asyncio.Event(), []
    with alone(contestant.server, servers(field)):
        asking = asyncio.create_task(
            load.keep_asking(contestant.chat, chat(1_000_000), clients=8, until=enough, headers=contestant.headers)
        )
        for _ in range(looks // contestant.slower):
            await asyncio.sleep(0.01)
            times.append(await load.visit(contestant.live))
        enough.set()
        await asking
    live_p99 = load.percentile(times, 0.99)
    return IdleFigures(contestant.name, contestant.ready, contestant.idle_rss, contestant.server.rss, live_p99)


def servers(field: Sequence[Contestant]) -> list[Server]:
    return [contestant.server for contestant in field if contestant.server is not None]


def ready_again(upstream: str, place: Path, times: int) -> float:
    """Seconds until ours is ready, in the middle of several starts."""
    seconds = []
    for _ in range(times):
        contestant = start_contestant(OURS, upstream, place)
        contestant.stop()
        seconds.append(contestant.ready)
    return median(seconds)


async def run_some(effort: Effort, place: Path, names: Sequence[str]) -> str:
    """Measure the scenarios whose titles hold one of these names, beside the bare relay only."""
    asked = [scenario for scenario in effort.scenarios() if any(name in scenario.title for name in names)]
    async with FakeUpstream(PACE) as upstream:
        with contestants((OURS, BARE), upstream.url, place) as field:
            return report_briefly(asked, await measure(upstream, field, asked, effort.rounds))


async def run(effort: Effort, place: Path, traces: Sequence[Path]) -> tuple[str, list[Target]]:
    asked = effort.scenarios(traces)
    async with FakeUpstream(PACE) as upstream:
        ready = ready_again(upstream.url, place, effort.starts)
        with contestants(effort.kinds, upstream.url, place) as field:
            absent = {kind.name for kind in effort.kinds} - {contestant.name for contestant in field}
            scores = await measure(upstream, field, asked, effort.rounds)
            needs = [
                await measure_health_beside_load(contestant, field, effort.looks)
                for contestant in field
                if contestant.server
            ]
    needs[0] = replace(needs[0], ready=ready)
    promised = targets(asked, scores, needs[0])
    return report(effort.rounds, asked, scores, needs, promised, absent=absent), promised


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="under a minute, without LiteLLM")
    parser.add_argument("--only", metavar="NAME", nargs="+", help="scenarios with such a name, beside the bare relay")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the tables there too")
    parser.add_argument("--earlier", metavar="DIR", type=Path, help="compare with the checkout of an earlier version")
    parser.add_argument("--traces", metavar="FILE", type=Path, nargs="+", default=(), help="replay these sessions, too")
    parser.add_argument("--strict", action="store_true", help="exit 1 where a target was missed")
    args = parser.parse_args()
    os.sched_setaffinity(0, {CLIENTS})
    with tempfile.TemporaryDirectory() as place:
        effort = SHORT if args.short else LONG
        if args.only:
            print(asyncio.run(run_some(effort, Path(place), args.only)))
            return 0
        if args.earlier:
            effort = replace(effort, kinds=(*effort.kinds, earlier(args.earlier.resolve())))
        text, promised = asyncio.run(run(effort, Path(place), args.traces))
    print(text)
    if args.markdown:
        args.markdown.write_text(text)
    return int(args.strict and not all(target.is_met for target in promised))


if __name__ == "__main__":
    sys.exit(main())
