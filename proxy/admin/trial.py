"""What-if: kept conversations of the last days, turn by turn through a policy and through today's.

The replay itself runs in a process of its own (`proxy.lab.what_if`): it is pure Python and would hold up every other
request of this worker. Here the request is checked, the conversations are handed over, and the process is ended when
its time is over. One trial at a time, within bounds: how many conversations, how large, how long, how much memory.
"""

import asyncio
import contextlib
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from proxy.access.registry import Published
from proxy.admin import shelf
from proxy.admin.faults import Invalid
from proxy.admin.policies import Values, out_of_reach
from proxy.admin.routes import Asked, Desk, Originals, Route
from proxy.config import InvalidConfig
from proxy.errors import NotFound, Overloaded
from proxy.store.transcripts.retention import Stored
from proxy.wire.caller import Caller

DAY_SECONDS = 24 * 3600.0
CONVERSATION_BYTES = 8 * 1024 * 1024
"""Larger conversations are left out."""
MEMORY_BYTES = 2 * 1024 * 1024 * 1024
"""Address space of the process."""
GRACE_SECONDS = 15.0
"""For its start and its answer; the process keeps to its own seconds."""
_COMMAND = (sys.executable, "-P", "-m", "proxy.lab.what_if")


class TrialWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    policy: str = "default"
    values: Values | None = None
    """Values to try under this name, as they would be published; none: the policy as it is."""
    against: str = "default"
    """What it is held against: the policy of today."""
    team: Annotated[str, Meta(max_length=200)] = ""
    """Whose conversations; empty: everybody's."""
    days: Annotated[float, Meta(gt=0, le=366)] = 7.0
    conversations: Annotated[int, Meta(ge=1, le=200)] = 25
    seconds: Annotated[float, Meta(gt=0, le=60)] = 20.0
    window: Annotated[int, Meta(ge=1_000, le=100_000_000)] | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy comes to. Dollars at the models' own prices, where they are known."""

    policy: str
    requests: int
    tokens_sent: int
    tokens_forwarded: int
    cached_share: float | None
    cost_share: float
    """Of doing nothing, at a tenth for what is cached and one and a quarter for what is not; summaries included."""
    dollars: float
    dollars_without: float
    priced: int
    rewrites: int
    peak: int
    over_window: int
    summaries: int
    retention: float | None
    """Of the words the next action needed, the share in a line that still stands there."""


class Trials(msgspec.Struct, frozen=True, kw_only=True):
    conversations: int
    left_out: int
    """For want of time, or because they are too large or hold no request."""
    tried: Outcome
    today: Outcome


_RUNNING = asyncio.Lock()


async def what_if(desk: Desk, asked: Asked) -> Trials:
    wanted: TrialWanted = asked.body
    policies = await asyncio.to_thread(_policies, desk, wanted)
    if _RUNNING.locked():
        raise Overloaded("another trial is running: they are made one at a time", headers=(("retry-after", "10"),))
    async with _RUNNING:
        found = await asyncio.to_thread(_newest, desk.originals, wanted)
        job = {"policies": policies, "window": wanted.window, "seconds": wanted.seconds, "memory_bytes": MEMORY_BYTES}
        answer = await _run(job, found[: wanted.conversations], wanted.seconds + GRACE_SECONDS)
    tried, today = msgspec.convert(answer["outcomes"], list[Outcome])
    done = answer["conversations"]
    return Trials(conversations=done, left_out=len(found) - done, tried=tried, today=today)


def _policies(desk: Desk, wanted: TrialWanted) -> list[dict[str, Any]]:
    """The policy to try and the one it is held against, with everything they inherit."""
    today = tried = desk.config()
    if wanted.values is not None:
        if flaws := out_of_reach(wanted.values):
            raise Invalid("what would reach out of the proxy cannot be tried here", flaws)
        if desk.tried is None:
            raise Invalid("this proxy's configuration is not to be changed, nor tried otherwise")
        known = desk.records.current.published
        published = Published({**known.policies, wanted.policy: wanted.values}, known.attachments, time.time())
        try:
            tried = desk.tried(published).config
        except InvalidConfig as refused:
            raise Invalid.of(refused) from None
    for given, name, config in (("policy", wanted.policy, tried), ("against", wanted.against, today)):
        if name not in config.all_policies:
            raise NotFound(f"there is no policy of the name that was given as `{given}`; /policies lists them")
    both = ((wanted.policy, tried), (wanted.against, today))
    return [{"name": name, "policy": config.policy(name).model_dump(mode="json")} for name, config in both]


def _newest(originals: Originals, wanted: TrialWanted) -> list[Stored]:
    since = time.time() - wanted.days * DAY_SECONDS
    return [one for one in shelf.newest(originals, Caller(wanted.team).tenant) if one.written >= since]


async def _run(job: Mapping[str, Any], conversations: Sequence[Stored], seconds: float) -> dict[str, Any]:
    """The answer of the process. It gets nothing of this one's environment: there may be credentials in it."""
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = await asyncio.create_subprocess_exec(*_COMMAND, stdin=PIPE, stdout=PIPE, env=environment)
    try:
        async with asyncio.timeout(seconds):
            answer, _ = await asyncio.gather(_read(process), _hand_over(process, job, conversations))
    except TimeoutError:
        raise Overloaded("the trial took too long: ask for fewer conversations") from None
    finally:
        if process.returncode is None:  # also when the client has left
            process.kill()
            await process.wait()
    if process.returncode:
        raise Overloaded("the trial failed: ask for fewer conversations")
    return msgspec.json.decode(answer, type=dict[str, Any])


async def _read(process: Process) -> bytes:
    assert process.stdout is not None  # noqa: S101 (it was asked for)
    answer = await process.stdout.read()
    await process.wait()
    return answer


async def _hand_over(process: Process, job: Mapping[str, Any], conversations: Sequence[Stored]) -> None:
    """Write the job and the conversations. The process stops reading when its seconds are over."""
    assert process.stdin is not None  # noqa: S101 (it was asked for)
    with contextlib.suppress(ConnectionError):
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        for one in conversations:
            if one.bytes <= CONVERSATION_BYTES:
                process.stdin.write(await asyncio.to_thread(_lines, one))
                await process.stdin.drain()
    process.stdin.close()


def _lines(one: Stored) -> bytes:
    """The originals of a conversation, followed by an empty line."""
    return b"".join(line if line.endswith(b"\n") else line + b"\n" for line in one.lines()) + b"\n"


_DOES = "What a policy would have made of the conversations that are kept, beside today's"
_FAULTS = (HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE)
ROUTES = (Route("POST", "/what-if", _DOES, what_if, Trials, body=TrialWanted, faults=_FAULTS),)
