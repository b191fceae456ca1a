"""Policies: those in force, and trials of them on stored conversations.

A trial replays them with two policies in another process (`proxy.lab.what_if`): here it would hold up every request.
"""

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from fnmatch import fnmatchcase
from tempfile import TemporaryFile
from typing import IO, Annotated

import msgspec
from msgspec import Meta

from proxy.admin.routes import AdminContext, AdminRequest, Json
from proxy.config import InvalidConfig, Loaded, find_origins
from proxy.config.policies import DEFAULT, shipped_policies
from proxy.config.warnings import find_warnings
from proxy.errors import NotFound, Overloaded
from proxy.models.windows import is_known_model
from proxy.store.activity_log import DAY_SECONDS
from proxy.store.transcripts.archive import Archive, SavedConversation
from proxy.threads import FILES
from proxy.wire.http_head import Caller


def list_policies(context: AdminContext, request: AdminRequest) -> Json:
    """List policies. A key of one team sees only its attachments and no warnings, which name other teams."""
    loaded_config = _load(context)
    config = loaded_config.config
    team = request.visitor.team
    attachments, doubts = [], []
    for attachment in config.attachments:
        if team and not fnmatchcase(team, attachment.team):
            continue
        attachments.append(attachment.model_dump())
    if not team:
        doubts += [{"path": path, "message": why} for path, why in find_warnings(config, is_known_model)]
    names = sorted(config.all_policies, key=lambda name: (name != DEFAULT, name))
    return {
        "policies": [_describe(loaded_config, name) for name in names],
        "attachments": attachments,
        "doubts": doubts,
    }


def show_policy(context: AdminContext, request: AdminRequest) -> Json:
    loaded_config = _load(context)
    name = request.names["policy"]
    if name not in loaded_config.config.all_policies:
        raise NotFound("unknown policy: GET /policies lists all")
    values = []
    for path, value, origin in find_origins(loaded_config, name):
        values.append({"path": ".".join(path), "value": value, "origin": origin})
    return {**_describe(loaded_config, name), "values": values}


def _load(context: AdminContext) -> Loaded:
    """Return the configuration in force, with origins if its sources still say the same."""
    config = context.config()
    try:
        loaded_config = context.read()
    except InvalidConfig:
        return Loaded(config, {})
    if loaded_config.config.policies != config.policies:
        return Loaded(config, {})
    return loaded_config


def _describe(loaded_config: Loaded, name: str) -> Json:
    policy = loaded_config.config.policy(name)
    return {
        "name": name,
        "kind": find_kind(loaded_config, name),
        "version": policy.version,
        "mode": policy.mode,
        "inherits": loaded_config.config.lineage(name)[1:],
    }


def find_kind(loaded_config: Loaded, name: str) -> str:
    """Return who wrote a policy: "file", "shipped" or "default"."""
    if name in loaded_config.config.policies and "policies" in loaded_config.config.model_fields_set:
        return "file"
    if name in shipped_policies():
        return "shipped"
    return "default"


CONVERSATION_BYTES = 8 * 1024 * 1024
"""Conversations larger than this are left out of a trial."""
_RUNNING = asyncio.Lock()


class NewTrial(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    policy: str = "default"
    against: str = "default"
    team: Annotated[str, Meta(max_length=200)] = ""
    """Try the conversations of this team only. Empty: those of all."""
    conversation: Annotated[str, Meta(max_length=64)] = ""
    """Try this conversation, however old. Empty: the newest ones of `days`."""
    days: Annotated[float, Meta(gt=0, le=366)] = 7.0
    conversations: Annotated[int, Meta(ge=1, le=200)] = 25
    seconds: Annotated[float, Meta(gt=0, le=60)] = 20.0


async def try_policy(context: AdminContext, request: AdminRequest) -> Json:
    trial: NewTrial = request.body
    config = context.config()
    policies = []
    for field, name in (("policy", trial.policy), ("against", trial.against)):
        if name not in config.all_policies:
            raise NotFound(f"`{field}` names an unknown policy: GET /policies lists all")
        policies.append({"name": name, "policy": config.policy(name).model_dump(mode="json")})
    if _RUNNING.locked():
        raise Overloaded("another trial is running: retry later", headers=(("retry-after", "10"),))
    async with _RUNNING:
        tenant = Caller(request.visitor.team or trial.team).tenant
        conversations = await FILES.run(_find_conversations, context.archive, tenant, trial)
        job = {"policies": policies, "seconds": trial.seconds, "memory_bytes": 2 * 1024 * 1024 * 1024}
        with TemporaryFile(dir=config.state.dir) as file:  # without a name, and gone once it is closed
            await FILES.run(_write_job, file, job, conversations[: trial.conversations])
            answer = await _run(file, trial.seconds + 15.0)  # for the start and the answer of the process
    outcome, outcome_today = answer["outcomes"]
    replayed_count = answer["conversations"]
    return {
        "conversations": replayed_count,
        "left_out": len(conversations) - replayed_count,
        "tried": outcome,
        "today": outcome_today,
    }


def _find_conversations(archive: Archive, tenant: str, trial: NewTrial) -> list[SavedConversation]:
    if trial.conversation:
        return list(archive.find(trial.conversation, tenant))[:1]
    since = time.time() - trial.days * DAY_SECONDS
    return [conversation for conversation in archive.newest_first(tenant) if conversation.written_at >= since]


def _write_job(file: IO[bytes], job: Json, conversations: Sequence[SavedConversation]) -> None:
    """Write the trial, then the messages of the conversations. An empty line ends each conversation."""
    file.write(msgspec.json.encode(job) + b"\n")
    for conversation in conversations:
        if conversation.bytes <= CONVERSATION_BYTES:
            for line in conversation.lines():
                file.write(line.removesuffix(b"\n") + b"\n")
            file.write(b"\n")
    file.seek(0)


async def _run(job: IO[bytes], seconds: float) -> Json:
    """Run the trial in a process without an environment, which may hold credentials."""
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = (sys.executable, "-P", "-m", "proxy.lab.what_if")
    process = await asyncio.create_subprocess_exec(*command, stdin=job, stdout=PIPE, env=environment)
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
