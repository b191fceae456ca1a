"""Write a page: the participants, the cost and loss of each on the same conversations, and each as a relay."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tables import figure, provenance, table

from peers.environments import Environment
from peers.processes import PEERS, UNTRIED, Absent
from peers.relays import BESIDE, STREAM, Relay, beyond, median_of, times_bare
from proxy.lab.replay.replay_values import Result
from proxy.lab.replay.scorecard import SHAPE, WORTH, fill_cells, group_rows

MS = 1e3
SHOWN = ("cost", "with re-reads", "per conversation", "rewrites /100", "summaries", "over", "invalid", "failed")
COLUMNS = [column for column in (*WORTH, *SHAPE) if column.name in SHOWN]
PRICES = "twentieth"
SIZES = ("1 kB", "100 kB", "1 MB")

INTRO = """\
# Comparison with other tools

{provenance}.
{conversations}.

Every conversation names one model (`gpt-4o`), which all peers know. Figures are
[those of `replay`](replay-your-sessions.md#figures), with cached input at 0.05 and new input at 1.25 of the input
price. Policies are simulated with the same stand-in for summaries. Processes are installed from pip, each in an
environment of its own, and played turn by turn over HTTP with a recorder as their upstream.

```bash
make -C bench peers                                            # a generated sample, some minutes
make -C bench peers TRACES=DIR ARGS="--out results"            # recorded conversations; an interrupted run continues
```

`--markdown FILE` among the `ARGS` writes this page.
"""

NOTES = """\
- `sliding-10`, `just-under-60k` and `batched-20k` are
  [plain designs](replay-your-sessions.md#designs-to-compare-with); `j-cli`, `middleware`, `jp` and `blocks` are
  [published ones](five-documents.md); `ours` is the proxy itself with the policy `default`.
- `context editing` is [Anthropic's `clear_tool_uses`](https://platform.claude.com/docs/en/build-with-claude/context-editing):
  over 100,000 input tokens the results of all tool uses but the newest three are cleared. `forgets`: the provider does
  not remember what it cleared. `20k` sets `clear_at_least`.
- `trim to 60k` is LangChain's `trim_messages(strategy="last", start_on="human", include_system=True)`. If an agent
  works long on one message, only the system prompt is left: such requests are cheap, and `invalid`.
- headroom runs offline, without the model for prose that it would download. LiteLLM compacts nothing on chat
  completions. CliffCompaction sends two user messages in a row, which strict chat templates refuse.
"""

RELAY_NOTES = """\
Medians of {rounds} rounds; each relay has one core, clients and upstream share the other. A size is the same history
again and again. `beside`: 1 kB while three requests of 1 MB are under way. Ratios carry from machine to machine, times
do not.
"""


@dataclass(frozen=True, slots=True)
class Run:
    """The results of one run."""

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
        "## Participants\n",
        *_list_participants(run),
        "## On the same conversations\n",
        _make_scores(run.results),
        NOTES,
        *_list_relays(run),
    ]
    return "\n".join(f"{part.rstrip()}\n" for part in parts)


def _list_participants(run: Run) -> list[str]:
    relays = {relay.name: relay for relay in run.relays}
    installed = {environment.name: environment for environment in run.installed}
    rows = []
    for peer in PEERS:
        environment = installed.get(peer.environment)
        if environment is not None:
            size = figure(environment.megabytes, 0)
            needs = _describe_needs(relays.get(peer.name))
            rows.append((peer.name, environment.version, str(environment.packages), size, *needs, peer.told))
    missing = [f"- {peer.name}: {peer.why}." for peer in (*run.absent, *UNTRIED)]
    head = ("", "version", "packages", "MB installed", "s to start", "MB idle", "MB afterwards", "settings")
    return [table(head, rows) + "\n", "Not here:\n", "\n".join(missing) + "\n"]


def _describe_needs(relay: Relay | None) -> tuple[str, str, str]:
    if relay is None:
        return "-", "-", "-"
    return figure(relay.ready, 1), figure(relay.idle_rss, 0), figure(relay.busy_rss, 0)


def _make_scores(results: Sequence[Result]) -> str:
    rows = fill_cells(group_rows(results, PRICES), COLUMNS)
    return table(("", *(column.name for column in COLUMNS)), [list(map(str, cells)) for cells in rows])


def _list_relays(run: Run) -> list[str]:
    if not run.relays:
        return []
    direct, bare = run.relays[:2]
    rows = []
    for relay in run.relays[1:]:
        delays = [_describe_seconds(beyond(relay, direct, name)) for name in (*SIZES, BESIDE)]
        ratios = [times_bare(relay, bare, name) for name in SIZES]
        lag = median_of(relay, STREAM, "lag")
        cells = ["-" if ratio is None else figure(ratio, 1) for ratio in ratios]
        rows.append((relay.name, *delays, "-" if lag is None else figure(lag * MS, 2), *cells))
    added = [f"ms added, {name}" for name in (*SIZES, "beside")]
    head = ("", *added, "lag of a chunk p99, ms", *(f"CPU x bare, {name}" for name in SIZES))
    failed = [f"- {relay.name}, {name}: {why}." for relay in run.relays for name, why in relay.failed.items()]
    parts = ["## As relays\n", RELAY_NOTES.format(rounds=run.rounds), table(head, rows) + "\n"]
    if failed:
        parts += ["Failed:\n", "\n".join(failed) + "\n"]
    return parts


def _describe_seconds(rounds: Sequence[float]) -> str:
    """The median, in milliseconds."""
    return figure(median(rounds) * MS, 2) if rounds else "-"
