"""Trials of a policy on stored conversations (what-if).

Stored conversations are replayed with one policy and with another, in a process of its own (`proxy.lab.what_if`):
replay is pure Python and would hold up every request of this worker. Here the request is checked, the conversations are
handed over, and the process is ended when its time is over. One trial at a time, with bounds: how many conversations,
how large, how long, how much memory.
"""

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from tempfile import TemporaryFile
from typing import IO, Annotated, Any

import msgspec
from msgspec import Meta

from proxy.admin.routes import AdminContext, AdminRequest, Flaw, Invalid, Json, Route, run_in_admin_thread
from proxy.config import Config, InvalidConfig
from proxy.config.loading import with_policy
from proxy.config.policies import SHIPPED_PROMPTS
from proxy.errors import NotFound, Overloaded
from proxy.store.activity_log import DAY_SECONDS
from proxy.store.transcripts.archive import Archive, SavedConversation
from proxy.wire.http_head import Caller

CONVERSATION_BYTES = 8 * 1024 * 1024
"""Larger conversations are left out."""
MEMORY_BYTES = 2 * 1024 * 1024 * 1024
"""Address space of the process."""
GRACE_SECONDS = 15.0
"""For the start and the answer of the process, which keeps to its own seconds."""
_COMMAND = (sys.executable, "-P", "-m", "proxy.lab.what_if")
_RUNNING = asyncio.Lock()


class NewTrial(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /what-if`."""

    policy: str = "default"
    values: Json | None = None
    """Values to try under this name, as in the configuration file. None: the policy as it is."""
    against: str = "default"
    """The policy to compare with, as it is."""
    team: Annotated[str, Meta(max_length=200)] = ""
    """Whose conversations. Empty: all."""
    conversation: Annotated[str, Meta(max_length=64)] = ""
    """Only this conversation, however old. Empty: the newest of `days`."""
    days: Annotated[float, Meta(gt=0, le=366)] = 7.0
    conversations: Annotated[int, Meta(ge=1, le=200)] = 25
    seconds: Annotated[float, Meta(gt=0, le=60)] = 20.0
    window: Annotated[int, Meta(ge=1_000, le=100_000_000)] | None = None


async def try_policy(context: AdminContext, request: AdminRequest) -> Json:
    trial: NewTrial = request.body
    if request.visitor.team:
        trial = msgspec.structs.replace(trial, team=request.visitor.team)
    policies = await run_in_admin_thread(_resolve_policies, context.config(), trial)
    if _RUNNING.locked():
        raise Overloaded("another trial is running: retry later", headers=(("retry-after", "10"),))
    async with _RUNNING:
        conversations = await run_in_admin_thread(_find_conversations, context.archive, trial)
        job = {"policies": policies, "window": trial.window, "seconds": trial.seconds, "memory_bytes": MEMORY_BYTES}
        answer = await _run(
            context.config().state.dir, job, conversations[: trial.conversations], trial.seconds + GRACE_SECONDS
        )
    outcome, outcome_today = answer["outcomes"]
    replayed = answer["conversations"]
    return {
        "conversations": replayed,
        "left_out": len(conversations) - replayed,
        "tried": outcome,
        "today": outcome_today,
    }


def _resolve_policies(config: Config, trial: NewTrial) -> list[Json]:
    """Return the policy to try and the one to compare it with, with everything they inherit."""
    config_with_trial = config
    if trial.values is not None:
        flaws = _find_flaws(trial.values)
        if flaws:
            raise Invalid("a trial can use neither files nor other upstreams", flaws)
        config_with_trial = insert_policy(config, trial.policy, trial.values)
    policies = []
    for field, name, source in (
        ("policy", trial.policy, config_with_trial),
        ("against", trial.against, config),
    ):
        if name not in source.all_policies:
            raise NotFound(f"`{field}` names an unknown policy: GET /policies lists all")
        policies.append({"name": name, "policy": source.policy(name).model_dump(mode="json")})
    return policies


def insert_policy(config: Config, name: str, values: Json) -> Config:
    """Return the configuration with this policy in it. Invalid: its values cannot be used."""
    try:
        return with_policy(config, name, values)
    except InvalidConfig as fault:
        raise Invalid("invalid policy", [Flaw(flaw.path, flaw.message) for flaw in fault.faults]) from None


def _find_flaws(values: Json) -> list[Flaw]:
    """Refuse settings that would read a file of this machine, or name who else reads conversations."""
    summary = values.get("summary")
    if not isinstance(summary, dict):
        return []
    flaws = []
    if summary.get("prompt", SHIPPED_PROMPTS[0]) not in SHIPPED_PROMPTS:
        flaws.append(Flaw("summary.prompt", f"only {' or '.join(SHIPPED_PROMPTS)} can be tried, no file"))
    if summary.get("upstream"):
        flaws.append(Flaw("summary.upstream", "can be set in the configuration file only"))
    return flaws


def _find_conversations(archive: Archive, trial: NewTrial) -> list[SavedConversation]:
    tenant = Caller(trial.team).tenant
    if trial.conversation:
        return list(archive.find(trial.conversation, tenant))[:1]
    since = time.time() - trial.days * DAY_SECONDS
    return [saved for saved in archive.newest_first(tenant) if saved.written_at >= since]


async def _run(folder: str, job: Mapping[str, Any], conversations: Sequence[SavedConversation], seconds: float) -> Json:
    """Return the answer of the process. It gets no environment of this one: that may hold credentials."""
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with TemporaryFile(dir=folder) as file:  # without a name, and gone once it is closed
        await run_in_admin_thread(_write_job, file, job, conversations)
        process = await asyncio.create_subprocess_exec(*_COMMAND, stdin=file, stdout=PIPE, env=environment)
    try:
        async with asyncio.timeout(seconds):
            answer, _ = await process.communicate()
    except TimeoutError:
        raise Overloaded("the trial took too long: ask for fewer conversations") from None
    finally:
        if process.returncode is None:  # also when the client has left
            process.kill()
            await process.wait()
    if process.returncode:
        raise Overloaded("the trial failed: ask for fewer conversations")
    return msgspec.json.decode(answer, type=Json)


def _write_job(file: IO[bytes], job: Mapping[str, Any], conversations: Sequence[SavedConversation]) -> None:
    """Write the job, and the originals of each conversation with an empty line after them."""
    file.write(msgspec.json.encode(job) + b"\n")
    for conversation in conversations:
        if conversation.bytes > CONVERSATION_BYTES:
            continue
        for line in conversation.lines():
            file.write(line.removesuffix(b"\n") + b"\n")
        file.write(b"\n")
    file.seek(0)


ROUTES = (Route("POST", "/what-if", try_policy, body=NewTrial, for_teams=True, changes=False),)
