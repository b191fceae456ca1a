"""Policies as they are in force, where they apply, and publishing others.

What is published is laid over the file: a policy in place of the one of its name, attachments before the file's. The
whole is read as at a start; with one fault in it, nothing is changed. What would reach out of the proxy cannot be
published: prompts that are files, and the upstream that a conversation is shown to for its summary, stand in the file.
"""

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from proxy import windows
from proxy.access.registry import Published, Registry
from proxy.admin.faults import ChangedMeanwhile, Flaw, Invalid
from proxy.admin.origins import Value, values
from proxy.admin.routes import Asked, Desk, Route, told
from proxy.config import Config, InvalidConfig, Loaded
from proxy.config.doubts import doubts
from proxy.config.loading import PUBLISHED
from proxy.config.policies import DEFAULT
from proxy.config.prompts import SHIPPED
from proxy.config.shipped import policies as shipped
from proxy.config.teams import in_order, unreachable
from proxy.errors import NotFound

MOST_POLICIES = 200
MOST_ATTACHMENTS = 500
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    """shipped, file, published, or default"""
    version: str
    mode: str
    inherits: list[str]


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """A place where a policy applies."""

    place: int
    published: bool
    policy: str
    team: str
    key: str
    model: str
    upstream: str
    tag: str
    priority: int
    rollout: float
    mode: str
    unreachable_behind: int | None
    """The place of the attachment that decides everything it fits."""


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    message: str


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    policies: list[Listed]
    attachments: list[Attached]
    """In the order in which they decide."""
    doubts: list[Doubt]
    published_at: float | None
    may_publish: bool


class PolicyTold(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    version: str
    inherits: list[str]
    values: list[Value]
    published: dict[str, Any] | None
    """The values that were published under this name."""


class InForce(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from a change. Every worker and replica has it within two seconds."""

    policies: list[str]
    """Published."""
    attachments: int
    doubts: list[Doubt]


Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What shall be published from now on, and what the audit log calls that."""

    policies: Mapping[str, Any]
    attachments: tuple[Mapping[str, Any], ...]
    act: str
    subject: str


async def policies(desk: Desk, _: Asked) -> Policies:
    loaded = await _loaded(desk)
    config, published = loaded.config, desk.records.current.published
    behind = dict(unreachable(config.attachments))
    many = len(published.attachments)
    return Policies(
        policies=[
            _listed(loaded, name) for name in sorted(config.all_policies, key=lambda name: (name != "default", name))
        ],
        attachments=[
            Attached(place=place, published=place < many, unreachable_behind=behind.get(place), **each.model_dump())
            for place, each in in_order(config.attachments)
        ],
        doubts=_doubts(config),
        published_at=published.at or None,
        may_publish=desk.tried is not None,
    )


async def policy(desk: Desk, asked: Asked) -> PolicyTold:
    loaded, name = await _loaded(desk), asked.names["policy"]
    if name not in loaded.config.all_policies:
        raise NotFound("there is no such policy; /policies lists them")
    listed, published = _listed(loaded, name), desk.records.current.published.policies.get(name)
    return PolicyTold(
        name=name,
        kind=listed.kind,
        version=listed.version,
        inherits=listed.inherits,
        values=list(values(loaded, name)),
        published=dict(published) if published is not None else None,
    )


async def publish(desk: Desk, asked: Asked) -> InForce:
    name = asked.names["policy"]
    if not _NAME.fullmatch(name):
        raise Invalid("a policy's name is letters, digits, dots, dashes and underlines, 64 at most")
    flaws = list(out_of_reach(asked.body))
    if flaws:
        raise Invalid("what would reach out of the proxy stands in the file only; nothing was changed", flaws)
    before = desk.records.current.published
    wanted = Wanted({**before.policies, name: asked.body}, before.attachments, "publish", f"policy {name}")
    return await _change(desk, asked, before, wanted)


async def withdraw(desk: Desk, asked: Asked) -> InForce:
    name, before = asked.names["policy"], desk.records.current.published
    if name not in before.policies:
        raise NotFound("no policy of this name was published")
    left = {each: said for each, said in before.policies.items() if each != name}
    return await _change(desk, asked, before, Wanted(left, before.attachments, "withdraw", f"policy {name}"))


async def attach(desk: Desk, asked: Asked) -> InForce:
    before = desk.records.current.published
    return await _change(desk, asked, before, Wanted(before.policies, tuple(asked.body), "publish", "attachments"))


async def detach(desk: Desk, asked: Asked) -> InForce:
    before = desk.records.current.published
    return await _change(desk, asked, before, Wanted(before.policies, (), "withdraw", "attachments"))


async def _change(desk: Desk, asked: Asked, before: Published, wanted: Wanted) -> InForce:
    """All of it is read as at a start, and only then written down."""
    if desk.tried is None:
        raise ChangedMeanwhile("this proxy's configuration cannot be changed while it runs")
    if len(wanted.policies) > MOST_POLICIES or len(wanted.attachments) > MOST_ATTACHMENTS:
        raise Invalid(f"{MOST_POLICIES} policies and {MOST_ATTACHMENTS} attachments can be published, and no more")
    published = Published(dict(wanted.policies), wanted.attachments, time.time(), asked.visitor.who)
    try:
        config = (await asyncio.to_thread(desk.tried, published)).config
    except InvalidConfig as refused:
        raise Invalid.of(refused) from None

    def publishing(registry: Registry) -> Registry:
        if registry.published != before:
            raise ChangedMeanwhile("somebody else has published something meanwhile: look at it, then try again")
        return registry.publishing(published)

    await asyncio.to_thread(desk.records.change, publishing)
    told(desk, asked, wanted.act, wanted.subject)
    return InForce(policies=sorted(wanted.policies), attachments=len(wanted.attachments), doubts=_doubts(config))


def out_of_reach(said: Mapping[str, Any]) -> list[Flaw]:
    summary = said.get("summary")
    told = summary if isinstance(summary, dict) else {}
    flaws = []
    if told.get("prompt", SHIPPED[0]) not in SHIPPED:
        flaws.append(
            Flaw("summary.prompt", f"a file is named in the configuration file only; here: {' or '.join(SHIPPED)}")
        )
    if told.get("upstream"):
        flaws.append(Flaw("summary.upstream", "who else reads conversations is said in the configuration file only"))
    return flaws


async def _loaded(desk: Desk) -> Loaded:
    """With the origins, where the sources say what is in force; a file that is no good now leaves them untold."""
    config = desk.config()
    try:
        loaded = await asyncio.to_thread(desk.read)
    except InvalidConfig:
        return Loaded(config, {})
    return loaded if loaded.config.policies == config.policies else Loaded(config, {})


def _listed(loaded: Loaded, name: str) -> Listed:
    config = loaded.config
    policy = config.policy(name)
    return Listed(
        name=name,
        kind=_kind(loaded, name),
        version=policy.version,
        mode=policy.mode,
        inherits=config.lineage(name)[1:],
    )


def _kind(loaded: Loaded, name: str) -> str:
    origin = loaded.origins.get(("policies", name))
    if origin == PUBLISHED:
        return "published"
    if name in shipped() and name not in loaded.config.policies:
        return "shipped"
    return "default" if origin is None and name == DEFAULT else "file"


def _doubts(config: Config) -> list[Doubt]:
    return [
        Doubt(path=path, message=why)
        for path, why in doubts(config, lambda name: windows.find_bundled_window(name) is not None)
    ]


_REFUSED = (HTTPStatus.CONFLICT,)
_EITHER = (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND)
_MISSING = (HTTPStatus.NOT_FOUND,)
ROUTES = (
    Route("GET", "/policies", "All policies, and where they apply", policies, Policies),
    Route("GET", "/policies/{policy}", "A policy's values, with origins", policy, PolicyTold, faults=_MISSING),
    Route("PUT", "/policies/{policy}", "Publish a policy", publish, InForce, body=Values, faults=_REFUSED),
    Route("DELETE", "/policies/{policy}", "Withdraw a published policy", withdraw, InForce, faults=_EITHER),
    Route("PUT", "/attachments", "Publish attachments, in place of those published", attach, InForce,
          body=list[Values], faults=_REFUSED),
    Route("DELETE", "/attachments", "Withdraw all published attachments", detach, InForce, faults=_REFUSED),
)  # fmt: skip
