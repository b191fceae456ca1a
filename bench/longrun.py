"""A long agent run through the real proxy: does anything overflow, how often is the prefix broken, what does it cost?

python bench/longrun.py                              the default policy
python bench/longrun.py --policy default --policy off --turns 150
python bench/longrun.py --summaries down             the upstream fails every summary
python bench/longrun.py --set summary.enabled=false --set clear_at_least=20000      the policies with other settings

The agent, its task and the model are simulated (proxy/lab/demo); the traffic is real: a client that sends its whole
history with every turn, the proxy as its users run it, and an upstream that counts with the model's tokenizer,
refuses what is over its window, and keeps a prefix cache as providers do. *Without* is the same run with nothing in
between, at a model that would have room for all of it.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from statistics import median
from typing import Any

from process import Server
from tables import provenance, table

from proxy.lab.demo.agent import TURNS, Agent, AgentTurn, sample
from proxy.lab.demo.model import NAME, TURNOUTS, WINDOW_TOKENS, DemoUsage, Manner, SimulatedModel, SimulatedServer
from proxy.lab.demo.picture import Bill, Tally, charge_untouched, measure_waits
from proxy.models.tokenizer import Tokenizers

LIMITS = {"over": 0, "summaries": 6, "breaks": 16, "cached": 0.9, "cost": 0.33}
WAITED = 1.0
"""Seconds in the proxy; a summary takes longer, everything else does not."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy's run."""

    name: str
    tally: Tally
    untouched: list[DemoUsage]
    turns: list[AgentTurn]

    @property
    def without(self) -> Bill:
        return Bill.of(self.untouched)

    @property
    def left(self) -> int:
        """Turns that failed, or never came."""
        return len(self.untouched) - sum(turn.ok for turn in self.turns)

    @property
    def cost(self) -> float:
        return self.tally.bill.cost() / self.without.cost()

    @property
    def waits(self) -> list[float]:
        return measure_waits(self.turns, self.tally.received) or [0.0]

    @property
    def full_price(self) -> tuple[int, int, int]:
        """Tokens that no cache had: new ones, those read again after a rewrite, and those of summary calls."""
        new = again = 0
        for turn in self.tally.turns:
            uncached, due = (usage.prompt - usage.cached for usage in (turn.usage, self.untouched[turn.step]))
            new += min(uncached, due)
            again += max(0, uncached - due)
        return new, again, self.tally.bill.prompt - self.tally.bill.cached - new - again

    def rows(self) -> list[tuple[str, str, str, bool]]:
        """What is asked for, what was found, and whether that will do."""
        tally, bill = self.tally, self.tally.bill
        waited = sum(wait > WAITED for wait in self.waits)
        return [
            ("turns that failed or never came", "0", str(self.left), not self.left),
            ("requests over the window", "0", str(tally.over), tally.over <= LIMITS["over"]),
            ("requests refused as malformed", "0", str(tally.malformed), not tally.malformed),
            (f"turns that waited over {WAITED:g} s", "0", str(waited), not waited),
            ("summary calls", "<= 6", str(tally.summaries), tally.summaries <= LIMITS["summaries"]),
            ("prefix breaks", "<= 16", str(tally.breaks), tally.breaks <= LIMITS["breaks"]),
            ("forwarded input from the cache", ">= 90 %", f"{bill.share:.1%}", bill.share >= LIMITS["cached"]),
            ("cost at .1 cached / 1, of no compaction", "<= 33 %", f"{self.cost:.1%}", self.cost <= LIMITS["cost"]),
        ]

    def more(self) -> list[tuple[str, str, str]]:
        """What else there is to know."""
        tally, bill = self.tally, self.tally.bill
        new, again, summing = self.full_price
        made = [turn.read_note("-reason") for turn in self.turns if turn.read_note("") == "created"]
        reasons = ", ".join(f"{made.count(each)} {each}" for each in dict.fromkeys(made))
        return [
            ("history at the end, tokens", "", f"{self.untouched[-1].prompt:,}"),
            ("longest request, tokens", "", f"{tally.peak:,}"),
            ("tokens forwarded", "", f"{bill.prompt:,}"),
            ("the same, of no compaction", "", f"{bill.prompt / self.without.prompt:.1%}"),
            ("at full price: new", "", f"{new:,}"),
            ("at full price: read again after a rewrite", "", f"{again:,}"),
            ("at full price: in summary calls", "", f"{summing:,}"),
            ("from the cache without compaction", "", f"{self.without.share:.1%}"),
            ("blocks made", "", f"{len(made)} ({reasons})"),
            ("from client to upstream, median, longest", "",
             f"{median(self.waits) * 1000:.0f} ms, {max(self.waits) * 1000:.0f} ms"),
        ]  # fmt: skip


async def measure_policy(policy: str, args: argparse.Namespace, place: Path) -> Outcome:
    run, tokenizers = sample(args.turns), Tokenizers()
    tokenizer = tokenizers.of(NAME)
    manner = Manner(args.window, args.turn_seconds, args.summary_seconds, args.summaries or ("good",))
    model = SimulatedModel(run, tokenizer, manner)
    async with SimulatedServer(model) as upstream:
        proxy, url = start_proxy(policy, args.set, upstream.url, place)
        await asyncio.to_thread(proxy.ready, f"{url}/health/ready")
        turns = [turn async for turn in Agent(run, f"{url}/v1", NAME).work()]
        await asyncio.to_thread(proxy.stop)
    for turn in turns:
        if not turn.ok:
            print(f"{policy}: turn {turn.step + 1} failed: {turn.status} {turn.error[:400]}", file=sys.stderr)
    return Outcome(policy, Tally(model.received), charge_untouched(run, tokenizer), turns)


def start_proxy(policy: str, more: list[str], upstream: str, place: Path) -> tuple[Server, str]:
    """The proxy as its users run it, with a policy that inherits from the named one."""
    with socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = str(sock.getsockname()[1])
    config = place / f"{policy}.yaml"
    policies = {"measured": {"inherit": policy, **settings(more)}}
    config.write_text(json.dumps({"upstreams": [{"base_url": upstream, "policy": "measured"}], "policies": policies}))
    command = [sys.executable, "-m", "proxy", "serve", "--config", str(config), "--port", port]
    return Server([*command, "--state", str(place / policy)], place / f"{policy}.log"), f"http://127.0.0.1:{port}"


def settings(given: list[str]) -> dict[str, Any]:
    """`summary.enabled=false` as a policy has it."""
    found: dict[str, Any] = {}
    for each in given:
        path, _, value = each.partition("=")
        *groups, name = path.split(".")
        at = found
        for group in groups:
            at = at.setdefault(group, {})
        at[name] = json.loads(value)
    return found


def report(outcomes: list[Outcome], args: argparse.Namespace) -> str:
    names = ("", "asked for", *(outcome.name for outcome in outcomes))
    judged = [(what, asked, *(f"{found}{'' if good else ' !'}" for _, _, found, good in same))
              for same in zip(*(outcome.rows() for outcome in outcomes), strict=True)
              for what, asked, *_ in same[:1]]  # fmt: skip
    values = [(*same[0][:2], *(found for _, _, found in same))
            for same in zip(*(outcome.more() for outcome in outcomes), strict=True)]  # fmt: skip
    about = f"{args.turns} turns, one user message, a window of {args.window:,} tokens, {NAME}'s tokenizer"
    kinds = f"summaries: {', '.join([*(args.summaries or ['good']), *args.set])}"
    return f"{about}; {kinds}.\n\n{provenance()}.\n\n{table(names, judged)}\n\n{table(names, values)}\n"


async def compare_policies(args: argparse.Namespace) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as place:
        return [await measure_policy(policy, args, Path(place)) for policy in args.policy or ["default"]]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policy", action="append", help="may be repeated (default: default)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the policies")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--window", type=int, default=WINDOW_TOKENS)
    parser.add_argument("--turn-seconds", type=float, default=0.0)
    parser.add_argument("--summary-seconds", type=float, default=0.0)
    parser.add_argument("--summaries", action="append", choices=TURNOUTS, help="how they come out, one after another")
    args = parser.parse_args()
    outcomes = asyncio.run(compare_policies(args))
    print(report(outcomes, args))
    return 0 if all(good for outcome in outcomes for *_, good in outcome.rows()) else 1


if __name__ == "__main__":
    sys.exit(main())
