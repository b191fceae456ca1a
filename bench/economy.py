"""What a policy saves and what it costs the agent, on recorded conversations replayed turn by turn through the heart.

python bench/economy.py --limit 120

Request i of a conversation carries everything before its assistant message i. Tokens are bytes / 4; the upstream's
cache holds every prefix of messages it was ever sent; prices are parts of the plain input price (read/write). The
agent's behaviour is held fixed: what it would read again because it was cleared is not charged, so savings are upper
bounds.

Retention asks whether what an agent reached for was still there. For the specific terms in the arguments of each
action that stand in an earlier message: *in context*, a whole original line with the term stands in the view;
*named*, the term stands anywhere in it, an index included (both for terms in none of the last six messages); *fresh*,
in context for terms that stand only in the last six.
"""

import argparse
import gzip
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from multiprocessing import Pool
from pathlib import Path
from typing import Any, ClassVar

from proxy.core.economics import Prices
from proxy.core.identity import chain
from proxy.core.messages import Message, Request
from proxy.core.overlay import Block
from proxy.core.pins import Pins
from proxy.core.pipeline import Draft, quarter
from proxy.core.plan import NeedSummary, Ready, decide
from proxy.core.rules import Facts, Keep, Rules
from proxy.core.steps import (
    ClearResults,
    ClipOutput,
    DedupOld,
    OneLiners,
    PruneTools,
    StripReasoning,
    ToolHints,
)
from proxy.wire.chat import parse

TRACES = Path(__file__).parents[2] / "shared" / "traces"
PRICES = {
    ".1/1.25": (0.1, 1.25),
    ".05/1.25": (0.05, 1.25),
    ".02/1": (0.02, 1.0),
    ".5/1": (0.5, 1.0),
    "none": (1.0, 1.0),
}
WINDOW = 200_000
FRESH = 6
TERM = re.compile(r"[A-Za-z0-9_./:@\\-]{5,}")
SPECIFIC = re.compile(r"[/._0-9]|[a-z][A-Z]")
REASONING = ("reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class JustUnder:
    """Clear the oldest results until the view is just under a size: what many agents do."""

    name: ClassVar[str] = "just_under"
    limit: int = 60_000

    def reach(self, draft: Draft) -> int:
        return sum(draft.count(message.raw) for message in draft.view) - self.limit

    def __call__(self, draft: Draft) -> Draft:
        excess, chosen = self.reach(draft), set[int]()
        for message in draft.middle:
            if excess > 0 and message.is_result and not message.literal and len(message.raw) > 200:
                chosen.add(id(message))
                excess -= draft.count(message.raw) - 20
        return draft.rewritten(
            lambda message, _: message.told("[Cleared.]", self.name) if id(message) in chosen else message
        )


def bare(**settings: Any) -> Rules:  # noqa: ANN401 (any of the rules)
    """Rules that do nothing but what is said."""
    plain = {
        "always": (),
        "when_full": (),
        "keep": Keep(tokens=0, groups=1),
        "clear_at_least": 1,
        "clear_cold_at_least": 1,
    }
    return Rules(**{**plain, "horizon": float("inf"), "min_groups": 0, "trigger": 0.0, "pins": Pins(), **settings})


PLAIN = ClearResults(over=800, keep_failed=0, outline=0, names=0, template="[Previous: used {tool}]")
BARE_TEN = Keep(tokens=0, groups=1)
POLICIES: dict[str, Rules] = {
    "nothing": bare(policy="nothing", new_blocks=False),
    "sliding, keep 10 results": bare(policy="sliding", when_full=(replace(PLAIN, keep_recent=10),)),
    "clear to just under 60k": bare(policy="just-under", when_full=(JustUnder(60_000),)),
    "batched 10k, keep 8k": bare(policy="b10", when_full=(PLAIN,), keep=Keep(tokens=8_000), clear_at_least=10_000),
    "batched 20k, keep 8k": bare(policy="b20", when_full=(PLAIN,), keep=Keep(tokens=8_000), clear_at_least=20_000),
    "seed j-cli": bare(
        policy="j-cli",
        when_full=(replace(PLAIN, exempt=("*skill*", "task", "*todo*", "ask*"), keep_recent=10),),
        trigger_tokens=204_800,
    ),
    "seed middleware": bare(policy="middleware", clear_at_least=10**9, trigger_tokens=200_000),
    "seed jp": bare(
        policy="jp",
        when_full=(
            StripReasoning(with_calls=True),
            DedupOld(),
            ToolHints(outline=0, names=0, template="[compacted] {tool}: {outcome}"),
            PruneTools(),
        ),
        clear_at_least=10**9,
        trigger=0.75,
        min_groups=5,
        keep=Keep(tokens=0, groups=1, turns=1),
    ),
    "seed blocks": bare(
        policy="blocks",
        when_full=(ClipOutput(over=0, lines=50),),
        fold=(OneLiners(),),
        clear_at_least=10**9,
        trigger=0.9,
        keep=Keep(tokens=0, groups=10, first=2),
    ),
    "default": Rules(),
}


@dataclass(slots=True)
class Tally:
    """What one policy came to."""

    requests: int = 0
    tokens: int = 0
    cached: int = 0
    cost: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    rewrites: int = 0
    peak: int = 0
    over: int = 0
    terms: int = 0
    in_context: int = 0
    named: int = 0
    fresh_terms: int = 0
    fresh: int = 0

    def add(self, other: "Tally") -> None:
        for name in self.__slots__:
            if name == "cost":
                for key, value in other.cost.items():
                    self.cost[key] += value
            elif name == "peak":
                self.peak = max(self.peak, other.peak)
            else:
                setattr(self, name, getattr(self, name) + getattr(other, name))


class Conversation:
    """A recorded conversation, parsed once, and where each of its terms stands."""

    def __init__(self, record: dict[str, Any]) -> None:
        source = {"messages": record["messages"], **({"tools": record["tools"]} if record.get("tools") else {})}
        request = parse(json.dumps(source, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        if request is None:
            raise ValueError(f"{record.get('id')}: not understood")
        self.request = request
        self.links = chain(request, "bench", b"k" * 32)
        self.lines = [lines(message.raw) for message in request.messages]
        self._texts = ["\n".join(found) for found in self.lines]
        self._where: dict[str, list[int]] = {}

    def where(self, term: str) -> list[int]:
        """The places of the messages that hold this term."""
        if term not in self._where:
            self._where[term] = [place for place, text in enumerate(self._texts) if term in text]
        return self._where[term]

    def turns(self) -> Iterator[tuple[int, Request]]:
        for place, message in enumerate(self.request.messages):
            if message.role == "assistant" and place:
                yield (
                    place,
                    replace(self.request, messages=self.request.messages[:place], offsets=self.request.offsets[:place]),
                )


@lru_cache(maxsize=200_000)
def lines(raw: bytes) -> frozenset[str]:
    """Every line of text in a message: content, reasoning, and the texts inside its calls' arguments."""
    message = json.loads(raw)
    found = [*texts(message.get("content")), *(message.get(key) or "" for key in REASONING)]
    for call in message.get("tool_calls") or ():
        arguments = (call.get("function") or {}).get("arguments") or (call.get("custom") or {}).get("input") or ""
        try:
            found += texts(json.loads(arguments))
        except ValueError:
            found.append(arguments)
    return frozenset(line for text in found if isinstance(text, str) for line in text.split("\n"))


def texts(value: Any) -> Iterator[str]:  # noqa: ANN401 (any JSON)
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


def terms(text: str) -> set[str]:
    return {term for term in TERM.findall(text) if SPECIFIC.search(term)}


def wanted(message: Message) -> set[str]:
    return {term for call in message.calls for text in texts(_loaded(call.arguments)) for term in terms(text)}


def _loaded(arguments: str) -> Any:  # noqa: ANN401 (any JSON)
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def replay(conversation: Conversation, rules: Rules, prices: Prices) -> Tally:
    """One conversation under one policy."""
    tally, seen, blocks, earlier = Tally(), set[int](), dict[bytes, Block](), ()
    head = len(conversation.request.head)
    for place, request in conversation.turns():
        links = conversation.links[: len(request.messages) - head + 1]
        found = next((blocks[link] for link in reversed(links) if link in blocks), None)
        facts = Facts(usable=int(WINDOW * 0.9), prices=prices)
        plan = decide(request, links, (found,) if found else (), rules, count=quarter, facts=facts)
        ready = plan.give_up() if isinstance(plan, NeedSummary) else plan
        if ready.block is not None:
            blocks.setdefault(ready.link, ready.block)
        _charge(tally, ready, seen)
        tally.rewrites += any(one.raw != other.raw for one, other in zip(earlier, ready.view, strict=False)) or len(
            earlier
        ) > len(ready.view)
        earlier = ready.view
        _remember(tally, conversation, place, ready.view)
    return tally


def _charge(tally: Tally, ready: Ready, seen: set[int]) -> None:
    size = cached = prefix = 0
    for message in ready.view:
        prefix = hash((prefix, message.raw))
        tokens = quarter(message.raw)
        size += tokens
        cached += tokens if prefix in seen else 0
        seen.add(prefix)
    tally.requests += 1
    tally.tokens += size
    tally.cached += cached
    tally.peak = max(tally.peak, size)
    tally.over += size > WINDOW
    for name, (read, write) in PRICES.items():
        tally.cost[name] += cached * read + (size - cached) * write


def _remember(tally: Tally, conversation: Conversation, place: int, view: tuple[Message, ...]) -> None:
    """The three retentions of the action at this place."""
    literals = [message.raw for message in view if message.literal]
    kept = {id(message) for message in view}
    whole = [id(message) in kept for message in conversation.request.messages[:place]]
    for term in wanted(conversation.request.messages[place]):
        places = [each for each in conversation.where(term) if each < place]
        if not places:
            continue
        stands = any(whole[each] for each in places) or _line_stands(term, places, conversation, literals)
        if places[0] >= place - FRESH:
            tally.fresh_terms += 1
            tally.fresh += stands
        elif places[-1] < place - FRESH:
            tally.terms += 1
            tally.in_context += stands
            tally.named += stands or any(any(term in line for line in lines(raw)) for raw in literals)


def _line_stands(term: str, places: list[int], conversation: Conversation, literals: list[bytes]) -> bool:
    original = {line for place in places for line in conversation.lines[place] if term in line}
    return any(not original.isdisjoint(lines(raw)) for raw in literals)


def records(files: list[Path], limit: int, least: int) -> Iterator[dict[str, Any]]:
    """A fixed share of each file, so that every kind of agent is there."""
    found = []
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") as rows:
            found += [row for row in map(json.loads, rows) if len(row["messages"]) >= least]
    step = max(1, len(found) // limit) if limit else 1
    yield from islice(found, 0, None, step)


def measure(job: tuple[dict[str, Any], dict[str, Rules]]) -> dict[str, Tally]:
    """Every policy over one conversation; rules that weigh prices are told each price in its turn."""
    record, policies = job
    conversation = Conversation(record)
    found = {}
    for name, rules in policies.items():
        if rules.horizon == float("inf"):
            found[name] = replay(conversation, rules, Prices())
            continue
        for label, (read, write) in PRICES.items():
            tally = replay(conversation, rules, Prices(read=read, write=write))
            found[f"{name} @{label}"] = tally
    return found


def table(tallies: dict[str, Tally]) -> str:
    """Everything in parts of doing nothing."""
    plain = tallies["nothing"]
    costs = " | ".join(f"cost {name}" for name in PRICES)
    rows = [f"| policy | tokens | {costs} | cached | rewrites /100 | peak | in context | named | fresh |"]
    rows.append("|---" * (len(PRICES) + 8) + "|")
    for name, tally in tallies.items():
        costs = [f"{100 * tally.cost[price] / plain.cost[price]:.1f}" for price in PRICES]
        kept = [
            tally.in_context / max(1, tally.terms),
            tally.named / max(1, tally.terms),
            tally.fresh / max(1, tally.fresh_terms),
        ]
        row = [name, f"{100 * tally.tokens / plain.tokens:.0f}", *costs, f"{100 * tally.cached / tally.tokens:.1f} %"]
        row += [
            f"{100 * tally.rewrites / tally.requests:.1f}",
            f"{tally.peak / 1000:.0f}k",
            *(f"{each:.3f}" for each in kept),
        ]
        rows.append("| " + " | ".join(row) + " |")
    return "\n".join(rows)


def run(
    policies: dict[str, Rules], *, limit: int, least: int = 20, files: list[Path] | None = None
) -> dict[str, Tally]:
    files = files or [file for file in sorted(TRACES.glob("*.jsonl.gz")) if "malformed" not in file.name]
    total: dict[str, Tally] = defaultdict(Tally)
    with Pool(2) as pool:
        jobs = ((record, policies) for record in records(files, limit, least))
        for found in pool.imap_unordered(measure, jobs, chunksize=1):
            for name, tally in found.items():
                total[name].add(tally)
    return dict(total)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--limit", type=int, default=120, help="about so many conversations (0: all)")
    options.add_argument("--policy", action="append", help="only these (and nothing)")
    chosen = options.parse_args()
    names = chosen.policy or list(POLICIES)
    tallies = run({name: POLICIES[name] for name in ["nothing", *names]}, limit=chosen.limit)
    one = tallies["nothing"]
    print(f"{one.requests:,} requests, {one.terms:,} terms, {one.fresh_terms:,} fresh terms\n")
    print(table(tallies))


if __name__ == "__main__":
    sys.exit(main())
