"""Attachments: which policy applies to which requests.

The first attachment that fits a request decides, the highest priority first. Without one the team's own policy applies,
and without that the upstream's.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from proxy.config.values import ALL_PERCENT, AMOUNT_MAX, Amount, ConfigModel, Percent

_WILD = re.compile(r"[*?]|\[[^]]+\]")
_GLOBS = ("team", "key", "model", "upstream", "tag")


def _check_public_id(key: str) -> str:
    if key.startswith("cp-"):
        raise ValueError("a key is named by its public id (the ten characters after cp-): what follows is secret")
    return key


KeyIds = Annotated[str, AfterValidator(_check_public_id)]


class Attachment(ConfigModel):
    """A policy, and the requests that it applies to: those that match all of these globs."""

    policy: str = "default"
    """Policy to apply."""
    team: str = "*"
    """Teams, as a glob."""
    key: KeyIds = "*"
    """Team keys, as a glob over their public ids (the ten characters after cp-)."""
    model: str = "*"
    """Models, as a glob."""
    upstream: str = "*"
    """Upstreams, as a glob."""
    tag: str = "*"
    """Values of the request header x-compaction-tag, as a glob; without the header it is empty."""
    priority: Amount = Field(0, ge=-AMOUNT_MAX)
    """Attachments with a higher number come first; equal ones in the order of the file."""
    rollout: Percent = ALL_PERCENT
    """Percentage of conversations that it applies to: 5 is 5 %. Write less than 1 with its sign, such as 0.5%. Begin a
    new policy with 5, and raise it."""
    mode: Literal["", "auto", "observe", "off"] = ""
    """`auto`, `observe` or `off` instead of the policy's own mode. Set `observe` to see what a policy would do."""

    def fits(self, occasion: "Occasion") -> bool:
        return all(fnmatchcase(getattr(occasion, name), getattr(self, name)) for name in _GLOBS)

    def covers(self, other: "Attachment") -> bool:
        """Whether this attachment decides every request that the other one matches."""
        if self.rollout < other.rollout:
            return False
        return all(covers_glob(getattr(self, name), getattr(other, name)) for name in _GLOBS)


def covers_glob(wide: str, narrow: str) -> bool:
    """Whether everything that matches *narrow* also matches *wide*; False if that is hard to tell."""
    if wide in ("*", narrow):
        return True
    if "*" not in wide or "?" in wide or "[" in wide:
        return False
    return fnmatchcase(_WILD.sub("\0", narrow), wide)


@dataclass(frozen=True, slots=True)
class Occasion:
    """Properties of a request that attachments match."""

    team: str = ""
    key: str = ""
    model: str = ""
    upstream: str = ""
    tag: str = ""


@dataclass(frozen=True, slots=True)
class RolloutChoice:
    """A policy for conversations whose position is below `rollout`."""

    policy: str
    mode: str = ""
    rollout: float = ALL_PERCENT
    place: tuple[str | int, ...] = ()
    """The path of the setting that names it."""


def sort_by_priority(attachments: Sequence[Attachment]) -> list[tuple[int, Attachment]]:
    """Sort attachments in the order in which they decide, each with its number in the list."""
    return sorted(enumerate(attachments), key=lambda pair: -pair[1].priority)


def list_choices(
    attachments: Sequence[Attachment], occasion: Occasion, fallback: RolloutChoice
) -> Iterator[RolloutChoice]:
    """List the policies that may apply, up to the first that applies to all conversations."""
    rollout = 0.0
    for number, attachment in sort_by_priority(attachments):
        if attachment.rollout > rollout and attachment.fits(occasion):
            rollout = attachment.rollout
            yield RolloutChoice(attachment.policy, attachment.mode, rollout, ("attachments", number))
            if rollout == ALL_PERCENT:
                return
    yield fallback


def find_unreachable(attachments: Sequence[Attachment]) -> Iterator[tuple[int, int]]:
    """Find attachments that never decide, each with the one that always decides before it."""
    earlier: list[tuple[int, Attachment]] = []
    for number, attachment in sort_by_priority(attachments):
        for earlier_number, earlier_attachment in earlier:
            if earlier_attachment.covers(attachment):
                yield number, earlier_number
                break
        earlier.append((number, attachment))
