"""Settings of teams, attachments, access and the admin pages.

A policy says *what*; an attachment says *where*. The first attachment that fits a request decides, the highest priority
first; without one the team's own policy does, and without that the upstream's.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from proxy.config.model import ConfigModel
from proxy.config.secrets import SecretReference, check_strength

FIELD_NAME = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]*$"
TEAM_NAME = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$"
ALL_PERCENT = 100.0
_TEAM_NAME = re.compile(TEAM_NAME)
_WILD = re.compile(r"[*?]|\[[^]]+\]")
_GLOBS = ("team", "key", "model", "upstream", "tag")


def _check_network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise ValueError("not an address or a network such as 10.0.0.0/8") from None
    return text


def _check_public_id(key: str) -> str:
    if key.startswith("cp-"):
        raise ValueError("a key is named by its public id (the ten characters after cp-): what follows is secret")
    return key


TeamName = Annotated[str, Field(pattern=TEAM_NAME)]
KeyIds = Annotated[str, AfterValidator(_check_public_id)]
HeaderName = Annotated[str, Field(pattern=FIELD_NAME, min_length=1)]
Network = Annotated[str, AfterValidator(_check_network)]
AdminKey = Annotated[SecretReference, AfterValidator(check_strength)]


class Access(ConfigModel):
    """Access to the proxy: with `teams`, only for clients with a team key; without, for all that reach it."""

    team_header: str = Field("", pattern=FIELD_NAME)
    """Header in which a gateway in front of the proxy names the team, if there is such a gateway."""
    trusted: tuple[Network, ...] = ("127.0.0.0/8", "::1/128")
    """Addresses and networks whose `team_header` is believed."""
    hosts: tuple[str, ...] = ()
    """Public names of the proxy, and web sites whose pages may call it. Needed only with an upstream's key and without
    teams; local names and addresses are always allowed."""
    tenant_headers: tuple[HeaderName, ...] = ()
    """Headers that tell clients apart, such as x-forwarded-user, beside all known credentials. Clients that share all
    of them share compacted histories."""


class Team(ConfigModel):
    """A group of people with keys of their own (`compaction-proxy keys create --team NAME`)."""

    policy: str = ""
    """Policy for their requests where no attachment matches. Empty: the upstream's policy."""
    upstream: str = ""
    """Upstream for all their requests. Empty: the first that serves the model."""
    key: SecretReference = None
    """API key for that upstream, as env:NAME or file:PATH. Without one, the upstream's own."""


def is_team(name: str, teams: Mapping[str, Team], access: Access) -> bool:
    """True for known teams. If a gateway names teams and none are listed, every valid name is known.

    A valid name can become part of store keys and folder names.
    """
    return name in teams or (not teams and bool(access.team_header and _TEAM_NAME.fullmatch(name)))


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
    priority: int = 0
    """Attachments with a higher number are looked at first; equal ones in the order of the file."""
    rollout: float = Field(ALL_PERCENT, ge=0, le=ALL_PERCENT)
    """Percentage of conversations that it applies to. Begin a new policy with 5, and raise it."""
    mode: Literal["", "auto", "observe", "off"] = ""
    """Mode instead of the policy's own. Set `observe` to see what a policy would do."""

    def fits(self, occasion: "Occasion") -> bool:
        return all(fnmatchcase(getattr(occasion, name), getattr(self, name)) for name in _GLOBS)

    def covers(self, other: "Attachment") -> bool:
        """True where this attachment decides every request that the other one matches."""
        return self.rollout >= other.rollout and all(
            _covers(getattr(self, name), getattr(other, name)) for name in _GLOBS
        )


def _covers(wide: str, narrow: str) -> bool:
    """True where everything that matches `narrow` matches `wide`; False where that is hard to tell."""
    if wide in ("*", narrow):
        return True
    return "*" in wide and "?" not in wide and "[" not in wide and fnmatchcase(_WILD.sub("\0", narrow), wide)


class AdminConfig(ConfigModel):
    """The admin pages below /admin/ and their API."""

    enabled: bool = True
    """Serve them."""
    key: AdminKey = None
    """Key to open them, as env:NAME or file:PATH. Without one, a key is made at the first start and shown once."""
    hosts: tuple[str, ...] = ()
    """Names under which browsers reach them, beside localhost and the address of `listen.host`."""


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


def choices(
    attachments: Sequence[Attachment], occasion: Occasion, team: Team | None, fallback: RolloutChoice
) -> Iterator[RolloutChoice]:
    """List the policies that may apply, up to the first that applies to all conversations."""
    taken = 0.0
    for place, attachment in sort_by_priority(attachments):
        if attachment.rollout > taken and attachment.fits(occasion):
            taken = attachment.rollout
            yield RolloutChoice(attachment.policy, attachment.mode, taken, ("attachments", place))
            if taken == ALL_PERCENT:
                return
    if team is not None and team.policy:
        yield RolloutChoice(team.policy, place=("teams", occasion.team, "policy"))
    else:
        yield fallback


def find_unreachable(attachments: Sequence[Attachment]) -> Iterator[tuple[int, int]]:
    """Find attachments that never decide, each with the one that always decides before it."""
    ordered = sort_by_priority(attachments)
    for later, (place, attachment) in enumerate(ordered):
        first = next((at for at, earlier in ordered[:later] if earlier.covers(attachment)), None)
        if first is not None:
            yield place, first
