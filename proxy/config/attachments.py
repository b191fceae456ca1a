"""Attachments: which policy applies to which requests.

A policy says *what*; an attachment says *where*. The first attachment that fits a request decides, the highest priority
first; without one the team's own policy does, and without that the upstream's.
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
    """Attachments with a higher number are looked at first; equal ones in the order of the file."""
    rollout: Percent = ALL_PERCENT
    """Percentage of conversations that it applies to: 5 is 5 %. Write less than 1 with its sign, as 0.5%. Begin a new
    policy with 5, and raise it."""
    mode: Literal["", "auto", "observe", "off"] = ""
    """`auto`, `observe` or `off` instead of the policy's own mode. Set `observe` to see what a policy would do."""

    def fits(self, occasion: "Occasion") -> bool:
        return all(fnmatchcase(getattr(occasion, name), getattr(self, name)) for name in _GLOBS)

    def covers(self, other: "Attachment") -> bool:
        """True where this attachment decides every request that the other one matches."""
        return self.rollout >= other.rollout and all(
            covers_glob(getattr(self, name), getattr(other, name)) for name in _GLOBS
        )


def covers_glob(wide: str, narrow: str) -> bool:
    """True where everything that matches `narrow` matches `wide`; False where that is hard to tell."""
    if wide in ("*", narrow):
        return True
    return "*" in wide and "?" not in wide and "[" not in wide and fnmatchcase(_WILD.sub("\0", narrow), wide)


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
    """A policy for conversations whose position is below `rollout`, and the setting that names it."""

    policy: str
    mode: str = ""
    rollout: float = ALL_PERCENT
    place: tuple[str | int, ...] = ()


def sort_by_priority(attachments: Sequence[Attachment]) -> list[tuple[int, Attachment]]:
    """Sort attachments in the order in which they decide, each with its place in the list."""
    return sorted(enumerate(attachments), key=lambda pair: -pair[1].priority)


def list_choices(
    attachments: Sequence[Attachment], occasion: Occasion, fallback: RolloutChoice
) -> Iterator[RolloutChoice]:
    """List the policies that may apply, up to the first that applies to all conversations."""
    taken = 0.0
    for place, attachment in sort_by_priority(attachments):
        if attachment.rollout > taken and attachment.fits(occasion):
            taken = attachment.rollout
            yield RolloutChoice(attachment.policy, attachment.mode, taken, ("attachments", place))
            if taken == ALL_PERCENT:
                return
    yield fallback


def find_unreachable(attachments: Sequence[Attachment]) -> Iterator[tuple[int, int]]:
    """Find attachments that never decide, each with the one that always decides before it."""
    ordered = sort_by_priority(attachments)
    for later, (place, attachment) in enumerate(ordered):
        first = next((at for at, earlier in ordered[:later] if earlier.covers(attachment)), None)
        if first is not None:
            yield place, first
