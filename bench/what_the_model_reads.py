"""What a model reads: late forwarded bodies of conversations, printed as text, and how much of them are placeholders.

python bench/what_the_model_reads.py [FILE ...] [--limit N] [--figures] [--policy P]
python bench/what_the_model_reads.py --page docs/what-the-model-reads.md

Without files it takes the built-in sample conversations. The page shows examples of those only: recorded conversations
quote the code of others.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from proxy.config.settings import Config
from proxy.history.messages import Message
from proxy.lab import sessions
from proxy.lab.replay import sample
from proxy.lab.replay.replay_history import ReplayHistory
from proxy.lab.replay.replay_values import PRICES, Conversation
from proxy.lab.replay.simulation import Simulation, Trial
from proxy.lab.replay.summarizers import StandIn
from proxy.shorten.fold import OPENING

WINDOW = 128_000
FOLDED_WINDOW = 32_000
"""A window before which the sample conversations are folded."""
SHORTENED = ("clear_results", "clear_observations", "clip_output", "tool_hints", "dedup_arrivals")


@dataclass(frozen=True)
class LateBody:
    """The view of one conversation that was forwarded last."""

    name: str
    view: tuple[Message, ...]

    @property
    def placeholders(self) -> list[str]:
        return [message.text for message in self.view if message.made in SHORTENED]

    @property
    def characters(self) -> int:
        return sum(len(message.raw.decode("utf-8", "replace")) for message in self.view)


def forward(
    conversations: Iterable[Conversation], policy: str, window: int = WINDOW, *, summaries: bool = True
) -> Iterator[LateBody]:
    rules = Config().policy(policy).rules(policy)
    prices = PRICES["tenth"]
    for conversation in conversations:
        history = ReplayHistory(conversation)
        turns = list(history.turns())
        summarizer = StandIn() if summaries else None
        simulation = Simulation(Trial(policy, rules, window, prices, summarizer=summarizer), history, prices)
        views = [simulation.forward(turn).view for turn in turns]
        if views:
            yield LateBody(f"{conversation.source} {conversation.name}", views[-1])


def print_figures(bodies: Iterable[LateBody]) -> None:
    """Size of placeholders, and their share of each late body that has any."""
    some = [body for body in bodies if body.placeholders]
    sizes = sorted(len(text) for body in some for text in body.placeholders)
    shares = sorted(sum(map(len, body.placeholders)) / body.characters for body in some)
    if sizes:
        total = sum(sizes) / sum(body.characters for body in some)
        print(
            f"{len(some)} conversations, {len(sizes)} placeholders: median {median(sizes):,.0f} characters, nine in ten"
            f" up to {sizes[len(sizes) * 9 // 10]:,}, most {sizes[-1]:,}; share of a late body: median"
            f" {median(shares):.0%}, nine in ten up to {shares[len(shares) * 9 // 10]:.0%}, of all {total:.0%}"
        )


def print_body(body: LateBody) -> None:
    """The view as a model reads it, message by message."""
    print(f"===== {body.name}: {len(body.view)} messages, {body.characters:,} characters")
    for message in body.view:
        print(f"--- {message.role}{f' ({message.made})' if message.made else ''}")
        if message.text:
            print(message.text)
        for call in message.calls:
            print(f"CALL {call.name} {call.arguments}")


PAGE = """# What the model reads

In place of an old result, the model reads a placeholder. These are from the built-in sample conversations;
`make -C bench what-the-model-reads` writes this page. Those of a conversation of your own:
`python bench/what_the_model_reads.py FILE`.

- The first line says who wrote it, the call, the size, the **outcome**, how much was left out and how to get the text.
  The outcome is an exit code if one was shown, with the line that explains a failure best; else `failed: LINE` if the
  API marks the result as an error or the tool's first words say so; `reports a failure: LINE` if a runner's own last
  words say so (`go test | tail`); else nothing.
- Below are **all lines that carry the outcome**, at most 40: lines in a known form of a failure
  (`proxy/tools/line_forms.py`), end states (`229 passed`, a commit), and the last lines of a command.
- Nothing else is quoted. Results of up to 2,500 bytes stay whole, and so do all words of the user and the assistant.

Where clearing is not enough and no model writes a summary, the oldest part is folded: the user's messages and the
newest answers stay, and one note tells of the rest.

Chat templates may refuse two messages of the user in a row. So histories get a separator in the assistant's role where
all answers between two of them are gone, but not in Messages, nor if the upstream has taken two in a row before:
`[Separator from the context proxy: the conversation continues below.]`. Of the user's messages in such a row all but
the last are forwarded as one message, each text whole.
"""
PAGE_KINDS = (
    ("A file that was read", "Read"),
    ("A command that failed", "Bash"),
)


def render_page(bodies: Sequence[LateBody], folded: Sequence[LateBody]) -> str:
    """The page with one placeholder of each kind, of middle length, and one note of a fold."""
    values = [text for body in bodies for text in body.placeholders]
    parts = [PAGE]
    for title, tool in PAGE_KINDS:
        found = sorted((text for text in values if f"proxy: {tool}(" in text.split("\n")[0]), key=len)
        if found:
            parts.append(f"## {title}\n\n```text\n{found[len(found) // 2]}\n```\n")
    repeats = [text for text in values if text.startswith("[Left out")]
    if repeats:
        parts.append(f"## A repeated result\n\n```text\n{repeats[0]}\n```\n")
    notes = [message.text for body in folded for message in body.view if message.text.startswith(OPENING)]
    if notes:
        parts.append(f"## A fold\n\n```text\n{min(notes, key=len)}\n```\n")
    return "\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--limit", type=int, default=0, help="about this many conversations, evenly spread")
    parser.add_argument("--figures", action="store_true", help="only the figures")
    parser.add_argument("--policy", default="default")
    parser.add_argument("--page", type=Path, help="write the page of examples to this file")
    args = parser.parse_args(arguments)
    found = [
        conversation for file in args.files for conversation in sessions.read_conversations(file)
    ] or sample.conversations()
    bodies = list(forward(found[:: max(1, len(found) // args.limit) if args.limit else 1], args.policy))
    if args.page:
        folded = list(forward(found, args.policy, FOLDED_WINDOW, summaries=False))
        args.page.write_text(render_page(bodies, folded), encoding="utf-8")
    elif not args.figures:
        for body in bodies:
            print_body(body)
    print_figures(bodies)
    return 0


if __name__ == "__main__":
    sys.exit(main())
