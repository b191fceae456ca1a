"""The fixed set that all peers are played: few enough for slow peers, chosen by a rule.

A short history tells nothing about compaction, so of the recorded conversations those of at least 30,000 tokens count,
and of these each so manieth, in the order of the files. All of them have the same model, which all peers
know and to which they give the same window: what a model's name makes a peer do is not what is compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from proxy.lab import sessions
from proxy.lab.replay import sample
from proxy.lab.replay.replay_history import encode
from proxy.lab.replay.replay_values import Conversation, RecordedUsage
from proxy.shorten.pipeline import estimate_tokens

MODEL = "gpt-4o"
WINDOW = 128_000
LEAST = 30_000
EVERY = 12


def choose_conversations(files: Sequence[Path], every: int = EVERY) -> list[Conversation]:
    """An even share of what is recorded there; the generated sample where no file is named."""
    if not files:
        return [of_one_model(each) for each in sample.conversations()]
    return [of_one_model(each) for each in share(read(files), every)]


def read(files: Sequence[Path]) -> Iterable[Conversation]:
    return (conversation for path in files for conversation in sessions.read_conversations(path))


def share(found: Iterable[Conversation], every: int) -> list[Conversation]:
    return [each for each in found if tokens(each) >= LEAST][::every]


def tokens(conversation: Conversation) -> int:
    return sum(estimate_tokens(encode(message)) for message in conversation.messages)


def of_one_model(conversation: Conversation) -> Conversation:
    """Without the usage of the model that it really was."""
    return replace(conversation, model=MODEL, recorded=times(conversation.recorded))


def times(recorded: Mapping[int, RecordedUsage]) -> dict[int, RecordedUsage]:
    return {place: RecordedUsage(at=each.at) for place, each in recorded.items()}
