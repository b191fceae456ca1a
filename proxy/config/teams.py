"""Who the teams are, where policies apply, and who may administer.

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
from proxy.config.secrets import SecretReference, strong

FIELD_NAME = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]*$"
TEAM_NAME = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$"
EVERYBODY = 100.0
_TEAM_NAME = re.compile(TEAM_NAME)
_WILD = re.compile(r"[*?]|\[[^]]+\]")
_GLOBS = ("team", "key", "model", "upstream", "tag")


def _network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise ValueError("not an address or a network such as 10.0.0.0/8") from None
    return text


def _public(key: str) -> str:
    if key.startswith("cp-"):
        raise ValueError("a key is named by its public id (the ten characters after cp-): what follows is secret")
    return key


TeamName = Annotated[str, Field(pattern=TEAM_NAME)]
KeyIds = Annotated[str, AfterValidator(_public)]
HeaderName = Annotated[str, Field(pattern=FIELD_NAME, min_length=1)]
Network = Annotated[str, AfterValidator(_network)]
AdminKey = Annotated[SecretReference, AfterValidator(strong)]


class Access(ConfigModel):
    """Who may come in. With `teams`, only their keys open; without, everybody passes with a key for the upstream."""

    team_header: str = Field(
        "", pattern=FIELD_NAME, description="Header in which a gateway in front names the team; empty is none."
    )
    trusted: tuple[Network, ...] = Field(
        ("127.0.0.0/8", "::1/128"), description="Addresses and networks from which that header is believed."
    )
    hosts: tuple[str, ...] = Field(
        (),
        description="Public names of the proxy, and sites whose pages may call it; asked for where an upstream has a "
        "key and there are no teams. Addresses and local names need not be listed.",
    )
    tenant_headers: tuple[HeaderName, ...] = Field(
        (),
        description="Further headers that tell clients apart, such as x-forwarded-user, beside all known credentials.",
    )


class Team(ConfigModel):
    """Some people, their keys (`compaction-proxy keys create --team NAME`), and what they get."""

    policy: str = Field("", description="Their policy where no attachment says otherwise; empty: the upstream's.")
    upstream: str = Field("", description="The upstream of all their requests; empty: the first that serves the model.")
    key: SecretReference = Field(None, description="Their own key for it, as env:NAME or file:PATH; none: its own.")


def is_team(name: str, teams: Mapping[str, Team], access: Access) -> bool:
    """Where none are listed and a gateway names them, any name that can be one: it becomes part of keys and folders."""
    return name in teams or (not teams and bool(access.team_header and _TEAM_NAME.fullmatch(name)))


class Attachment(ConfigModel):
    """Where a policy applies: to requests that fit all of these globs."""

    policy: str = Field("default", description="The policy.")
    team: str = Field("*", description="Teams.")
    key: KeyIds = Field("*", description="Public ids of team keys.")
    model: str = Field("*", description="Models.")
    upstream: str = Field("*", description="Upstreams.")
    tag: str = Field("*", description="What the request's x-compaction-tag header says; without one it is empty.")
    priority: int = Field(0, description="The highest that fits decides; of two equal ones, the first.")
    rollout: float = Field(
        EVERYBODY,
        ge=0,
        le=EVERYBODY,
        description="Percentage of conversations it applies to; others go on to the next.",
    )
    mode: Literal["", "auto", "observe", "off"] = Field(
        "", description="Instead of the policy's own mode; observe only reports what it would do."
    )

    def fits(self, occasion: "Occasion") -> bool:
        return all(fnmatchcase(getattr(occasion, name), getattr(self, name)) for name in _GLOBS)

    def covers(self, other: "Attachment") -> bool:
        """Whatever the other one would decide this one has decided before: the other one is never reached."""
        return self.rollout >= other.rollout and all(
            _covers(getattr(self, name), getattr(other, name)) for name in _GLOBS
        )


def _covers(wide: str, narrow: str) -> bool:
    """Does whatever fits the one glob fit the other? Where it is hard to say: no."""
    if wide in ("*", narrow):
        return True
    return "*" in wide and "?" not in wide and "[" not in wide and fnmatchcase(_WILD.sub("\0", narrow), wide)


class Admin(ConfigModel):
    """The pages below /admin/ and their API."""

    enabled: bool = Field(default=True, description="Whether they are there.")
    key: AdminKey = Field(
        None, description="What opens them, as env:NAME or file:PATH; none: one is made at the first start, and shown."
    )
    hosts: tuple[str, ...] = Field(
        (), description="Names under which browsers may reach them, beside localhost and the address that is bound."
    )


@dataclass(frozen=True, slots=True)
class Occasion:
    """What attachments look at."""

    team: str = ""
    key: str = ""
    model: str = ""
    upstream: str = ""
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """A policy that may apply, to conversations whose place is below its percentage, and who says so."""

    policy: str
    mode: str = ""
    rollout: float = EVERYBODY
    place: tuple[str | int, ...] = ()


def in_order(attachments: Sequence[Attachment]) -> list[tuple[int, Attachment]]:
    """With their places in the list, the one that decides first in front."""
    return sorted(enumerate(attachments), key=lambda pair: -pair[1].priority)


def choices(
    attachments: Sequence[Attachment], occasion: Occasion, team: Team | None, fallback: Choice
) -> Iterator[Choice]:
    """What may apply, up to the first that applies to everybody; who leaves nobody to the next is the last."""
    taken = 0.0
    for place, attachment in in_order(attachments):
        if attachment.rollout > taken and attachment.fits(occasion):
            taken = attachment.rollout
            yield Choice(attachment.policy, attachment.mode, taken, ("attachments", place))
            if taken == EVERYBODY:
                return
    if team is not None and team.policy:
        yield Choice(team.policy, place=("teams", occasion.team, "policy"))
    else:
        yield fallback


def unreachable(attachments: Sequence[Attachment]) -> Iterator[tuple[int, int]]:
    """Attachments that can never decide, each with the one that always decides before it."""
    ordered = in_order(attachments)
    for later, (place, attachment) in enumerate(ordered):
        first = next((at for at, earlier in ordered[:later] if earlier.covers(attachment)), None)
        if first is not None:
            yield place, first
