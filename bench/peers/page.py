"""docs/peers.md: who took part, what each costs, sends and keeps, takes as a relay, and where others are better.

Whatever is judged on it is read off the figures; the words here say only who each peer is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import median

from tables import figure, provenance, table

from peers import environments, findings
from peers.environments import Environment
from peers.policies import OURS as DEFAULT
from peers.processes import PEERS, UNTRIED, Absent
from peers.relays import BESIDE, STREAM, Relay, added_seconds, beyond, median_of, times_bare
from proxy.lab.replay.scorecard import KEPT, SHAPE, WORTH, Cell, Column, fill_cells, group_rows
from proxy.lab.replay.values import Result

MS = 1e3
COLUMNS: dict[str, Sequence[Column]] = {
    "What it is worth": WORTH,
    "What is sent": [each for each in SHAPE if each.name != "$"],
    "What is kept": KEPT[:2],
}
PRICES_SHOWN = "tenth"

INTRO = """\
# Others beside ours, in one run

{provenance}.
{conversations}.

Every conversation names one model (`gpt-4o`), which all peers know and to which they give the same window.
The measures are [those of `replay`](replay-your-sessions.md#figures): cost in parts of doing nothing, summaries
included, cached input at
a tenth of its price, without and with what would be read again; the share of needed spans that is kept; `over`:
requests larger than the window; `invalid`: requests in which something is wrong that was right; `failed`: requests that
a process did not answer as the upstream did. **Policies** are simulated, each with the same stand-in for a model that
writes summaries. **Processes** are the peers themselves, installed from pip, each in an environment of its own, played
turn by turn over HTTP with a recorder as their upstream. The agent does what it did when it was recorded.

```bash
make -C bench peers                                            # on a generated sample, some minutes
make -C bench peers TRACES=DIR ARGS="--out results"            # on recorded ones; a run that broke off goes on
make -C bench peers TRACES=DIR ARGS="--every 1 --out results"  # on all of them that have 30,000 tokens: hours
```

With `--markdown docs/peers.md` among the `ARGS` this page is written; nothing on it is added by hand.
"""

POLICY_NOTES = """\
- `sliding-10`, `just-under-60k` and `batched-20k` are
  [plain designs](replay-your-sessions.md#designs-to-compare-with); `j-cli`, `middleware`, `jp` and
  `blocks` are shipped, the designs ours grew from; `default` is our core alone, `ours` the proxy that runs.
- `context editing` is Anthropic's documented `clear_tool_uses`: over 100,000 input tokens the results of all tool uses
  but the newest 3 are cleared. Whether the provider remembers what it cleared is not documented: `forgets` is the
  other reading. `20k` sets `clear_at_least`.
- `trim to 60k` is LangChain's `trim_messages(strategy="last", start_on="human", include_system=True)`, rewritten here
  and held against langchain-core 1.7.2: the same messages on 267 recorded requests. Where an agent works long on
  one word of a user, there is none among the newest tokens to start on, and nothing but the system prompt is left: such
  requests are cheap, and `invalid`.
"""

PROCESS_NOTES = """\
- LiteLLM is a gateway: on chat completions it compacts nothing, and is here for what a gateway costs. What an answer
  says between `<thinking>` tags it takes out of the text, which counts as `failed`.
- headroom runs offline, so its model for prose, which it would download, is not there: measured is what it does by
  rule.
- context-guardian's `invalid` requests begin with an answer: what the user had asked went into a note in the role of
  the system. kompact hands on instructions and answers in the role of a user; `invalid` does not look at that, the
  columns `alternating` and `anthropic` do.
- A process sees the turns within seconds. So ours never learns here that a cache went cold, and no store of a peer
  expires.
"""

RELAY_NOTES = """\
Each relay has one core for itself, clients and upstream share the other; medians of {rounds} rounds in which they
take turns while the others are idle. `added` is beyond no relay at all, with the least and the most of the
rounds; `bare aiohttp` is the least a relay in Python can do. Each does what it does by default, ours too: a large
history is counted and shortened there. A size's requests are one history again and again. Ratios carry from machine to
machine, times do not.
"""


WHY = """\
Why: ours clears in strides (from 14,000 tokens on today), because that is what pays at the prices of caches; a design
that waits for 100,000 tokens, or never clears, keeps more whole lines and pays for them. It reads, counts and remembers
each history before it decides, in memory; that is its part of a relay's time and megabytes. A third of what it
installs is one codec, zstandard (24 MB).
"""


@dataclass(frozen=True, slots=True)
class Run:
    """All that a run found."""

    conversations: str
    results: Sequence[Result]
    """Of the policies, then of the processes."""
    absent: Sequence[Absent]
    installed: Sequence[Environment]
    relays: Sequence[Relay]
    rounds: int


def page(run: Run) -> str:
    parts = [
        INTRO.format(provenance=provenance(), conversations=run.conversations),
        "## Who takes part\n",
        *_participants(run),
        "## All of them on the same conversations\n",
        *_scores(run.results),
        POLICY_NOTES + PROCESS_NOTES,
        *_relays(run),
        "## Where others are better than ours\n",
        *_better(run),
    ]
    return "\n".join(f"{part.rstrip()}\n" for part in parts)


def _participants(run: Run) -> list[str]:
    relays = {relay.name: relay for relay in run.relays}
    installed = {each.name: each for each in run.installed}
    head = ("", "version", "packages", "MB installed", "s to install", "s to start", "MB idle", "MB afterwards", "told")
    present = [peer for peer in PEERS if peer.environment in installed]
    listed = [
        (
            peer.name,
            installed[peer.environment].version,
            str(installed[peer.environment].packages),
            figure(installed[peer.environment].megabytes, 0),
            figure(installed[peer.environment].seconds, 0),
            *_needs(relays.get(peer.name)),
            peer.told,
        )
        for peer in present
    ]
    missing = [f"- {each.name}: {each.why}." for each in (*run.absent, *UNTRIED)]
    return [table(head, listed) + "\n", "Not here:\n", "\n".join(missing) + "\n"]


def _needs(relay: Relay | None) -> tuple[str, str, str]:
    if relay is None:
        return "-", "-", "-"
    return figure(relay.ready, 1), figure(relay.idle_rss, 0), figure(relay.busy_rss, 0)


def _scores(results: Sequence[Result]) -> list[str]:
    rows = group_rows(results, PRICES_SHOWN)
    return [
        table(
            (title, *(column.name for column in columns)),
            [list(map(format_cell, cells)) for cells in fill_cells(rows, columns)],
        )
        + "\n"
        for title, columns in COLUMNS.items()
    ]


def format_cell(cell: Cell) -> str:
    return f"{cell:,}" if isinstance(cell, int | Decimal) else cell


def _better(run: Run) -> list[str]:
    """Processes are held against the process, policies against the policy."""
    rows = group_rows(run.results, PRICES_SHOWN)
    processes = {peer.name for peer in PEERS}
    groups = (
        ("Of the policies, against `default`:", DEFAULT, [name for name in rows if name not in processes]),
        ("Of the processes, against `ours`:", environments.OURS, [name for name in rows if name in processes]),
    )
    values = []
    for title, ours, names in groups:
        if ours in names:
            found = findings.better({name: rows[name] for name in names}, ours)
            values += [title + "\n", "\n".join(findings.sentences(found, f"`{ours}`")) + "\n"]
    if run.relays:
        values += ["Of what they take:\n", "\n".join(findings.lighter(order_by_time(run), environments.OURS)) + "\n"]
    return [*values, WHY]


def order_by_time(run: Run) -> dict[str, dict[str, float | None]]:
    """By what is taken, then by peer."""
    installed = {each.name: each for each in run.installed}
    sizes = {peer.name: installed[peer.environment] for peer in PEERS if peer.environment in installed}
    direct, relays = run.relays[0], {relay.name: relay for relay in run.relays[2:]}
    things = ("1 kB", "100 kB", "1 MB", BESIDE)
    return {
        "packages": {name: each.packages for name, each in sizes.items()},
        "MB installed": {name: each.megabytes for name, each in sizes.items()},
        "seconds to start": {name: relay.ready for name, relay in relays.items()},
        "MB idle": {name: relay.idle_rss for name, relay in relays.items()},
        "MB afterwards": {name: relay.busy_rss for name, relay in relays.items()},
        **{
            f"ms added, {thing}": {name: _in_ms(added_seconds(each, direct, thing)) for name, each in relays.items()}
            for thing in things
        },
        **{
            f"CPU ms, {thing}": {name: _in_ms(median_of(each, thing, "cpu")) for name, each in relays.items()}
            for thing in things[:3]
        },
    }


def _in_ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * MS


def _relays(run: Run) -> list[str]:
    if not run.relays:
        return []
    direct, bare = run.relays[:2]
    sizes = ("1 kB", "100 kB", "1 MB")
    delay = [
        (
            relay.name,
            *(_span(beyond(relay, direct, name)) for name in (*sizes, BESIDE)),
            _ms(median_of(relay, STREAM, "lag")),
        )
        for relay in run.relays[1:]
    ]
    cpu = [
        (relay.name, *(_ms(median_of(relay, name, "cpu")) for name in (*sizes, STREAM)), *_times(relay, bare, sizes))
        for relay in run.relays[1:]
    ]
    failed = [f"- {relay.name}, {name}: {why}." for relay in run.relays for name, why in relay.failed.items()]
    return [
        "## As relays\n",
        RELAY_NOTES.format(rounds=run.rounds),
        table(("ms added to the median", *sizes, BESIDE, f"lag of a chunk p99, {STREAM}"), delay) + "\n",
        table(("CPU ms a request", *sizes, STREAM, *(f"x bare, {name}" for name in sizes)), cpu) + "\n",
        *(["Failed:\n", "\n".join(failed) + "\n"] if failed else []),
    ]


def _times(relay: Relay, bare: Relay, names: Sequence[str]) -> list[str]:
    found = [times_bare(relay, bare, name) for name in names]
    return ["-" if each is None else figure(each, 1) for each in found]


def _span(seconds: Sequence[float]) -> str:
    """The middle, and how far the rounds lie apart."""
    if not seconds:
        return "-"
    least, most = min(seconds) * MS, max(seconds) * MS
    return f"{median(seconds) * MS:,.2f} ({least:,.1f} to {most:,.1f})"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else figure(seconds * MS, 2)
